#include "actors/pool_keeper.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <utility>

#include "actors/stray_errors.hpp"

namespace mooncaf {

namespace {

/// Blocks of one read: enough to fill a link, few enough to hold little while it is under way.
constexpr std::size_t blocks_at_once = 32;
/// Orders beyond that are dropped, oldest first: a copy that nobody made is a miss, and the newest blocks are
/// the likeliest to be used.
constexpr std::size_t order_limit = 4096;
constexpr auto shard_limit = std::chrono::seconds(10);
constexpr auto tick_interval = std::chrono::milliseconds(500);

}  // namespace

pool_keeper::pool_keeper(caf::actor_config& config, context_ptr context, cache_shard_actor shard,
                         messenger_actor messenger)
    : pool_keeper_actor::base(config),
      context_(std::move(context)),
      shard_(std::move(shard)),
      messenger_(std::move(messenger)),
      ids_(context_->id, request_issuer::pool_keeper) {}

pool_keeper_actor::behavior_type pool_keeper::make_behavior() {
  outlive_stray_errors(*this);
  delayed_send(this, tick_interval, tick_atom_v);
  return {
      [this](keep_atom, const keep_order& order) { take(order); },
      [this](peer_up_atom, node_id peer) {
        peers_.insert(peer);
        next();
      },
      [this](peer_down_atom, node_id peer) {
        peers_.erase(peer);
        std::erase_if(waiting_, [&](const keep_order& order) { return order.source == peer; });
      },
      [this](tick_atom) {
        if (working_) send(shard_, renew_atom_v, std::vector<std::uint64_t>{working_->claim.owner()});
        delayed_send(this, tick_interval, tick_atom_v);
      },
  };
}

void pool_keeper::on_exit() {
  waiting_.clear();
  working_ = nullptr;
  shard_ = nullptr;
  messenger_ = nullptr;
}

void pool_keeper::take(keep_order order) {
  for (std::size_t at = 0; at < order.blocks.size(); at += blocks_at_once) {
    const auto end = std::min(order.blocks.size(), at + blocks_at_once);
    waiting_.push_back({order.source,
                        {order.blocks.begin() + static_cast<std::ptrdiff_t>(at),
                         order.blocks.begin() + static_cast<std::ptrdiff_t>(end)}});
  }
  while (waiting_.size() > order_limit) waiting_.pop_front();
  next();
}

void pool_keeper::next() {
  if (working_) return;
  // The conductor may know of a source that has not introduced itself here yet: its orders wait.
  const auto order =
      std::ranges::find_if(waiting_, [&](const keep_order& o) { return peers_.contains(o.source); });
  if (order == waiting_.end()) return;
  auto work = std::make_shared<copy>();
  work->order = std::move(*order);
  waiting_.erase(order);
  working_ = work;
  std::vector<chain_block> chain;
  for (const auto& block : work->order.blocks) chain.push_back({block.key, block.parent, block.depth});
  const auto count = static_cast<std::uint32_t>(chain.size());
  work->claim = block_claim{{ids_.next(), 0}, std::move(chain), count, count};
  auto what = work->claim.pin(all_blocks);
  request(shard_, shard_limit, pin_atom_v, work->claim.owner(), std::move(what.keys), what.from_ssd)
      .then(
          [this, work, turn = what.turn](const pinned_slots& held) {
            const auto missing = work->claim.pinned(turn, held);
            if (missing == 0u) return done(work);
            reserve(work, *missing);
          },
          [this, work](const caf::error&) { done(work); });
}

void pool_keeper::reserve(const copy_ptr& work, std::uint32_t count) {
  request(shard_, shard_limit, reserve_atom_v, work->claim.owner(), count)
      .then(
          [this, work](const std::vector<slot_index>& slots) {
            work->claim.reserved(slots);
            fetch(work);
          },
          [this, work](const caf::error&) { done(work); });
}

void pool_keeper::fetch(const copy_ptr& work) {
  const auto all = static_cast<std::uint32_t>(work->order.blocks.size());
  // The messenger bounds it. Until it answers, blocks may still arrive in these slots.
  request(messenger_, caf::infinite, fetch_atom_v, work->claim.fetch(work->order.source, all))
      .then([this, work](const remote_blocks& got) { keep(work, got); },
            [this, work](const caf::error&) { done(work); });
}

void pool_keeper::keep(const copy_ptr& work, const remote_blocks& got) {
  auto items = work->claim.adopt(got);
  if (!items.empty()) send(shard_, commit_atom_v, work->claim.owner(), std::move(items));
  done(work);
}

void pool_keeper::done(const copy_ptr& work) {
  send(shard_, release_atom_v, work->claim.owner());
  working_ = nullptr;
  next();
}

}  // namespace mooncaf
