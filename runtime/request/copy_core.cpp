#include "runtime/request/copy_core.hpp"

#include <algorithm>

namespace mooncaf {

namespace {

/// Blocks of one read: enough to fill a link, few enough to hold little while it is under way.
constexpr std::size_t blocks_per_copy = 32;
/// Orders beyond that are dropped, oldest first: a missing copy is a cache miss, and the newest blocks are
/// the likeliest to be used.
constexpr std::size_t order_limit = 4096;

}  // namespace

void copy_core::take(const keep_order& order) {
  for (std::size_t at = 0; at < order.blocks.size(); at += blocks_per_copy) {
    const auto end = std::min(order.blocks.size(), at + blocks_per_copy);
    waiting_.push_back({order.source,
                        {order.blocks.begin() + static_cast<std::ptrdiff_t>(at),
                         order.blocks.begin() + static_cast<std::ptrdiff_t>(end)}});
  }
  while (waiting_.size() > order_limit) waiting_.pop_front();
  next();
}

void copy_core::peer_up(node_id peer) {
  peers_.insert(peer);
  next();
}

void copy_core::peer_down(node_id peer) {
  peers_.erase(peer);
  std::erase_if(waiting_, [&](const keep_order& order) { return order.source == peer; });
}

void copy_core::next() {
  if (working_) return;
  // The conductor may know of a source that has not introduced itself here yet: its orders wait.
  const auto order =
      std::ranges::find_if(waiting_, [&](const keep_order& o) { return peers_.contains(o.source); });
  if (order == waiting_.end()) return;
  std::vector<block_name> chain;
  for (const auto& block : order->blocks) chain.push_back(block.name);
  const auto count = static_cast<std::uint32_t>(chain.size());
  working_ = copy{order->source, count, block_claim{{ids_.next(), 0}, std::move(chain), count, count}};
  waiting_.erase(order);
  actions_.emplace_back(copy_action::pin{working_->claim.owner(), working_->claim.pin(all_blocks)});
}

void copy_core::pinned(std::uint64_t owner, std::uint32_t turn, const pinned_slots& held) {
  if (!is_at_work(owner)) return;
  const auto missing = working_->claim.pinned(turn, held);
  if (!missing || *missing == 0) return done();
  actions_.emplace_back(copy_action::reserve{owner, *missing});
}

void copy_core::reserved(std::uint64_t owner, std::span<const slot_index> slots) {
  if (!is_at_work(owner)) return;
  working_->claim.reserved(slots);
  actions_.emplace_back(copy_action::fetch{owner, working_->claim.fetch(working_->source, working_->blocks)});
}

void copy_core::refused(std::uint64_t owner) {
  if (is_at_work(owner)) done();
}

void copy_core::fetched(std::uint64_t owner, const remote_blocks& got) {
  if (!is_at_work(owner)) return;
  auto items = working_->claim.adopt(got);
  if (!items.empty()) actions_.emplace_back(copy_action::commit{owner, std::move(items)});
  done();
}

void copy_core::done() {
  actions_.emplace_back(copy_action::release{working_->claim.owner()});
  working_.reset();
  next();
}

void copy_core::close() {
  waiting_.clear();
  working_.reset();
  actions_.clear();
}

std::optional<std::uint64_t> copy_core::at_work() const {
  return working_ ? std::optional{working_->claim.owner()} : std::nullopt;
}

}  // namespace mooncaf
