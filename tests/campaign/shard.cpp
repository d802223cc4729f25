#include "tests/campaign/shard.hpp"

#include <cstdlib>

namespace mooncaf::campaign {

namespace {

constexpr std::size_t most_slots = 64;

/// Memory that is never touched: the store hands out places in it.
tiered_store store_of(std::size_t slots) {
  alignas(block_allocator::alignment) static std::byte memory[most_slots * block_allocator::alignment];
  auto places = block_allocator::create({memory, slots * block_allocator::alignment}, 1);
  if (!places) std::abort();
  return {std::move(*places), {}};
}

}  // namespace

shard::shard(network& net, timeline& time, dice& luck, process self, std::size_t slots)
    : net_(net), time_(time), luck_(luck), self_(self), store_(store_of(slots)), contents_(slots) {}

void shard::soon(network::action what) {
  last_ = std::max(last_, time_.now() + luck_.between(1us, luck_.chance(5) ? 20ms : 200us));
  net_.in(self_, last_ - time_.now(), std::move(what));
}

void shard::pin(std::uint64_t owner, pin_order what, std::function<void(const pinned_slots&)> answered) {
  soon([this, owner, what = std::move(what), answered = std::move(answered)] {
    const auto held = store_.pin(what.keys, owner_id{owner}, deadline(), what.from_ssd);
    pinned_slots out;
    if (held) {
      for (const auto& block : held->pinned.blocks) {
        out.slots.push_back(block.slot.index);
        out.checksums.push_back(block.checksum);
      }
    }
    soon([out = std::move(out), answered] { answered(out); });
  });
}

void shard::pin_remote(std::uint64_t reader, const block_keys_t& keys,
                       std::function<void(const remote_blocks&)> answered) {
  soon([this, reader, keys, answered = std::move(answered)] {
    const auto held = store_.pin(keys, owner_id{reader}, deadline());
    remote_blocks out;
    if (held) {
      for (const auto& block : held->pinned.blocks)
        out.blocks.push_back({block.key, block.slot.index, block.checksum});
    }
    answered(out);
  });
}

void shard::reserve(std::uint64_t owner, std::uint32_t count,
                    std::function<void(const std::vector<slot_index>&)> answered,
                    std::function<void(const error&)> refused) {
  soon([this, owner, count, answered = std::move(answered), refused = std::move(refused)] {
    const auto slots = store_.reserve(owner_id{owner}, count, deadline());
    if (!slots) return soon([why = slots.error(), refused] { refused(why); });
    std::vector<slot_index> out;
    for (const auto& slot : *slots) out.push_back(slot.index);
    soon([out = std::move(out), answered] { answered(out); });
  });
}

void shard::commit(std::uint64_t owner, std::vector<commit_item> items) {
  soon([this, owner, items = std::move(items)] {
    for (const auto& item : items) {
      static_cast<void>(
          store_.commit(owner_id{owner}, item.slot, {item.key, item.parent, item.depth}, item.checksum));
    }
  });
}

void shard::renew(std::vector<std::uint64_t> owners) {
  soon([this, owners = std::move(owners)] {
    for (const auto owner : owners) store_.renew(owner_id{owner}, deadline());
  });
}

void shard::fence(std::uint64_t owner) {
  soon([this, owner] { store_.fence(owner_id{owner}); });
}

void shard::confirm(std::uint64_t owner) {
  soon([this, owner] { store_.confirm(owner_id{owner}); });
}

void shard::release(std::uint64_t owner) {
  soon([this, owner] { store_.release_all(owner_id{owner}); });
}

void shard::expire() {
  soon([this] { store_.expire(time_.now()); });
}

}  // namespace mooncaf::campaign
