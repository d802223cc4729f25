#include "storage/files/file_offer.hpp"

#include <algorithm>
#include <filesystem>

namespace mooncaf {

namespace fs = std::filesystem;

namespace {

/// Files below a folder, in an order of their own; what is hidden is a download's or a repository's.
result<std::vector<std::string>> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  fs::recursive_directory_iterator at{folder, failed}, end;
  while (!failed && at != end) {
    const bool hidden = at->path().filename().string().starts_with('.');
    if (hidden && at->is_directory()) at.disable_recursion_pending();
    if (!hidden && at->is_regular_file()) names.push_back(fs::relative(at->path(), folder).generic_string());
    at.increment(failed);
  }
  if (failed) return fail(ec::io_error, folder.string() + ": " + failed.message());
  std::ranges::sort(names);
  return names;
}

}  // namespace

result<std::unique_ptr<file_offer>> file_offer::start(const std::string& path,
                                                      transfer_engine_options options) {
  std::unique_ptr<file_offer> made{new file_offer};
  if (auto ok = made->map(path); !ok) return fail(ok.error());
  auto engine = transfer_engine::start(std::move(options));
  if (!engine) return fail(engine.error());
  made->engine_ = std::move(*engine);
  if (auto ok = made->offer(); !ok) return fail(ok.error());
  made->hasher_ = std::thread{[self = made.get()] { self->hash(); }};
  return made;
}

file_offer::~file_offer() {
  ending_ = true;
  if (hasher_.joinable()) hasher_.join();
  engine_.reset();
}

file_offer::news file_offer::heard(time_point now) {
  news all;
  for (const auto& word : engine_->take_words()) {
    const std::string_view said = word.text;
    const auto from = [&](std::string_view what) {
      return said.substr(std::min(what.size() + 1, said.size()));
    };
    all.any = true;
    if (said.starts_with(fetch_ended)) ++all.ended, fetches_.ended(from(fetch_ended));
    else if (said.starts_with(fetch_goes_on)) fetches_.goes_on(from(fetch_goes_on), now);
  }
  fetches_.forget_silent(now);
  return all;
}

result<void> file_offer::map(const std::string& path) {
  std::error_code failed;
  const bool folder = fs::is_directory(path, failed);
  auto names = folder ? names_in(path) : result<std::vector<std::string>>{std::vector<std::string>{""}};
  if (!names) return fail(names.error());
  std::vector<file_manifest::entry> files;
  for (auto& name : *names) {
    const auto whole = folder ? path + "/" + name : path;
    if (folder && fs::file_size(whole, failed) == 0 && !failed) {
      files.push_back({std::move(name), 0, 0});
      base_.push_back(nullptr);
      continue;
    }
    auto mapped = mapped_file::open(whole);
    if (!mapped) return fail(mapped.error());
    const auto bytes = mapped->bytes();
    files.push_back({std::move(name), bytes.size(), reinterpret_cast<std::uint64_t>(bytes.data())});
    base_.push_back(bytes.data());
    mapped_.push_back(std::move(*mapped));
  }
  auto manifest = file_manifest::of(folder, std::move(files));
  if (!manifest) return fail(manifest.error());
  if (manifest->parts() == 0) return fail(ec::invalid_argument, path + ": there are no bytes to offer");
  manifest_ = std::move(*manifest);
  return {};
}

// The manifest is offered before the files: a fetch looks for it in the engine's first region.
result<void> file_offer::offer() {
  hashes_.resize(manifest_.parts() * file_manifest::hash_bytes);
  const auto page = fetches_.bytes();
  described_ = manifest_.encode(
      {reinterpret_cast<std::uint64_t>(hashes_.data()), reinterpret_cast<std::uint64_t>(page.data()), 0});
  if (described_.size() > file_manifest::bytes_max)
    return fail(ec::invalid_argument, "too many files, or too many bytes, for one offer");
  if (auto ok = engine_->offer(reinterpret_cast<std::uint64_t>(described_.data()), described_.size()); !ok)
    return ok;
  if (auto ok = engine_->offer(reinterpret_cast<std::uint64_t>(page.data()), page.size()); !ok) return ok;
  for (const auto& file : mapped_)
    if (auto ok = engine_->offer(reinterpret_cast<std::uint64_t>(file.bytes().data()), file.bytes().size());
        !ok)
      return ok;
  return {};
}

/// A block that cannot be offered is not there for a fetch, which then asks other sources.
void file_offer::hash() {
  constexpr auto each = file_manifest::hash_bytes;
  const std::span<std::byte> all{hashes_};
  for (std::size_t i = 0; i < manifest_.parts() && !ending_; ++i) {
    const auto part = manifest_.part(i);
    const std::span<const std::byte> bytes{base_[part.file] + part.offset,
                                           static_cast<std::size_t>(part.bytes)};
    file_manifest::put_hash(all.subspan(i * each).first<each>(), hash_bytes128(bytes));
    if (const auto count = i % file_manifest::hashes_per_block + 1;
        count == file_manifest::hashes_per_block || i + 1 == manifest_.parts())
      static_cast<void>(
          engine_->offer(reinterpret_cast<std::uint64_t>(all.data() + (i + 1 - count) * each), count * each));
  }
}

}  // namespace mooncaf
