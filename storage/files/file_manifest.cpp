#include "storage/files/file_manifest.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "transport/net/bytes.hpp"

namespace mooncaf {

namespace {

constexpr std::uint64_t magic = 0x73656c6966666163;  // "caffiles"
constexpr std::uint32_t version = 1;

/// A path that stays within its folder, written in one way.
bool stays_inside(std::string_view name) {
  if (name.empty() || name.size() > 4096) return false;
  while (true) {
    const auto step = name.substr(0, name.find('/'));
    if (step.empty() || step == "." || step == "..") return false;
    if (std::ranges::any_of(step, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
      return false;
    if (step.size() == name.size()) return true;
    name.remove_prefix(step.size() + 1);
  }
}

}  // namespace

result<file_manifest> file_manifest::of(bool folder, std::vector<entry> files) {
  if (!folder && (files.size() != 1 || !files[0].name.empty()))
    return fail(ec::invalid_argument, "a file alone is one, without a name");
  std::set<std::string_view> names;
  for (const auto& f : files) {
    if (folder && !stays_inside(f.name))
      return fail(ec::invalid_argument, "'" + f.name + "' is no name in a folder");
    if (!names.insert(f.name).second) return fail(ec::invalid_argument, "'" + f.name + "' is there twice");
  }
  file_manifest m;
  m.folder_ = folder;
  for (const auto& f : files) {
    if (f.bytes > (std::uint64_t{1} << 50) || m.bytes_ + f.bytes > (std::uint64_t{1} << 50))
      return fail(ec::invalid_argument, "'" + f.name + "' has " + std::to_string(f.bytes) + " bytes");
    m.bytes_ += f.bytes;
    m.first_.push_back(m.first_.back() + static_cast<std::size_t>((f.bytes + part_bytes - 1) / part_bytes));
  }
  m.files_ = std::move(files);
  return m;
}

file_range file_manifest::part(std::size_t number) const {
  const auto behind = std::upper_bound(first_.begin(), first_.end(), number);
  const auto file = static_cast<std::size_t>(behind - first_.begin()) - 1;
  const auto offset = (number - first_[file]) * part_bytes;
  return {file, offset, std::min(part_bytes, files_[file].bytes - offset)};
}

bool file_manifest::same_shape(const file_manifest& other) const {
  return folder_ == other.folder_ &&
         std::ranges::equal(files_, other.files_, [](const entry& a, const entry& b) {
           return a.name == b.name && a.bytes == b.bytes;
         });
}

std::vector<std::byte> file_manifest::encode(const places& at) const {
  std::vector<std::byte> list;
  byte_writer names{list};
  for (const auto& f : files_) {
    names.put(f.bytes);
    names.put(f.address);
    names.put_text(f.name);
  }
  std::vector<std::byte> out;
  byte_writer w{out};
  w.put(magic);
  w.put(version);
  w.put(static_cast<std::uint32_t>(part_bytes));
  w.put(static_cast<std::uint32_t>(files_.size()));
  w.put(static_cast<std::uint32_t>(folder_));
  w.put(static_cast<std::uint64_t>(parts()));
  w.put(at.hashes);
  w.put(static_cast<std::uint64_t>(head_bytes + list.size()));
  w.put(at.fetches);
  w.put(at.map);
  out.resize(head_bytes);
  w.put_bytes(list);
  return out;
}

result<file_manifest::head> file_manifest::parse_head(std::span<const std::byte, head_bytes> in) {
  byte_reader r{in};
  if (r.get<std::uint64_t>() != magic) return fail(ec::corrupt, "no model is offered there");
  if (const auto v = r.get<std::uint32_t>(); v != version)
    return fail(ec::incompatible, "it offers files by version " + std::to_string(v) +
                                      ", this process fetches by " + std::to_string(version));
  const auto part = r.get<std::uint32_t>();
  r.get<std::uint64_t>();  // files, and whether they are a folder's
  head h;
  h.parts = r.get<std::uint64_t>();
  h.at.hashes = r.get<std::uint64_t>();
  h.bytes = r.get<std::uint64_t>();
  h.at.fetches = r.get<std::uint64_t>();
  h.at.map = r.get<std::uint64_t>();
  if (part != part_bytes || h.bytes < head_bytes || h.bytes > bytes_max || h.parts > bytes_max / hash_bytes ||
      h.at.hashes == 0 || h.at.hashes > ~std::uint64_t{0} - h.parts * hash_bytes ||
      h.at.map > ~std::uint64_t{0} - h.parts)
    return fail(ec::corrupt, "the list of its files is damaged");
  return h;
}

result<file_manifest> file_manifest::parse(std::span<const std::byte> in) {
  const auto damaged = [] { return fail(ec::corrupt, "the list of its files is damaged"); };
  if (in.size() < head_bytes) return damaged();
  const auto h = parse_head(in.first<head_bytes>());
  if (!h) return fail(h.error());
  if (in.size() != h->bytes) return damaged();
  byte_reader r{in};
  r.take(16);
  const auto count = r.get<std::uint32_t>();
  const auto folder = r.get<std::uint32_t>();
  r.take(head_bytes - 24);
  if (folder > 1 || count > r.left() / 20) return damaged();
  std::vector<entry> files(count);
  for (auto& f : files) {
    f.bytes = r.get<std::uint64_t>();
    f.address = r.get<std::uint64_t>();
    f.name = r.get_text();
    if ((f.bytes > 0) != (f.address != 0) || f.bytes > ~std::uint64_t{0} - f.address) return damaged();
  }
  if (!r.ok() || r.left() > 0) return damaged();
  auto made = of(folder == 1, std::move(files));
  if (!made || made->parts() != h->parts) return damaged();
  return made;
}

hash128 file_manifest::parse_hash(std::span<const std::byte, hash_bytes> in) {
  byte_reader r{in};
  const auto high = r.get<std::uint64_t>();
  return {high, r.get<std::uint64_t>()};
}

void file_manifest::put_hash(std::span<std::byte, hash_bytes> out, const hash128& hash) {
  std::memcpy(out.data(), &hash.high, 8);
  std::memcpy(out.data() + 8, &hash.low, 8);
}

}  // namespace mooncaf
