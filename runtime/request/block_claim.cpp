#include "runtime/request/block_claim.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

std::vector<block_name> chain_of(const work_order& job) {
  std::vector<block_name> out;
  out.reserve(job.keys.size());
  auto parent = job.root;
  for (const auto& key : job.keys) {
    out.push_back({key, parent, static_cast<std::uint32_t>(out.size())});
    parent = key;
  }
  return out;
}

block_claim::block_claim(attempt_id id, std::vector<block_name> chain, std::uint32_t reusable,
                         std::uint32_t total)
    : id_(id),
      chain_(std::move(chain)),
      reusable_(std::min(reusable, static_cast<std::uint32_t>(chain_.size()))),
      total_(total),
      checksums_(chain_.size()) {}

block_keys_t block_claim::reusable_keys() const {
  block_keys_t keys;
  keys.reserve(reusable_);
  for (std::uint32_t i = 0; i < reusable_; ++i) keys.push_back(chain_[i].key);
  return keys;
}

pin_order block_claim::pin(std::uint32_t from_ssd) {
  pin_order out;
  out.keys = reusable_keys();
  out.from_ssd = from_ssd;
  out.turn = ++turn_;
  return out;
}

std::optional<std::uint32_t> block_claim::pinned(std::uint32_t turn, const pinned_slots& held) {
  if (turn != turn_) return std::nullopt;
  slots_ = held.slots;
  have_ = static_cast<std::uint32_t>(slots_.size());
  std::ranges::fill(checksums_, 0);
  std::copy_n(held.checksums.begin(), std::min(held.checksums.size(), checksums_.size()), checksums_.begin());
  return total_ - std::min(total_, have_);
}

void block_claim::reserved(std::span<const slot_index> slots) {
  slots_.insert(slots_.end(), slots.begin(), slots.end());
}

void block_claim::take_over(std::vector<slot_index> slots, std::vector<std::uint64_t> checksums) {
  slots_ = std::move(slots);
  checksums_ = std::move(checksums);
  checksums_.resize(chain_.size());
}

fetch_plan block_claim::fetch(node_id source, std::uint32_t until, std::int64_t worth_ns) {
  loading_ = true;
  fetch_plan plan;
  plan.id = id_;
  plan.source = source;
  for (std::uint32_t i = 0; i < until; ++i) plan.keys.push_back(chain_[i].key);
  plan.skip = have_;
  plan.slots.assign(slots_.begin() + have_, slots_.begin() + until);
  plan.worth_ns = worth_ns;
  return plan;
}

void block_claim::extend(const block_key& key, const block_key& root) {
  const auto& parent = chain_.empty() ? root : chain_.back().key;
  chain_.push_back({key, parent, static_cast<std::uint32_t>(chain_.size())});
  checksums_.push_back(0);
}

std::vector<commit_item> block_claim::adopt(const remote_blocks& got) {
  std::vector<std::uint64_t> sums;
  for (const auto& block : got.blocks) sums.push_back(block.checksum);
  return name(have_, sums);
}

std::vector<commit_item> block_claim::name(std::uint32_t first, std::span<const std::uint64_t> checksums) {
  std::vector<commit_item> out;
  const auto last = std::min<std::size_t>({first + checksums.size(), chain_.size(), slots_.size()});
  for (std::size_t i = first; i < last; ++i) {
    const auto& block = chain_[i];
    checksums_[i] = checksums[i - first];
    out.push_back({slots_[i], block, checksums_[i]});
  }
  return out;
}

}  // namespace mooncaf
