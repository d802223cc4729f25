#include "storage/files/draft_offer.hpp"

#include <algorithm>

#include "storage/files/one_sided.hpp"

namespace mooncaf {

namespace {

constexpr auto per_block = file_manifest::hashes_per_block;
constexpr auto each = file_manifest::hash_bytes;

std::uint64_t address_of(const std::byte* at) { return reinterpret_cast<std::uint64_t>(at); }

}  // namespace

// The manifest is offered before all else: others look for it in the engine's first region.
result<void> draft_offer::start(transfer_engine& engine, const file_manifest& manifest,
                                const partial_files& files) {
  engine_ = &engine;
  count_ = manifest.files().size();
  auto entries = manifest.files();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i].address = 0;
    if (entries[i].bytes == 0) continue;
    auto draft = mapped_file::open(files.draft_of(i));
    if (!draft) return fail(draft.error());
    entries[i].address = address_of(draft->bytes().data());
    drafts_.push_back(std::move(*draft));
    files_.push_back(i);
  }
  const auto mine = file_manifest::of(manifest.folder(), std::move(entries));
  if (!mine) return fail(mine.error());
  map_.resize(manifest.parts());
  hashes_.resize(manifest.parts() * each);
  offered_.resize((manifest.parts() + per_block - 1) / per_block);
  described_ = mine->encode({address_of(hashes_.data()), 0, address_of(map_.data())});
  if (auto ok = engine.offer(address_of(described_.data()), described_.size()); !ok) return ok;
  if (auto ok = engine.offer(address_of(map_.data()), map_.size()); !ok) return ok;
  for (const auto& draft : drafts_)
    if (auto ok = engine.offer(address_of(draft.bytes().data()), draft.bytes().size()); !ok) return ok;
  return {};
}

std::vector<std::span<const std::byte>> draft_offer::bytes() const {
  std::vector<std::span<const std::byte>> all(count_);
  for (std::size_t i = 0; i < files_.size(); ++i) all[files_[i]] = drafts_[i].bytes();
  return all;
}

void draft_offer::is(std::size_t part, part_holding now) {
  store_one_sided(map_.at(part), static_cast<std::byte>(now));
}

/// A block that cannot be offered is not there for others, who then ask elsewhere.
void draft_offer::knows(std::size_t first, const std::vector<hash128>& hashes) {
  std::lock_guard lock{mutex_};
  if (offered_.at(first / per_block)) return;
  offered_[first / per_block] = true;
  const auto block = std::span<std::byte>{hashes_}.subspan(first * each, hashes.size() * each);
  for (std::size_t i = 0; i < hashes.size(); ++i)
    file_manifest::put_hash(block.subspan(i * each).first<each>(), hashes[i]);
  static_cast<void>(engine_->offer(address_of(block.data()), block.size()));
}

}  // namespace mooncaf
