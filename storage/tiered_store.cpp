#include "storage/tiered_store.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {
namespace {

/// Holds slots on behalf of jobs. Never expires.
constexpr owner_id disk_owner{~std::uint64_t{0}};
constexpr time_point never = time_point::max();

/// Blocks that must stay on SSD although they look like leaves there are stepped over, at most this many at a
/// time: a bound on the work of one call, not on correctness.
constexpr int guarded_steps_max = 64;

/// Written in one go: large enough for the tier to skip its log, some 30 ms of a disk for which a read may
/// wait.
constexpr std::size_t write_turn_bytes = 32 * MiB;

/// A disk that refuses writes is left alone for so long, doubled each time: it may be full, and asking costs.
constexpr duration first_pause = std::chrono::seconds(1);
constexpr duration longest_pause = std::chrono::seconds(60);

block_store_options dram_options(const tiered_store_options& o) {
  auto out = o.dram;
  out.note_moves = o.ssd && writes_on_eviction(o.write);
  return out;
}

}  // namespace

tiered_store::tiered_store(block_allocator slots, tiered_store_options options)
    : options_(std::move(options)),
      store_(std::move(slots), dram_options(options_)),
      ssd_index_(options_.ssd_eviction) {
  const std::size_t total = store_.integrity().total;
  options_.max_writes = std::clamp<std::size_t>(options_.max_writes, 1, std::max<std::size_t>(1, total / 4));
  options_.max_reads = std::clamp<std::size_t>(options_.max_reads, 1, std::max<std::size_t>(1, total / 2));
  if (options_.free_ahead == 0) options_.free_ahead = total / 16;
  options_.free_ahead = std::min(options_.free_ahead, total / 2);
}

void tiered_store::recover(std::span<const ssd_block> found) {
  std::vector<const ssd_block*> ordered;
  ordered.reserve(found.size());
  for (const auto& b : found) ordered.push_back(&b);
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto* a, const auto* b) { return a->name.depth < b->name.depth; });
  const std::uint64_t now =
      store_.next_time();  // nobody knows who came last; equal times give up the deeper first
  for (const auto* b : ordered) {
    const auto& name = b->name;
    const auto* parent = name.depth == 0 ? nullptr : store_.find(name.parent);
    if (name.depth != 0 && (!parent || parent->name.depth + 1 != name.depth)) {
      queue_erase(name);
      continue;
    }
    ssd_index_.insert(name.key, name.parent, name.depth, now);
    store_.directory().add_ssd(name, b->checksum);
  }
  while (ssd_index_.size() > options_.ssd_capacity_blocks && evict_from_ssd()) {
  }
}

// ---- as in block_store ----

std::vector<owner_id> tiered_store::expire(time_point now) {
  now_ = now;
  if (refusal_ && now_ >= write_after_ && writes_pending_ == 0) {
    write_wanted();
    evict_ahead();
  }
  auto ended = store_.expire(now);
  if (!ended.empty()) drop_unwanted_reads();
  return ended;
}

void tiered_store::release_all(owner_id owner) {
  store_.release_all(owner);
  drop_unwanted_reads();
}

result<std::vector<slot_ref>> tiered_store::reserve(owner_id owner, std::size_t count, time_point deadline) {
  make_room_without_loss(count);
  auto slots = store_.reserve(owner, count, deadline);
  evict_ahead();
  return slots;
}

/// Evicts what is on SSD while what is not waits to be written, even if that was used longer ago.
void tiered_store::make_room_without_loss(std::size_t count) {
  // Where a block is written after some uses, what was not written is worth less than what was.
  if (!options_.ssd || options_.write == write_policy::write_through_selective) return;
  pin_id guard;
  for (int guarded = 0; store_.free_slots() < count && guarded < guarded_steps_max;) {
    const auto victim = store_.next_victim();
    if (!victim) break;
    if (store_.find(*victim)->on_ssd) {
      (void)store_.evict_one();
      continue;
    }
    if (!guard) guard = *store_.open_pin(disk_owner, never);  // who never ends
    (void)store_.pin_one(*victim, guard);
    ++guarded;
  }
  if (guard) store_.release(guard);
}

result<commit_outcome> tiered_store::commit(owner_id owner, std::uint32_t slot, const block_name& name,
                                            std::uint64_t checksum, std::uint64_t used) {
  auto outcome = store_.commit(owner, slot, name, checksum, used);
  if (outcome && *outcome == commit_outcome::published && writes_on_commit(options_.write)) {
    want_saved(name.key);
  }
  return outcome;
}

result<pin_reply> tiered_store::pin(std::span<const block_key> keys, owner_id owner, time_point deadline,
                                    std::size_t max_from_ssd) {
  auto pinned = store_.pin(keys, owner, deadline, max_from_ssd);
  if (!pinned) return fail(pinned.error());
  pin_reply reply{{}, std::move(*pinned)};
  note_use(reply.pinned);
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
    const auto* e = store_.find(key);
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

/// Counts a use in the SSD's order too, and notices blocks that have become worth writing.
void tiered_store::note_use(const pinned_blocks& pinned) {
  if (!options_.ssd) return;
  const std::uint64_t now = store_.time();
  for (const auto& b : pinned.blocks) {
    if (const auto h = ssd_index_.find(b.key); h != eviction_index::none) {
      ssd_index_.touch(h, now);
    } else if (options_.write == write_policy::write_through_selective &&  // spares the others a lookup
               writes_on_use(options_.write, store_.uses(b.key), options_.selective_hits)) {
      want_saved(b.key);
    }
  }
  for (const auto& key : pinned.to_promote)
    if (const auto h = ssd_index_.find(key); h != eviction_index::none) ssd_index_.touch(h, now);
}

result<ticket_id> tiered_store::load(std::span<const block_key> keys, std::span<const std::uint32_t> slots,
                                     owner_id owner, time_point deadline) {
  for (const auto& key : keys) {
    const auto* e = store_.find(key);
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
    const auto& e = *store_.find(keys[i]);
    ssd_index_.touch(ssd_index_.find(keys[i]), store_.next_time());
    read(id, i, {0, io_job::kind::read, {e.name, e.checksum}, store_.slot(slots[i]), id});
  }
  return id;
}

std::vector<ready_pin> tiered_store::take_ready() { return std::exchange(ready_, {}); }

// ---- SSD to DRAM ----

/// Lets a ticket wait for a block, starting its read if nobody has. Invalidates directory entries.
bool tiered_store::join_promotion(const block_directory::entry& e, ticket_id ticket, std::size_t position) {
  const ssd_block block{e.name, e.checksum};
  if (const auto it = promotions_.find(block.name.key); it != promotions_.end()) {
    ++stats_.promotions_shared;
    it->second.push_back({ticket, position});
    return true;
  }
  if (reads_pending_ >= options_.max_reads) return false;
  const auto h = ssd_index_.find(block.name.key);
  if (h == eviction_index::none) return false;
  // Pinned first: taking the slot may evict from DRAM, never from SSD, but what follows may.
  ssd_index_.pin(h);
  const auto slot = store_.reserve(disk_owner, 1, never);
  ssd_index_.unpin(h);
  if (!slot) return false;
  read(ticket, position, {0, io_job::kind::read, block, slot->front(), {}});
  return true;
}

/// Queues a read for a ticket. @pre The slot is the disk's, and nobody reads the block yet.
void tiered_store::read(ticket_id ticket, std::size_t position, io_job job) {
  const auto key = job.block.name.key;
  ssd_index_.pin(ssd_index_.find(key));
  ++reads_pending_;
  queue(std::move(job), {});
  promotions_[key].push_back({ticket, position});
}

/// Of owners that have ended.
void tiered_store::drop_unwanted_reads() {
  std::erase_if(reads_, [&](const io_job& job) {
    const auto waiting = promotions_.find(job.block.name.key);
    if (std::ranges::any_of(waiting->second,
                            [&](const waiter& w) { return store_.pinned(tickets_.at(w.ticket).pin); }))
      return false;
    finish_read(job, {ec::cancelled, "nobody waits for it"});
    jobs_.erase(job.id);
    return true;
  });
}

/// A load that was given up: who joined it has its block read all the same, into the same slot.
bool tiered_store::wanted_by_others(const io_job& job) {
  auto& waiting = promotions_.find(job.block.name.key)->second;
  const auto own = [&](const waiter& w) { return w.ticket == job.load; };
  if (std::ranges::none_of(
          waiting, [&](const waiter& w) { return !own(w) && store_.pinned(tickets_.at(w.ticket).pin); }))
    return false;
  std::erase_if(waiting, own);
  if (--tickets_.at(job.load).missing == 0) resolve(job.load);
  queue({0, io_job::kind::read, job.block, job.slot, {}}, {});
  return true;
}

void tiered_store::finish_read(const io_job& job, const error& failure) {
  const bool ok = failure.code == ec::none;
  const block_name& name = job.block.name;
  --reads_pending_;
  ssd_index_.unpin(ssd_index_.find(name.key));
  bool published = false;
  if (ok) {
    // A duplicate is as good: somebody computed the block in the meantime.
    const auto outcome = store_.commit(disk_owner, job.slot.index, name, job.block.checksum);
    published = outcome && *outcome == commit_outcome::published;
    ++stats_.promotions;
  } else if (failure.code != ec::cancelled) {
    ++stats_.promotion_failures;
    ++damaged_;
    forget_on_ssd(name.key);
    queue_erase(name);
  }
  const auto waiting = promotions_.extract(name.key);
  for (const waiter& w : waiting.mapped()) {
    ticket_record& ticket = tickets_.find(w.ticket)->second;
    const auto* e = store_.find(name.key);
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

// ---- DRAM to SSD ----

/// Remembers a block to be written when there is room in the queue.
void tiered_store::want_saved(const block_key& key) {
  if (!options_.ssd) return;
  if (wanted_.size() >= store_.integrity().total) {
    wanted_.pop_front();
    ++stats_.writes_skipped;
  }
  wanted_.push_back(key);
  write_wanted();
}

void tiered_store::write_wanted() {
  while (!wanted_.empty() && writes_pending_ < options_.max_writes) {
    const block_key key = wanted_.front();
    const auto outcome = save(key);
    // A chain longer than the queue goes on when the queue has drained.
    if (outcome == save_outcome::queue_full || outcome == save_outcome::refused) return;
    if (outcome == save_outcome::no_room) ++stats_.writes_skipped;
    wanted_.pop_front();
  }
}

/// Queues the write of a block, after those of its ancestors that are not on SSD yet.
tiered_store::save_outcome tiered_store::save(const block_key& key) {
  if (now_ < write_after_) return save_outcome::refused;
  std::vector<block_key> chain;
  for (block_key at = key; ssd_index_.find(at) == eviction_index::none;) {
    const auto* e = store_.find(at);
    if (!e || !e->in_dram()) return save_outcome::impossible;
    chain.push_back(at);
    if (e->name.depth == 0) break;
    at = e->name.parent;
  }
  for (; !chain.empty(); chain.pop_back()) {
    if (writes_pending_ >= options_.max_writes) return save_outcome::queue_full;
    const auto& e = *store_.find(chain.back());
    if (!make_ssd_room(e.name.parent)) return save_outcome::no_room;
    queue_write(e);
  }
  return save_outcome::queued;
}

void tiered_store::queue_write(const block_directory::entry& e) {
  // Neither call can fail: the disk owner never ends, and the block is in DRAM.
  const pin_id hold = *store_.open_pin(disk_owner, never);
  (void)store_.pin_one(e.name.key, hold);
  const auto h = ssd_index_.insert(e.name.key, e.name.parent, e.name.depth, store_.last_used(e));
  ssd_index_.pin(h);
  if (writes_on_eviction(options_.write)) ssd_index_.set_copy(h, copy_kind::comes_again);
  ++writes_pending_;
  queue({0, io_job::kind::write, {e.name, e.checksum}, store_.slot(e.slot), {}}, hold);
}

void tiered_store::note_write(const error& failure) {
  if (failure.code == ec::none) {
    refusal_.reset();
    pause_ = {};
    write_after_ = {};
    return;
  }
  refusal_ = failure;
  if (now_ < write_after_) return;  // one of those that were under way when the first was refused
  pause_ = std::clamp(2 * pause_, first_pause, longest_pause);
  write_after_ = now_ + pause_;
}

void tiered_store::finish_write(const io_job& job, pin_id hold, const error& failure) {
  note_write(failure);
  const bool ok = failure.code == ec::none;
  const block_name& name = job.block.name;
  --writes_pending_;
  const auto h = ssd_index_.find(name.key);
  ssd_index_.unpin(h);
  const auto* parent = name.depth == 0 ? nullptr : store_.find(name.parent);
  if (ok && (name.depth == 0 || (parent && parent->on_ssd))) {
    store_.directory().add_ssd(name, job.block.checksum);
    ++stats_.writes;
  } else {
    // Either the disk refused it, or it refused the parent and this block would be beyond reach after a
    // restart.
    ssd_index_.erase(h);
    queue_erase(name);
    ++stats_.write_failures;
    if (!ok && writes_on_commit(options_.write)) want_saved(name.key);  // nobody else would come back to it
  }
  store_.release(hold);
}

/// Makes sure that one more block fits, without giving up `parent`.
bool tiered_store::make_ssd_room(const block_key& parent) {
  if (ssd_index_.size() < options_.ssd_capacity_blocks) return true;
  const auto keep = ssd_index_.find(parent);
  if (keep != eviction_index::none) ssd_index_.pin(keep);
  const bool made = evict_from_ssd();
  if (keep != eviction_index::none) ssd_index_.unpin(keep);
  return made;
}

std::vector<block_key> tiered_store::ask_for_copies() {
  if (ssd_index_.size() < options_.ssd_capacity_blocks - options_.ssd_capacity_blocks / 16) return {};
  return survey_.next(ssd_index_, stats_.ssd_evictions, now_);
}

/// Tells the SSD's order what DRAM has, too.
void tiered_store::note_moves() {
  for (const auto& key : store_.take_moved()) note_copy(key);
}

void tiered_store::on_device(const block_name& name, bool held) {
  store_.on_device(name, held);
  if (options_.device_gives_back && writes_on_eviction(options_.write)) note_copy(name.key);
}

/// Where blocks are written when they leave the tiers above.
void tiered_store::note_copy(const block_key& key) {
  const auto h = ssd_index_.find(key);
  if (h == eviction_index::none) return;
  const auto* e = store_.find(key);
  const bool above = (e && e->in_dram()) || (options_.device_gives_back && store_.is_on_device(key));
  if (above) ssd_index_.set_copy(h, copy_kind::comes_again);
  else if (ssd_index_.copy(h) == copy_kind::comes_again) ssd_index_.set_copy(h, copy_kind::alone);
}

bool tiered_store::evict_from_ssd() {
  note_moves();
  std::vector<eviction_index::handle> guarded;
  bool evicted = false;
  for (int i = 0; i < guarded_steps_max && !evicted; ++i) {
    const auto h = ssd_index_.victim();
    if (h == eviction_index::none) break;
    const block_name name = store_.find(ssd_index_.key(h))->name;
    // Leaf on SSD, but what follows it lives in DRAM: without it that would be beyond reach.
    if (!store_.find(name.key)->in_dram() && store_.children_in_dram(name.key) != 0) {
      ssd_index_.pin(h);
      guarded.push_back(h);
      continue;
    }
    stats_.copies_dropped += ssd_index_.copy(h) == copy_kind::elsewhere ? 1 : 0;
    stats_.last_copies_kept += ssd_index_.victim_spares_another() ? 1 : 0;
    if (options_.device_gives_back && !store_.find(name.key)->in_dram() && store_.is_on_device(name.key))
      device_alone_.push_back(name.key);
    forget_on_ssd(name.key);
    queue_erase(name);
    ++stats_.ssd_evictions;
    evicted = true;
  }
  for (const auto h : guarded) ssd_index_.unpin(h);
  return evicted;
}

/// Keeps slots free by evicting in the background, so that a reservation finds room whose blocks are on SSD
/// by then.
void tiered_store::evict_ahead() {
  if (!options_.ssd || !writes_on_eviction(options_.write)) return;
  while (store_.free_slots() + writes_pending_ < options_.free_ahead) {
    const auto victim = store_.next_victim();
    if (!victim) return;
    if (!store_.find(*victim)->on_ssd) {
      const auto outcome = save(*victim);
      if (outcome != save_outcome::queued && outcome != save_outcome::impossible) return;
      if (outcome == save_outcome::queued) continue;  // held by its write until that is done
    }
    (void)store_.evict_one();
  }
}

std::size_t tiered_store::flush() {
  if (!options_.ssd) return 0;
  std::vector<block_name> unsaved;
  store_.directory().for_each([&](const auto& e) {
    if (e.in_dram() && !e.on_ssd) unsaved.push_back(e.name);
  });
  std::sort(unsaved.begin(), unsaved.end(), [](const auto& a, const auto& b) { return a.depth < b.depth; });
  for (const auto& name : unsaved) {
    const auto outcome = save(name.key);
    if (outcome == save_outcome::queue_full || outcome == save_outcome::refused) break;
  }
  return writes_pending_;
}

// ---- jobs ----

void tiered_store::queue(io_job job, pin_id hold) {
  job.id = next_job_++;
  jobs_.emplace(job.id, job_record{job, hold});
  // A read never depends on what is queued: its block is on SSD already, and held there until it is done.
  (job.what == io_job::kind::read ? reads_ : writes_).push_back(job);
}

void tiered_store::queue_erase(const block_name& name) {
  queue({0, io_job::kind::erase, {name, 0}, {}, {}}, {});
}

void tiered_store::forget_on_ssd(const block_key& key) {
  if (const auto h = ssd_index_.find(key); h != eviction_index::none) ssd_index_.erase(h);
  store_.directory().drop_ssd(key);
}

std::vector<io_job> tiered_store::take_io_jobs(std::size_t max) {
  const bool read = !reads_.empty() && (writes_.empty() || !reads_went_last_);
  reads_went_last_ = read;
  auto& from = read ? reads_ : writes_;
  if (!read) max = std::min(max, std::max<std::size_t>(1, write_turn_bytes / store_.block_bytes()));
  std::size_t count = std::min(max, from.size());
  if (read) {
    // A load's reads are one job, as many as they are; no others go with them.
    const auto load = from.front().load;
    const auto other = std::ranges::find_if(from, [&](const io_job& j) { return j.load != load; });
    const auto same = static_cast<std::size_t>(other - from.begin());
    count = load ? same : std::min(count, same);
  }
  const auto end = from.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<io_job> jobs(from.begin(), end);
  from.erase(from.begin(), end);
  running_ += count;
  return jobs;
}

void tiered_store::complete(std::span<const io_result> results) {
  for (const auto& r : results) {
    auto node = jobs_.extract(r.id);
    if (node.empty()) continue;
    --running_;
    const job_record& record = node.mapped();
    switch (record.job.what) {
      case io_job::kind::write:
        finish_write(record.job, record.hold, r.failure);
        break;
      case io_job::kind::read:
        if (r.failure.code != ec::cancelled || !wanted_by_others(record.job))
          finish_read(record.job, r.failure);
        break;
      case io_job::kind::erase:
        break;
    }
  }
  note_moves();
  write_wanted();
  evict_ahead();
}

// ---- seen from outside ----

tier_stats tiered_store::ssd_stats() const noexcept {
  tier_stats now = stats_;
  now.copies = ssd_index_.elsewhere();
  now.ssd_blocks = store_.directory().ssd_count();
  now.jobs_queued = reads_.size() + writes_.size();
  now.jobs_running = running_;
  now.reads_pending = reads_pending_;
  return now;
}

bool tiered_store::consistent(std::string* why) const {
  const auto wrong = [why](std::string text) {
    if (why) *why = std::move(text);
    return false;
  };
  if (!store_.consistent(why)) return false;
  if (!ssd_index_.consistent()) return wrong("eviction index of the SSD is inconsistent");
  std::size_t writes = 0, reads = 0, waiting = 0, missing = 0;
  for (const auto& [id, record] : jobs_) {
    writes += record.job.what == io_job::kind::write;
    reads += record.job.what == io_job::kind::read;
    const auto h = ssd_index_.find(record.job.block.name.key);
    if (record.job.what != io_job::kind::erase && (h == eviction_index::none || ssd_index_.pins(h) == 0))
      return wrong("job " + std::to_string(id) + " does not hold its place on SSD");
  }
  if (writes != writes_pending_ || reads != reads_pending_ || reads != promotions_.size())
    return wrong("jobs do not add up");
  if (reads_.size() + writes_.size() + running_ != jobs_.size())
    return wrong("queued and running jobs do not add up");
  if (ssd_index_.size() != store_.directory().ssd_count() + writes) return wrong("SSD blocks do not add up");
  for (const auto& [key, waiters] : promotions_) waiting += waiters.size();
  for (const auto& [id, ticket] : tickets_) missing += ticket.missing;
  if (waiting != missing) return wrong("tickets wait for something else than reads");
  bool closed = true;
  store_.directory().for_each([&](const auto& e) {
    if (e.name.depth == 0) return;
    const auto* parent = store_.find(e.name.parent);
    if (!parent || (e.on_ssd && !parent->on_ssd)) closed = false;
  });
  const bool leaf_first = options_.ssd_eviction.leaf_first && options_.dram.eviction.leaf_first;
  // Damage makes holes that eviction must not: they close when the block is computed again.
  if (!closed && leaf_first && damaged_ == 0) return wrong("a prefix has a hole");
  return true;
}

}  // namespace mooncaf
