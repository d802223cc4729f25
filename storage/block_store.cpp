#include "storage/block_store.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace mooncaf {

block_store::block_store(block_allocator slots, block_store_options options,
                         std::shared_ptr<prefix_tree> tree)
    : slots_(std::move(slots)),
      records_(slots_.total()),
      tree_(tree ? std::move(tree) : std::make_shared<prefix_tree>()),
      dram_(tree_->open(storage_tier::dram, options.eviction)) {
  tree_->tell({storage_tier::device, storage_tier::dram, storage_tier::ssd}, options.max_pending_events);
  count_[static_cast<int>(state::free)] = slots_.total();
}

// ---- owners and their slots ----

result<block_store::owner_record*> block_store::obtain(owner_id owner, time_point deadline) {
  if (!owner) return fail(ec::invalid_argument, "owner 0 stands for nobody and can hold no block");
  owner_record& record = owners_[owner];
  if (record.ended) {
    return fail(ec::cancelled, "owner " + to_string(owner) + " has ended and waits for its peers to confirm");
  }
  record.deadline = std::max(record.deadline, deadline);
  return &record;
}

void block_store::forget_if_idle(owner_id owner) {
  const auto it = owners_.find(owner);
  if (it == owners_.end() || !it->second.slots.empty() || !it->second.pins.empty()) return;
  // While the owner lives, a fence outlives the slots it was put up for: its next slots must be fenced, too.
  if (it->second.fenced && !it->second.ended) return;
  owners_.erase(it);
}

// All slots or none, so that two prompts which each have half of their slots cannot block each other.
result<std::vector<slot_ref>> block_store::reserve(owner_id owner, std::size_t count, time_point deadline) {
  auto record = obtain(owner, deadline);
  if (!record) return fail(record.error());
  // Blocks below a pinned one cannot go either, so this bound is optimistic; it spares the cache from being
  // emptied for a wish that no eviction could grant.
  const std::size_t reachable = slots_.free_count() + dram_.size() - dram_.pinned();
  while (count <= reachable && slots_.free_count() < count && evict_one()) {
  }
  if (slots_.free_count() < count) {
    ++stats_.reserve_failures;
    forget_if_idle(owner);
    const auto now = integrity();
    return fail(ec::out_of_space, std::to_string(count) + " blocks wanted, " + std::to_string(now.free) +
                                      " of " + std::to_string(now.total) + " free, " +
                                      std::to_string(now.pinned) + " pinned, " +
                                      std::to_string(now.reserved + now.private_) + " reserved, " +
                                      std::to_string(now.quarantined) + " quarantined");
  }
  std::vector<slot_ref> given;
  given.reserve(count);
  auto& held = (*record)->slots;
  for (std::size_t i = 0; i < count; ++i) {
    const slot_ref slot = *slots_.allocate();
    set_state(slot.index, state::reserved);
    records_[slot.index].owner = owner;
    records_[slot.index].held_at = static_cast<std::uint32_t>(held.size());
    held.push_back(slot.index);
    given.push_back(slot);
  }
  forget_if_idle(owner);
  return given;
}

// A block appears only behind its parent: a prefix with a hole is of no use.
result<commit_outcome> block_store::commit(owner_id owner, std::uint32_t slot, const block_name& name,
                                           std::uint64_t checksum) {
  if (slot >= records_.size() || !owner || records_[slot].owner != owner) {
    return fail(ec::not_found, "slot " + std::to_string(slot) + " is not held by owner " + to_string(owner));
  }
  slot_record& record = records_[slot];
  if (record.at == state::committed && tree_->key(record.handle) == name.key)
    return commit_outcome::published;
  if (record.at != state::reserved) {
    return fail(ec::not_found, "slot " + std::to_string(slot) + " of owner " + to_string(owner) +
                                   " is not reserved any more, so it cannot be committed");
  }
  const auto parent = name.depth == 0 ? prefix_tree::none : tree_->find(name.parent);
  const bool follows = parent != prefix_tree::none && tree_->shown(parent).meets(kept);
  if (follows && tree_->depth(parent) + 1 != name.depth) {
    return fail(ec::invalid_argument, "block " + to_string(name.key) + " at depth " +
                                          std::to_string(name.depth) + " follows a block at depth " +
                                          std::to_string(tree_->depth(parent)));
  }
  if (dram_.find(name.key) != prefix_tree::none) {
    set_state(slot, state::private_);
    ++stats_.duplicates;
    return commit_outcome::duplicate;
  }
  if (name.depth != 0 && !follows) {
    set_state(slot, state::private_);
    ++stats_.orphans;
    return commit_outcome::orphan;
  }
  set_state(slot, state::committed);
  const auto known = tree_->find(name.key);
  const bool comes_down = known != prefix_tree::none && tree_->shown(known, storage_tier::device);
  record.handle = dram_.insert(name.key, name.parent, name.depth, comes_down ? 0 : tree_->next_time());
  content_of(record.handle) = {checksum, slot};
  dram_.pin(record.handle);
  ++stats_.commits;
  return commit_outcome::published;
}

block_store::content& block_store::content_of(prefix_tree::handle h) {
  if (h >= contents_.size()) contents_.resize(tree_->bound());
  return contents_[h];
}

void block_store::detach(owner_record& owner, std::uint32_t slot) {
  const std::uint32_t at = records_[slot].held_at;
  const std::uint32_t last = owner.slots.back();
  owner.slots[at] = last;
  records_[last].held_at = at;
  owner.slots.pop_back();
  records_[slot].owner = {};
}

/// Gives up one slot of an owner, which may have ended, in whatever state the slot is.
void block_store::let_go(owner_record& owner, std::uint32_t slot) {
  if (owner.fenced) {
    // A published block stays pinned: were it evicted, its slot could be another's while the peer still
    // writes.
    if (records_[slot].at != state::committed) set_state(slot, state::quarantined);
    return;
  }
  detach(owner, slot);
  if (records_[slot].at == state::committed) {
    dram_.unpin(records_[slot].handle);
  } else {
    free_slot(slot);
  }
}

bool block_store::hand_over(owner_id from, owner_id to, std::span<const std::uint32_t> slots,
                            time_point deadline) {
  const auto giver = owners_.find(from);
  if (giver == owners_.end() || giver->second.ended || giver->second.fenced) return false;
  for (const auto slot : slots) {
    if (slot >= records_.size() || records_[slot].owner != from) return false;
    if (records_[slot].at != state::reserved && records_[slot].at != state::private_) return false;
  }
  auto taker = obtain(to, deadline);
  if (!taker) return false;
  // Not `giver`: a new owner may have moved the others.
  auto& held = owners_.at(from);
  for (const auto slot : slots) {
    detach(held, slot);
    records_[slot].owner = to;
    records_[slot].held_at = static_cast<std::uint32_t>((*taker)->slots.size());
    (*taker)->slots.push_back(slot);
  }
  forget_if_idle(from);
  return true;
}

void block_store::release(owner_id owner, std::span<const std::uint32_t> slots) {
  const auto it = owners_.find(owner);
  if (it == owners_.end() || it->second.ended) return;
  for (const std::uint32_t slot : slots)
    if (slot < records_.size() && records_[slot].owner == owner) let_go(it->second, slot);
  forget_if_idle(owner);
}

void block_store::end(owner_id id, owner_record& owner) {
  for (const pin_id pin : std::exchange(owner.pins, {})) {
    auto node = pins_.extract(pin);
    for (const std::uint32_t slot : node.mapped().slots) dram_.unpin(records_[slot].handle);
  }
  owner.ended = true;
  for (const std::uint32_t slot : std::vector(owner.slots)) let_go(owner, slot);
  forget_if_idle(id);
}

void block_store::release_all(owner_id owner) {
  if (const auto it = owners_.find(owner); it != owners_.end()) end(owner, it->second);
}

bool block_store::renew(owner_id owner, time_point deadline) {
  const auto it = owners_.find(owner);
  if (it == owners_.end() || it->second.ended) return false;
  it->second.deadline = std::max(it->second.deadline, deadline);
  return true;
}

std::vector<owner_id> block_store::expire(time_point now) {
  std::vector<owner_id> late;
  for (const auto& [id, record] : owners_)
    if (!record.ended && record.deadline < now) late.push_back(id);
  for (const owner_id id : late) release_all(id);
  stats_.expired_owners += late.size();
  return late;
}

void block_store::fence(owner_id owner) {
  // Only an owner of slots can be written to; a fence for any other would stay for ever.
  if (const auto it = owners_.find(owner); it != owners_.end()) it->second.fenced = true;
}

void block_store::confirm(owner_id owner) {
  const auto it = owners_.find(owner);
  if (it == owners_.end()) return;
  owner_record& record = it->second;
  record.fenced = false;
  for (const std::uint32_t slot : std::vector(record.slots))
    if (record.ended || records_[slot].at == state::quarantined) let_go(record, slot);
  forget_if_idle(owner);
}

// ---- published blocks ----

held_block block_store::at(prefix_tree::handle h) const noexcept {
  const auto where = tree_->shown(h);
  const auto& c = contents_[h];
  return {tree_->name(h), c.checksum, where.has(storage_tier::dram) ? c.slot : held_block::no_slot,
          where.has(storage_tier::ssd)};
}

std::optional<held_block> block_store::find(const block_key& key) const noexcept {
  const auto h = tree_->find(key);
  if (h == prefix_tree::none || !tree_->shown(h).meets(kept)) return std::nullopt;
  return at(h);
}

void block_store::set_checksum(prefix_tree::handle h, std::uint64_t checksum) {
  content_of(h).checksum = checksum;
}

held_prefix block_store::match(std::span<const block_key> keys) const noexcept {
  held_prefix found;
  for (const block_key& key : keys) {
    const auto h = tree_->find(key);
    if (h == prefix_tree::none || !tree_->shown(h).meets(kept)) break;
    if (found.ssd == 0 && dram_.here(h)) {
      ++found.dram;
    } else {
      ++found.ssd;
    }
  }
  return found;
}

result<pin_id> block_store::open_pin(owner_id owner, time_point deadline) {
  auto record = obtain(owner, deadline);
  if (!record) return fail(record.error());
  const pin_id id{next_pin_++};
  pins_[id].owner = owner;
  (*record)->pins.push_back(id);
  return id;
}

void block_store::hold(prefix_tree::handle h, pin_record& pin) {
  dram_.pin(h);
  pin.slots.push_back(contents_[h].slot);
}

bool block_store::pin_one(const block_key& key, pin_id into) {
  const auto h = dram_.find(key);
  const auto pin = pins_.find(into);
  if (h == prefix_tree::none || pin == pins_.end()) return false;
  hold(h, pin->second);
  return true;
}

// The prompt was used as a whole, at one moment, wherever its blocks lie: so they stay together in the order
// in which blocks leave.
result<pinned_blocks> block_store::pin(std::span<const block_key> keys, owner_id owner, time_point deadline,
                                       std::size_t max_to_promote) {
  auto record = obtain(owner, deadline);
  if (!record) return fail(record.error());
  pinned_blocks found;
  pin_record* pin = nullptr;
  const std::uint64_t now = tree_->next_time();  // one moment for all: the prompt was used as a whole
  std::size_t at = 0;
  bool all_held = true;  // every block up to here is in memory or on SSD
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto h = tree_->find(keys[i]);
    if (h == prefix_tree::none) break;
    const auto where = tree_->shown(h);
    if (where.empty()) break;
    tree_->touch(h, now);
    all_held = all_held && where.meets(kept);
    if (!all_held) continue;
    if (where.has(storage_tier::dram) && found.to_promote.empty() && at == i) {
      if (!pin) {
        found.id = *open_pin(owner, deadline);
        pin = &pins_.find(found.id)->second;
      }
      hold(h, *pin);
      found.blocks.push_back({keys[i], slots_.at(contents_[h].slot), contents_[h].checksum});
      at = i + 1;
    } else if (found.to_promote.size() < max_to_promote) {
      found.to_promote.push_back(keys[i]);
      at = i + 1;
    }
  }
  stats_.hits_dram += found.blocks.size();
  stats_.hits_ssd += found.to_promote.size();
  stats_.misses += keys.size() - at;
  forget_if_idle(owner);
  return found;
}

void block_store::release(pin_id pin) {
  auto node = pins_.extract(pin);
  if (node.empty()) return;
  for (const std::uint32_t slot : node.mapped().slots) dram_.unpin(records_[slot].handle);
  const owner_id owner = node.mapped().owner;
  std::erase(owners_.find(owner)->second.pins, pin);
  forget_if_idle(owner);
}

// ---- for the tier below ----

std::optional<block_key> block_store::next_victim() const noexcept {
  const auto h = dram_.victim();
  if (h == prefix_tree::none) return std::nullopt;
  return tree_->key(h);
}

bool block_store::evict_one() {
  const auto h = dram_.victim();
  if (h == prefix_tree::none) return false;
  const std::uint32_t slot = contents_[h].slot;
  ++stats_.evictions;
  if (!tree_->shown(h, storage_tier::ssd)) ++stats_.evictions_lost;
  dram_.erase(h);
  free_slot(slot);
  return true;
}

// ---- memory that something else may have ----

std::vector<std::uint32_t> block_store::withhold(std::size_t count, std::size_t spare) {
  while (slots_.free_count() < count + spare && evict_one()) {
  }
  std::vector<std::uint32_t> taken;
  for (; taken.size() < count && slots_.free_count() > 0;) {
    const auto slot = slots_.allocate()->index;
    set_state(slot, state::withheld);
    taken.push_back(slot);
  }
  withheld_.insert(withheld_.end(), taken.begin(), taken.end());
  return taken;
}

std::optional<std::uint64_t> block_store::coldest_use() const noexcept {
  const auto h = dram_.victim();
  if (h == prefix_tree::none) return std::nullopt;
  return tree_->last_used(h);
}

void block_store::give_back(std::size_t count) {
  for (; count > 0 && !withheld_.empty(); --count) {
    free_slot(withheld_.back());
    withheld_.pop_back();
  }
}

// ---- slots ----

void block_store::set_state(std::uint32_t slot, state to) {
  --count_[static_cast<int>(records_[slot].at)];
  ++count_[static_cast<int>(to)];
  records_[slot].at = to;
}

void block_store::free_slot(std::uint32_t slot) {
  set_state(slot, state::free);
  records_[slot] = slot_record{};
  // Cannot fail: the state machine frees a slot only once, which `consistent` checks.
  (void)slots_.free(slot);
}

slot_counts block_store::integrity() const noexcept {
  slot_counts n;
  n.total = slots_.total();
  n.free = count_[static_cast<int>(state::free)];
  n.reserved = count_[static_cast<int>(state::reserved)];
  n.committed = count_[static_cast<int>(state::committed)];
  n.private_ = count_[static_cast<int>(state::private_)];
  n.quarantined = count_[static_cast<int>(state::quarantined)];
  n.withheld = count_[static_cast<int>(state::withheld)];
  n.pinned = dram_.pinned();
  n.owners = owners_.size();
  n.pins = pins_.size();
  return n;
}

// Recounts from the slots, without any of the counters that it checks.
bool block_store::consistent(std::string* why) const {
  const auto wrong = [why](std::string text) {
    if (why) *why = std::move(text);
    return false;
  };
  std::size_t count[states] = {};
  std::vector<std::uint32_t> expected_pins(records_.size(), 0);
  for (const auto& [id, pin] : pins_) {
    const auto owner = owners_.find(pin.owner);
    if (owner == owners_.end()) return wrong("pin " + to_string(id) + " has no owner");
    if (std::count(owner->second.pins.begin(), owner->second.pins.end(), id) != 1)
      return wrong("pin " + to_string(id) + " is not listed once by its owner");
    for (const auto slot : pin.slots) ++expected_pins[slot];
  }
  std::size_t held = 0, listed_pins = 0;
  for (const auto& [id, owner] : owners_) {
    listed_pins += owner.pins.size();
    held += owner.slots.size();
    if (owner.slots.empty() && owner.pins.empty() && !owner.fenced)
      return wrong("idle owner " + to_string(id));
    for (std::size_t i = 0; i < owner.slots.size(); ++i) {
      const auto& r = records_[owner.slots[i]];
      if (r.owner != id || r.held_at != i) return wrong("slot list of owner " + to_string(id) + " is off");
    }
  }
  if (listed_pins != pins_.size()) return wrong("an owner lists a pin that does not exist");
  std::size_t owned = 0;
  for (std::uint32_t i = 0; i < records_.size(); ++i) {
    const auto& r = records_[i];
    const std::string name = "slot " + std::to_string(i);
    ++count[static_cast<int>(r.at)];
    owned += r.owner ? 1 : 0;
    if (slots_.allocated(i) == (r.at == state::free)) return wrong(name + " disagrees with the allocator");
    if (r.at != state::committed) {
      if (expected_pins[i] != 0) return wrong(name + " is pinned but not committed");
      if ((r.at == state::free || r.at == state::withheld) == bool(r.owner))
        return wrong(name + " has the wrong owner for its state");
      continue;
    }
    if (r.handle >= tree_->bound() || !dram_.here(r.handle) || !dram_.shown(r.handle) ||
        contents_[r.handle].slot != i)
      return wrong(name + " is committed but not in the tree");
    if (dram_.pins(r.handle) != expected_pins[i] + (r.owner ? 1 : 0))
      return wrong(name + " has a wrong pin count");
  }
  if (withheld_.size() != count[static_cast<int>(state::withheld)])
    return wrong("withheld slots do not add up");
  for (std::size_t s = 0; s < states; ++s)
    if (count[s] != count_[s]) return wrong("slot counts do not add up");
  if (owned != held) return wrong("slots name an owner that does not list them");
  if (dram_.size() != count[static_cast<int>(state::committed)] || dram_.shown_count() != dram_.size())
    return wrong("slots and tree disagree");
  if (!tree_->consistent()) return wrong("the tree is inconsistent");
  return true;
}

}  // namespace mooncaf
