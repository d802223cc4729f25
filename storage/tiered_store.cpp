#include "storage/tiered_store.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {
namespace {

/// The tiers above the SSD that give blocks back to it: the ones that write blocks when these leave.
tier_set above_ssd(const tiered_store_options& o) {
  if (!writes_on_eviction(o.write)) return {};
  return tier_set{storage_tier::dram}.with(storage_tier::device, o.device_gives_back);
}

}  // namespace

tiered_store::tiered_store(block_allocator slots, tiered_store_options options,
                           std::shared_ptr<prefix_tree> tree)
    : options_(options),
      store_(std::move(slots), options_.dram, std::move(tree)),
      ssd_(store_.tree().open(storage_tier::ssd, options_.ssd_eviction, above_ssd(options_))) {
  const std::size_t total = store_.integrity().total;
  options_.max_writes = std::clamp<std::size_t>(options_.max_writes, 1, std::max<std::size_t>(1, total / 4));
  options_.max_reads = std::clamp<std::size_t>(options_.max_reads, 1, std::max<std::size_t>(1, total / 2));
  if (options_.free_ahead == 0) options_.free_ahead = total / 16;
  options_.free_ahead = std::min(options_.free_ahead, total / 2);
}

void tiered_store::recover(std::span<const ssd_block> found) {
  const auto lock = locked();
  std::vector<const ssd_block*> ordered;
  ordered.reserve(found.size());
  for (const auto& b : found) ordered.push_back(&b);
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto* a, const auto* b) { return a->name.depth < b->name.depth; });
  const std::uint64_t now =
      store_.tree().next_time();  // the order of last use is not known; of equal times the deeper block goes
                                  // first
  for (const auto* b : ordered) {
    const auto& name = b->name;
    const auto parent = name.depth == 0 ? std::nullopt : store_.find(name.parent);
    if (name.depth != 0 && (!parent || parent->name.depth + 1 != name.depth)) {
      queue_erase(name);
      continue;
    }
    store_.set_checksum(ssd_.insert(name.key, name.parent, name.depth, now), b->checksum);
  }
  while (ssd_.size() > options_.ssd_capacity_blocks && evict_from_ssd()) {
  }
}

// ---- as in block_store ----

void tiered_store::release(owner_id owner, std::span<const std::uint32_t> slots) {
  const auto lock = locked();
  store_.release(owner, slots);
}

void tiered_store::release(pin_id pin) {
  const auto lock = locked();
  store_.release(pin);
}

void tiered_store::confirm(owner_id owner) {
  const auto lock = locked();
  store_.confirm(owner);
}

held_prefix tiered_store::match(std::span<const block_key> keys) const {
  const auto lock = locked();
  return store_.match(keys);
}

std::vector<block_event> tiered_store::drain_events() {
  const auto lock = locked();
  return store_.drain_events();
}

block_snapshot tiered_store::snapshot() const {
  const auto lock = locked();
  return store_.snapshot();
}

std::vector<owner_id> tiered_store::expire(time_point now) {
  const auto lock = locked();
  now_ = now;
  used_.note(store_.tree().time(), now);
  if (refusal_.reason() && !refusal_.holds(now_) && io_.writes() == 0) {
    write_wanted();
    evict_ahead();
  }
  auto ended = store_.expire(now);
  if (!ended.empty()) drop_unwanted_reads();
  return ended;
}

void tiered_store::release_all(owner_id owner) {
  const auto lock = locked();
  store_.release_all(owner);
  drop_unwanted_reads();
}

result<std::vector<slot_ref>> tiered_store::reserve(owner_id owner, std::size_t count, time_point deadline) {
  const auto lock = locked();
  make_room_without_loss(count);
  auto slots = store_.reserve(owner, count, deadline);
  evict_ahead();
  return slots;
}

result<commit_outcome> tiered_store::commit(owner_id owner, std::uint32_t slot, const block_name& name,
                                            std::uint64_t checksum) {
  const auto lock = locked();
  auto outcome = store_.commit(owner, slot, name, checksum);
  if (outcome && *outcome == commit_outcome::published && writes_on_commit(options_.write)) {
    want_saved(name.key);
  }
  return outcome;
}

// Everything that is in memory is pinned before a slot is taken for a read, lest the read evicts it.
result<pin_reply> tiered_store::pin(std::span<const block_key> keys, owner_id owner, time_point deadline,
                                    std::size_t max_from_ssd) {
  const auto lock = locked();
  auto pinned = store_.pin(keys, owner, deadline, max_from_ssd);
  if (!pinned) return fail(pinned.error());
  pin_reply reply{{}, std::move(*pinned)};
  write_what_is_used(reply.pinned);
  if (reply.pinned.to_promote.empty()) return reply;
  if (!reply.pinned.id) {
    auto opened = store_.open_pin(owner, deadline);
    if (!opened) return fail(opened.error());
    reply.pinned.id = *opened;
  }
  ticket_record ticket{owner, reply.pinned.id, reply.pinned.blocks, reply.pinned.blocks.size()};
  const ticket_id id{next_ticket_++};
  // Blocks in DRAM behind the first gap are pinned before any slot is taken for the gap, lest that evicts
  // them.
  for (const auto& key : reply.pinned.to_promote) (void)store_.pin_one(key, ticket.pin);
  for (const auto& key : reply.pinned.to_promote) {
    const auto e = store_.find(key);
    if (e && e->in_dram()) {
      ticket.blocks.push_back({key, store_.slot(e->slot), e->checksum});
      continue;
    }
    if (!e || !join_promotion(*e, id, ticket.blocks.size())) break;
    ticket.blocks.push_back({key, {}, 0});
    ++ticket.missing;
  }
  if (ticket.missing == 0) {
    reply.pinned.to_promote.clear();
    if (reply.pinned.blocks.empty()) store_.release(std::exchange(reply.pinned.id, {}));
    return reply;
  }
  reply.ticket = id;
  tickets_.emplace(id, std::move(ticket));
  return reply;
}

std::optional<std::pair<pin_id, std::uint32_t>> tiered_store::hold(std::span<const block_key> keys,
                                                                   owner_id owner) {
  const auto lock = locked();
  const auto pin = store_.open_pin(owner, never);
  if (!pin) return std::nullopt;
  std::uint32_t held = 0;
  while (held < keys.size() && store_.pin_one(keys[held], *pin)) ++held;
  if (held > 0) return std::pair{*pin, held};
  store_.release(*pin);
  return std::nullopt;
}

result<ticket_id> tiered_store::load(std::span<const block_key> keys, std::span<const std::uint32_t> slots,
                                     owner_id owner, time_point deadline) {
  const auto lock = locked();
  for (const auto& key : keys) {
    const auto e = store_.find(key);
    if (!e || e->in_dram() || !e->on_ssd || promotions_.contains(key))
      return fail(ec::unavailable, "block " + to_string(key) + " is not on SSD alone");
  }
  const auto pin = store_.open_pin(owner, deadline);
  if (!pin) return fail(pin.error());
  if (keys.empty() || keys.size() != slots.size() || !store_.hand_over(owner, disk_owner, slots, never)) {
    store_.release(*pin);
    return fail(ec::not_found, "not all of the slots are reserved by owner " + to_string(owner));
  }
  store_.count_read(keys.size());
  const ticket_id id{next_ticket_++};
  ticket_record ticket{owner, *pin, std::vector<pinned_block>(keys.size()), 0, keys.size(), true};
  tickets_.emplace(id, std::move(ticket));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto e = *store_.find(keys[i]);
    store_.tree().keep_warm(ssd_.find(keys[i]), store_.tree().next_time());  // its pin was the use
    read(id, i, {0, io_job::kind::read, {e.name, e.checksum}, store_.slot(slots[i]), id});
  }
  return id;
}

std::vector<ready_pin> tiered_store::take_ready() { return std::exchange(ready_, {}); }

// ---- SSD to DRAM ----

/// Lets a ticket wait for a block, and begins its read if none is under way.
bool tiered_store::join_promotion(const held_block& e, ticket_id ticket, std::size_t position) {
  const ssd_block block{e.name, e.checksum};
  if (const auto it = promotions_.find(block.name.key); it != promotions_.end()) {
    ++stats_.promotions_shared;
    it->second.push_back({ticket, position});
    return true;
  }
  if (io_.reads() >= options_.max_reads) return false;
  const auto h = ssd_.find(block.name.key);
  if (h == prefix_tree::none) return false;
  // Pinned first: taking the slot may evict from DRAM, never from SSD, but later steps may.
  ssd_.pin(h);
  const auto slot = store_.reserve(disk_owner, 1, never);
  ssd_.unpin(h);
  if (!slot) return false;
  read(ticket, position, {0, io_job::kind::read, block, slot->front(), {}});
  return true;
}

/// Queues a read for a ticket. @pre the slot is the disk's, and no read of the block is under way.
void tiered_store::read(ticket_id ticket, std::size_t position, io_job job) {
  const auto key = job.block.name.key;
  ssd_.pin(ssd_.find(key));
  io_.add(job);
  promotions_[key].push_back({ticket, position});
}

/// Takes back queued reads without an owner that lives.
void tiered_store::drop_unwanted_reads() {
  io_.drop_reads([&](const io_job& job) {
    const auto waiting = promotions_.find(job.block.name.key);
    if (std::ranges::any_of(waiting->second,
                            [&](const waiter& w) { return store_.pinned(tickets_.at(w.ticket).pin); }))
      return false;
    finish_read(job, {ec::cancelled, "nobody waits for it"});
    return true;
  });
}

/// Whether other tickets have joined a load that was given up: then the block is read all the same, into the
/// same slot.
bool tiered_store::wanted_by_others(const io_job& job) {
  auto& waiting = promotions_.find(job.block.name.key)->second;
  const auto own = [&](const waiter& w) { return w.ticket == job.load; };
  if (std::ranges::none_of(
          waiting, [&](const waiter& w) { return !own(w) && store_.pinned(tickets_.at(w.ticket).pin); }))
    return false;
  std::erase_if(waiting, own);
  if (--tickets_.at(job.load).missing == 0) resolve(job.load);
  io_.add({0, io_job::kind::read, job.block, job.slot, {}});
  return true;
}

void tiered_store::finish_read(const io_job& job, const error& failure) {
  const bool ok = failure.code == ec::none;
  const block_name& name = job.block.name;
  ssd_.unpin(ssd_.find(name.key));
  bool published = false;
  if (ok) {
    // A duplicate is as good: the block was computed in the meantime.
    const auto outcome = store_.commit(disk_owner, job.slot.index, name, job.block.checksum);
    published = outcome && *outcome == commit_outcome::published;
    ++stats_.promotions;
  } else if (failure.code != ec::cancelled) {
    ++stats_.promotion_failures;
    ++damaged_;
    ssd_.erase(ssd_.find(name.key));
    queue_erase(name);
  }
  const auto waiting = promotions_.extract(name.key);
  for (const waiter& w : waiting.mapped()) {
    ticket_record& ticket = tickets_.find(w.ticket)->second;
    const auto e = store_.find(name.key);
    if (e && store_.pin_one(name.key, ticket.pin)) {
      ticket.blocks[w.position] = {name.key, store_.slot(e->slot), e->checksum};
    }
    if (ticket.loads && !published && store_.pinned(ticket.pin))
      (void)store_.hand_over(disk_owner, ticket.owner, {&job.slot.index, 1}, time_point{});
    if (--ticket.missing == 0) resolve(w.ticket);
  }
  store_.release(disk_owner, {&job.slot.index, 1});
}

void tiered_store::resolve(ticket_id id) {
  auto node = tickets_.extract(id);
  ticket_record& ticket = node.mapped();
  if (!store_.pinned(ticket.pin)) return;  // its owner has ended
  auto& blocks = ticket.blocks;
  const auto gap = std::find_if(blocks.begin(), blocks.end(), [](const auto& b) { return !b.slot.address; });
  blocks.erase(gap, blocks.end());
  ready_pin ready{id, ticket.owner, {}, 0};
  ready.from_ssd = static_cast<std::uint32_t>(blocks.size() - std::min(blocks.size(), ticket.in_dram));
  ready.pinned.blocks = std::move(blocks);
  if (ready.pinned.blocks.empty()) {
    store_.release(ticket.pin);
  } else {
    ready.pinned.id = ticket.pin;
  }
  ready_.push_back(std::move(ready));
}

// ---- jobs ----

void tiered_store::queue_erase(const block_name& name) {
  io_.add({0, io_job::kind::erase, {name, 0}, {}, {}});
}

std::vector<io_job> tiered_store::take_io_jobs(std::size_t max) {
  return io_.take(max, store_.block_bytes());
}

void tiered_store::complete(std::span<const io_result> results) {
  const auto lock = locked();
  for (const auto& r : results) {
    const auto done = io_.finish(r.id);
    if (!done) continue;
    switch (done->job.what) {
      case io_job::kind::write:
        finish_write(done->job, done->hold, r.failure);
        break;
      case io_job::kind::read:
        if (r.failure.code != ec::cancelled || !wanted_by_others(done->job))
          finish_read(done->job, r.failure);
        break;
      case io_job::kind::erase:
        break;
    }
  }
  write_wanted();
  evict_ahead();
}

// ---- seen from outside ----

slot_counts tiered_store::integrity() const {
  const auto lock = locked();
  return store_.integrity();
}

tier_stats tiered_store::ssd_stats() const {
  const auto lock = locked();
  tier_stats now = stats_;
  now.copies = ssd_.elsewhere();
  now.ssd_blocks = ssd_.shown_count();
  now.jobs_queued = io_.queued();
  now.jobs_running = io_.running();
  now.reads_pending = io_.reads();
  return now;
}

// Recounts from jobs, tickets and the tree, without any of the counters that it checks.
bool tiered_store::consistent(std::string* why) const {
  const auto lock = locked();
  const auto wrong = [why](std::string text) {
    if (why) *why = std::move(text);
    return false;
  };
  if (!store_.consistent(why)) return false;
  std::size_t jobs = 0, writes = 0, reads = 0, waiting = 0, missing = 0;
  std::optional<std::uint64_t> unheld;
  io_.each([&](const io_job& job) {
    ++jobs;
    writes += job.what == io_job::kind::write;
    reads += job.what == io_job::kind::read;
    const auto h = ssd_.find(job.block.name.key);
    if (job.what != io_job::kind::erase && (h == prefix_tree::none || ssd_.pins(h) == 0)) unheld = job.id;
  });
  if (unheld) return wrong("job " + std::to_string(*unheld) + " does not hold its place on SSD");
  if (writes != io_.writes() || reads != io_.reads() || reads != promotions_.size())
    return wrong("jobs do not add up");
  if (io_.queued() + io_.running() != jobs) return wrong("queued and running jobs do not add up");
  if (ssd_.size() != ssd_.shown_count() + writes) return wrong("SSD blocks do not add up");
  for (const auto& [key, waiters] : promotions_) waiting += waiters.size();
  for (const auto& [id, ticket] : tickets_) missing += ticket.missing;
  if (waiting != missing) return wrong("tickets wait for something else than reads");
  bool closed = true;
  store_.for_each([&](const held_block& e) {
    if (e.name.depth == 0) return;
    const auto parent = store_.find(e.name.parent);
    if (!parent || (e.on_ssd && !parent->on_ssd)) closed = false;
  });
  const bool leaf_first = options_.ssd_eviction.leaf_first && options_.dram.eviction.leaf_first;
  // Damage makes holes that eviction must not: they close when the block is computed again.
  if (!closed && leaf_first && damaged_ == 0) return wrong("a prefix has a hole");
  return true;
}

}  // namespace mooncaf
