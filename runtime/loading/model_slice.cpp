#include "runtime/loading/model_slice.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "runtime/base/units.hpp"
#include "runtime/model/gguf.hpp"
#include "runtime/model/gguf_source.hpp"
#include "runtime/model/hf_source.hpp"
#include "storage/file_slice.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf {

namespace {

/// A GGUF file's directory is looked for in so many bytes, then in twice as many.
constexpr std::uint64_t first_look = 4 * MiB, longest_look = 256 * MiB;
/// A longer file of a folder, unless it has weights, is no part of the model.
constexpr std::uint64_t longest_text = 64 * MiB;

using has_fn = std::function<bool(const file_range&)>;

bool is_weights(const model_file& file) { return file.name.ends_with(".safetensors"); }
bool is_text(const model_file& file) {
  return !is_weights(file) && file.name.find('/') == std::string::npos && file.bytes.size() <= longest_text;
}

std::vector<file_range> all_of(const std::vector<model_file>& files) {
  std::vector<file_range> all;
  for (std::size_t i = 0; i < files.size(); ++i) all.push_back({i, 0, files[i].bytes.size()});
  return all;
}

/// Where bytes lie that a reader points to.
class places {
 public:
  explicit places(const std::vector<model_file>& files) {
    for (std::size_t i = 0; i < files.size(); ++i)
      if (!files[i].bytes.empty()) by_begin_[files[i].bytes.data()] = i;
  }
  file_range of(std::span<const std::byte> bytes) const {
    const auto& [begin, file] = *std::prev(by_begin_.upper_bound(bytes.data()));
    return {file, static_cast<std::uint64_t>(bytes.data() - begin), bytes.size()};
  }

 private:
  std::map<const std::byte*, std::size_t> by_begin_;
};

/// Adds the tensors that the uses read.
result<void> add_reads(model_wish& wish, const model_source& source, const std::vector<model_file>& files,
                       std::span<const model_use> uses) {
  const auto config = source.config();
  if (!config) return fail(config.error());
  const places at{files};
  bool sampled = false;
  const auto add = [&](std::optional<layer_range> layers, tensor_part share, bool weights) -> result<void> {
    const auto reads = model::reads(source, layers, share);
    if (!reads) return fail(reads.error());
    if (!*reads) wish.ranges = all_of(files);
    if (!*reads) return {};
    if (weights)
      for (const auto bytes : (*reads)->weights) wish.ranges.push_back(at.of(bytes));
    if (!std::exchange(sampled, true))
      for (const auto bytes : (*reads)->samples) wish.samples.push_back(at.of(bytes));
    return {};
  };
  for (const auto& use : uses) {
    if (!use.weights) continue;
    const auto parts = parts_of(*config, use.share, use.devices);
    if (!parts) return fail(parts.error());
    for (const auto& [layers, share] : *parts)
      if (auto ok = add(layers, share, true); !ok) return ok;
  }
  return sampled ? result<void>{} : add({}, {}, false);
}

result<model_wish> wish_of_file(const std::vector<model_file>& files, const std::string& name,
                                std::span<const model_use> uses, const has_fn& has) {
  const auto bytes = files.front().bytes;
  for (auto look = first_look;; look *= 2) {
    const file_range head{0, 0, std::min<std::uint64_t>(look, bytes.size())};
    if (!has(head)) return model_wish{{head}, {}};
    const auto parsed = parse_gguf(bytes, name, static_cast<std::size_t>(head.bytes));
    const bool other = std::memcmp(bytes.data(), "GGUF", std::min<std::size_t>(4, bytes.size())) != 0;
    if (!parsed && !other && head.bytes < bytes.size() && look < longest_look) continue;
    if (!parsed) return fail(parsed.error());
    model_wish wish{{head}, {}};
    if (auto ok = add_reads(wish, gguf_source(*parsed), files, uses); !ok) return fail(ok.error());
    return wish;
  }
}

/// The words of a folder, and the directories of its weights.
std::vector<file_range> heads_of(const std::vector<model_file>& files, const has_fn& has) {
  std::vector<file_range> heads;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::uint64_t size = files[i].bytes.size();
    if (is_text(files[i])) heads.push_back({i, 0, size});
    if (!is_weights(files[i])) continue;
    std::uint64_t length = 0;
    const file_range first{i, 0, std::min<std::uint64_t>(size, sizeof length)};
    if (has(first) && size >= sizeof length) std::memcpy(&length, files[i].bytes.data(), sizeof length);
    heads.push_back({i, 0, first.bytes + std::min(length, size - first.bytes)});
  }
  return heads;
}

result<model_wish> wish_of_folder(const std::vector<model_file>& files, const std::string& name,
                                  std::span<const model_use> uses, const has_fn& has) {
  model_wish wish{heads_of(files, has), {}};
  if (!std::ranges::all_of(wish.ranges, has)) return wish;
  // A first look tells how long the directories are.
  if (auto longer = heads_of(files, has); !std::ranges::all_of(longer, has))
    return model_wish{std::move(longer), {}};
  const auto source = hf_source::open(name, [&](const std::string& asked) -> result<owned_bytes> {
    const auto found = std::ranges::find(files, asked, &model_file::name);
    if (found == files.end()) return fail(ec::not_found, name + "/" + asked + " is not there");
    return owned_bytes{found->bytes, {}};
  });
  if (!source) return fail(source.error());
  if (auto ok = add_reads(wish, **source, files, uses); !ok) return fail(ok.error());
  return wish;
}

}  // namespace

model_use use_of(const options& o) {
  const auto& c = o.cluster;
  const bool whole = !c.rank && c.ranks.empty();
  return {c.prefill || c.decode || c.rank, share_of(o), whole ? o.model.pipeline * o.model.tensor : 1, whole};
}

result<model_wish> wish_of(const std::vector<model_file>& files, const std::string& name,
                           std::span<const model_use> uses, const has_fn& has) {
  if (std::ranges::any_of(uses, [](const auto& u) { return u.weights && u.whole; }))
    return model_wish{all_of(files), {}};
  const bool folder = files.size() != 1 || !files.front().name.empty();
  return folder ? wish_of_folder(files, name, uses, has) : wish_of_file(files, name, uses, has);
}

// Bytes that are not there would read as zeros.
result<void> check_slice(const std::string& path, std::span<const model_use> uses) {
  const auto slice = file_slice::read(path);
  if (!slice) return fail(slice.error());
  const auto data = file_slice::data_of(path);
  std::vector<mapped_file> mapped;
  std::vector<model_file> files;
  for (const auto& [name, bytes] : slice->files()) {
    files.push_back({name, {}});
    if (bytes == 0) continue;
    auto file = mapped_file::open(name.empty() ? data : data + "/" + name);
    if (!file) return fail(file.error());
    files.back().bytes = file->bytes();
    mapped.push_back(std::move(*file));
  }
  const auto has = [&](const file_range& r) { return slice->has(r); };
  const auto wish = wish_of(files, data, uses, has);
  if (!wish) return fail(wish.error());
  if (std::ranges::all_of(wish->ranges, has)) return {};
  return fail(ec::not_found,
              data + " is " + std::to_string(slice->bytes_here() / MiB) +
                  " MiB of the model, without what this process needs; `mooncaf weights fetch " + path +
                  "` brings the rest");
}

}  // namespace mooncaf
