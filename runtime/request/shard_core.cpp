#include "runtime/request/shard_core.hpp"

#include <algorithm>

namespace mooncaf {

namespace {

/// Holds the prefixes that clients want kept; no attempt has this number (`attempt_id::owner`).
constexpr owner_id keeper{~std::uint64_t{0} - 1};

/// Longest wait for the device to write blocks that it alone has, for a reader on another node.
constexpr duration patience_remote = std::chrono::seconds(5);
/// … for decode on this node: blocks that are not in memory by then are sent by the node that computes the
/// prompt.
constexpr duration patience_decode = std::chrono::seconds(1);
constexpr std::size_t announced_at_once = 512;        ///< keeps a CAF message below 64 KiB
constexpr std::uint64_t withheld_at_once = 64 * MiB;  ///< so that questions to the shard do not wait for long

pinned_slots as_slots(const pinned_blocks& pinned, std::uint32_t from_ssd) {
  pinned_slots out;
  out.from_ssd = from_ssd;
  out.slots.reserve(pinned.blocks.size());
  out.checksums.reserve(pinned.blocks.size());
  for (const auto& block : pinned.blocks) {
    out.slots.push_back(block.slot.index);
    out.checksums.push_back(block.checksum);
  }
  return out;
}

remote_blocks as_remote(const pinned_blocks& pinned, region_id region) {
  remote_blocks out;
  out.region = region;
  out.blocks.reserve(pinned.blocks.size());
  for (const auto& block : pinned.blocks)
    out.blocks.push_back({block.key, block.slot.offset, block.checksum});
  return out;
}

}  // namespace

shard_core::shard_core(tiered_store store, shard_core_options options)
    : store_(std::move(store)), options_(std::move(options)), kept_(options_.keeps) {}

prefix_view shard_core::look(std::span<const block_key> keys, time_point now) const {
  const auto held = store_.match(keys);
  prefix_view out;
  out.dram_blocks = held.dram;
  out.held_blocks = held.total();
  // Blocks that other requests wait for are read first.
  const auto queued = store_.ssd_stats().reads_pending * store_.block_bytes();
  const auto price = disk_price_.at(now, options_.disk_price);
  out.disk_wait_ns = price.estimate(queued).count();
  out.disk_block_ns = (price.estimate(store_.block_bytes()) - price.latency()).count();
  return out;
}

// ---- pins ----

void shard_core::answer(shard_question asked, const pinned_blocks& pinned, std::uint32_t from_ssd,
                        bool remote) {
  if (remote) {
    actions_.emplace_back(shard_action::answer{asked, as_remote(pinned, options_.region)});
  } else {
    actions_.emplace_back(shard_action::answer{asked, as_slots(pinned, from_ssd)});
  }
}

void shard_core::refuse(shard_question asked, const error& why) {
  actions_.emplace_back(shard_action::answer{asked, why});
}

void shard_core::pin_held(const disk_wait& who, std::span<const block_key> keys, std::size_t max_from_ssd,
                          time_point now) {
  auto pinned = store_.pin(keys, owner_id{who.owner}, now + options_.lease, max_from_ssd);
  if (!pinned) return refuse(who.asked, pinned.error());
  if (!pinned->ticket) return answer(who.asked, pinned->pinned, 0, who.remote);
  disk_waits_.emplace(pinned->ticket, who);
  pump();
}

void shard_core::pin(shard_question asked, std::uint64_t owner, const block_keys_t& keys,
                     std::uint32_t max_from_ssd, time_point now) {
  pin_held({asked, owner, false}, keys, max_from_ssd, now);
}

void shard_core::pin_for_decode(shard_question asked, std::uint64_t owner, block_keys_t keys,
                                time_point now) {
  pin_with_device({asked, owner, std::move(keys)}, patience_decode, now);
}

void shard_core::pin_remote(shard_question asked, std::uint64_t owner, block_keys_t keys,
                            std::int64_t worth_ns, time_point now) {
  const auto patience = worth_ns > 0 ? std::min(duration{worth_ns}, patience_remote) : patience_remote;
  pin_with_device({asked, owner, std::move(keys), true, worth_ns}, patience, now);
}

void shard_core::pin_with_device(device_wait&& wanted, duration patience, time_point now) {
  const auto here = static_cast<std::uint32_t>(store_.match(wanted.keys).total());
  if (options_.bring) wanted.blocks = options_.bring(wanted.keys, here);
  if (wanted.blocks <= here) return pin_wanted(wanted, now);
  wanted.until = now + patience;
  device_waits_.push_back(std::move(wanted));
}

void shard_core::serve_wanted(time_point now) {
  std::vector<device_wait> ready;
  std::erase_if(device_waits_, [&](device_wait& w) {
    const bool over = now >= w.until || store_.match(w.keys).total() >= w.blocks;
    if (over) ready.push_back(std::move(w));
    return over;
  });
  for (const auto& w : ready) pin_wanted(w, now);
}

void shard_core::pin_wanted(const device_wait& wanted, time_point now) {
  std::size_t from_ssd = all_blocks;
  if (wanted.worth_ns > 0) {
    const auto view = look(wanted.keys, now);
    const auto left = std::max<std::int64_t>(wanted.worth_ns - view.disk_wait_ns, 0);
    from_ssd = static_cast<std::size_t>(left / std::max<std::int64_t>(view.disk_block_ns, 1));
  }
  pin_held({wanted.asked, wanted.owner, wanted.remote}, wanted.keys, from_ssd, now);
}

void shard_core::load(shard_question asked, const fetch_plan& plan, time_point now) {
  const auto wanted = std::span{plan.keys}.subspan(std::min<std::size_t>(plan.skip, plan.keys.size()));
  const auto owner = plan.id.owner();
  const auto ticket = store_.load(wanted, plan.slots, owner_id{owner}, now + options_.lease);
  if (!ticket) return refuse(asked, ticket.error());
  disk_waits_.emplace(*ticket, disk_wait{asked, owner, true});
  pump();
}

void shard_core::withdraw(std::uint64_t owner) {
  const error ended{ec::cancelled, "the request ended while its blocks came from SSD or the device"};
  std::erase_if(device_waits_, [&](const device_wait& w) {
    if (w.owner == owner) refuse(w.asked, ended);
    return w.owner == owner;
  });
  std::erase_if(disk_waits_, [&](const auto& entry) {
    if (entry.second.owner == owner) refuse(entry.second.asked, ended);
    return entry.second.owner == owner;
  });
}

// ---- slots and leases ----

result<std::vector<slot_index>> shard_core::reserve(std::uint64_t owner, std::uint32_t count,
                                                    time_point now) {
  const auto slots = store_.reserve(owner_id{owner}, count, now + options_.lease);
  pump();
  if (!slots) return fail(slots.error());
  std::vector<slot_index> out;
  out.reserve(slots->size());
  for (const auto& slot : *slots) out.push_back(slot.index);
  return out;
}

void shard_core::commit(std::uint64_t owner, std::span<const commit_item> items, time_point now) {
  for (const auto& item : items) {
    // A refused commit (expired owner) leaves the block unpublished, which costs a later recomputation and no
    // more.
    static_cast<void>(store_.commit(owner_id{owner}, item.slot, item.name, item.checksum));
  }
  // The next request with this prefix may be on its way to the conductor; where commits come fast, the rest waits for
  // the tick.
  if (!std::exchange(told_since_tick_, true)) announce_news();
  serve_wanted(now);
  pump();
}

void shard_core::found(std::uint64_t remote, std::uint64_t on_device) {
  found_remote_ += remote;
  found_on_device_ += on_device;
  store_.count_elsewhere(remote + on_device);
}

void shard_core::renew(std::span<const std::uint64_t> owners, time_point now) {
  for (const auto owner : owners) store_.renew(owner_id{owner}, now + options_.lease);
}

void shard_core::confirm(std::uint64_t owner) {
  store_.confirm(owner_id{owner});
  pump();
}

void shard_core::release(std::uint64_t owner) {
  store_.release_all(owner_id{owner});
  withdraw(owner);
  pump();
}

void shard_core::tick(time_point now) {
  const auto expired = store_.expire(now);
  for (const auto owner : expired) withdraw(owner.value);
  let_go(kept_.expire(now));
  // Writes that the disk refused are tried again as time passes.
  if (!expired.empty() || store_.ssd_stats().jobs_queued > 0) pump();
  serve_wanted(now);
  announce_news();
  told_since_tick_ = false;
  if (!followed_) return;
  // Behind the events, which the answer takes into account.
  ask_for_copies();
}

// ---- prefixes that clients want kept ----

std::vector<std::uint32_t> shard_core::keep(std::uint64_t tenant, std::span<const block_key> keys,
                                            std::span<const keep_mark> marks, time_point now) {
  std::vector<std::uint32_t> out;
  for (const auto& mark : marks) {
    const auto wanted = keys.first(std::min<std::size_t>(mark.blocks, keys.size()));
    const auto there = wanted.first(store_.match(wanted).dram);
    const auto decided = kept_.keep(tenant, there, duration{mark.ttl_ns}, now);
    if (decided.fresh)
      if (const auto held = store_.hold(there, keeper)) holds_.emplace(*decided.fresh, held->first);
    let_go(decided.over);
    out.push_back(decided.kept ? static_cast<std::uint32_t>(there.size()) : 0);
  }
  return out;
}

std::vector<kept_status> shard_core::kept(std::uint64_t tenant, const block_key& drop, time_point now) {
  std::vector<kept_status> out;
  for (const auto& prefix : kept_.of(tenant))
    if (drop == block_key{} || drop == every_prefix || drop == prefix.last)
      out.push_back({prefix.last, prefix.blocks, (prefix.until - now).count()});
  if (drop != block_key{})
    let_go(kept_.drop(tenant, drop == every_prefix ? std::nullopt : std::optional{drop}));
  return out;
}

void shard_core::let_go(std::span<const kept_prefixes::hold_id> over) {
  for (const auto hold : over)
    if (const auto pin = holds_.extract(hold)) store_.release(pin.mapped());
}

// ---- the disk ----

void shard_core::pump() {
  for (const auto& ready : store_.take_ready()) {
    if (const auto waited = disk_waits_.extract(ready.ticket))
      answer(waited.mapped().asked, ready.pinned, ready.from_ssd, waited.mapped().remote);
  }
  if (!options_.disk || disk_busy_) return;
  if (!flushing_.empty() && store_.flush() == 0) {
    const auto written = store_.ssd_stats().writes - written_before_;
    for (const auto asked : std::exchange(flushing_, {}))
      actions_.emplace_back(shard_action::answer{asked, written});
  }
  auto jobs = store_.take_io_jobs(options_.jobs_max);
  if (jobs.empty()) return;
  disk_busy_ = true;
  const bool reads = std::ranges::all_of(jobs, [](const io_job& j) { return j.what == io_job::kind::read; });
  reading_bytes_ = reads ? jobs.size() * store_.block_bytes() : 0;
  std::optional<shard_question> load;
  if (const auto waits = disk_waits_.find(jobs.front().load); waits != disk_waits_.end())
    load = waits->second.asked;
  actions_.emplace_back(shard_action::run_jobs{std::move(jobs), load});
}

void shard_core::ran(std::span<const io_result> results, duration took, time_point now) {
  disk_busy_ = false;
  const bool good = std::ranges::all_of(results, &io_result::ok);
  disk_price_.observe(good ? reading_bytes_ : 0, took, now);
  store_.complete(results);
  // Blocks that made room on the disk may be on the device alone now.
  actions_.emplace_back(shard_action::tell_device{});
  watch_disk();
  pump();
}

void shard_core::watch_disk() {
  shard_action::disk_state now{store_.why_writes_are_refused(), store_.ssd_stats().write_failures};
  now.turned = now.refusal.has_value() != (disk_said_ && disk_said_->refusal);
  if (disk_said_ && !now.turned && now.write_failures == disk_said_->write_failures) return;
  disk_said_ = now;
  actions_.emplace_back(std::move(now));
}

void shard_core::flush(shard_question asked) {
  if (!options_.disk) {
    actions_.emplace_back(shard_action::answer{asked, std::uint64_t{0}});
    return;
  }
  if (flushing_.empty()) written_before_ = store_.ssd_stats().writes;
  flushing_.push_back(asked);
  store_.retry_writes();
  pump();
}

// ---- other nodes ----

void shard_core::follow() {
  followed_ = true;
  store_.drain_events();  // the snapshot says it all
  const auto held = store_.snapshot();
  announce(held.blocks, true, held.sequence);
}

void shard_core::announce_news() {
  if (!followed_) return;
  if (const auto events = store_.drain_events(); !events.empty())
    announce(events, false, events.front().sequence);
}

void shard_core::announce(std::span<const block_event> events, bool snapshot, std::uint64_t sequence) {
  std::size_t at = 0;
  std::uint32_t part = 0;
  do {
    block_event_batch batch;
    batch.node = options_.self;
    batch.snapshot = snapshot;
    batch.part = part++;
    batch.first_seq = snapshot ? sequence : events[at].sequence;
    const auto some = events.subspan(at, std::min(events.size() - at, announced_at_once));
    batch.events.assign(some.begin(), some.end());
    at += some.size();
    actions_.emplace_back(shard_action::announce{std::move(batch)});
  } while (at < events.size());
}

void shard_core::ask_for_copies() {
  if (asks_for_copies_) return;
  auto keys = store_.ask_for_copies();
  if (keys.empty()) return;
  asks_for_copies_ = true;
  actions_.emplace_back(shard_action::ask_for_copies{std::move(keys)});
}

void shard_core::copies_are(const block_keys_t& asked, const block_keys_t& kept_elsewhere) {
  asks_for_copies_ = false;
  store_.copies_are(asked, kept_elsewhere);
}

// ---- memory ----

boundary_state shard_core::withhold(std::uint64_t bytes) {
  const auto block = store_.block_bytes();
  const auto room = store_.shape().group_bytes();  // whole pages
  const auto slots = (bytes + block - 1) / block;
  for (const auto slot : store_.withhold(slots, std::max<std::size_t>(1, withheld_at_once / block)))
    actions_.emplace_back(shard_action::give_pages_back{store_.slot(slot).offset, room});
  pump();
  const auto now = store_.boundary();
  return {now.withheld_bytes, now.bytes, now.idle_bytes, now.taken_bytes,
          now.coldest ? now.coldest->count() : -1};
}

/// The store counts in blocks and the disk in what it moved; a status is bytes and slots, which people
/// compare.
shard_status shard_core::status(time_point now) const {
  const auto counts = store_.integrity();
  const auto& stats = store_.stats();
  const auto ssd = store_.ssd_stats();
  shard_status out;
  out.slots_total = counts.total - counts.withheld;
  out.slots_free = counts.free;
  out.slots_reserved = counts.reserved;
  out.slots_committed = counts.committed;
  out.slots_pinned = counts.pinned;
  out.slots_private = counts.private_;
  out.slots_quarantined = counts.quarantined;
  out.slots_withheld = counts.withheld;
  out.owners = counts.owners - (holds_.empty() ? 0 : 1);
  out.kept_prefixes = kept_.size();
  out.slots_kept = kept_.blocks();
  out.ssd_blocks = ssd.ssd_blocks;
  out.ssd_bytes = ssd.ssd_blocks * store_.block_bytes();
  out.ssd_capacity_bytes = store_.ssd_capacity_blocks() * store_.block_bytes();
  out.ssd_written_bytes = ssd.writes * store_.block_bytes();
  out.ssd_copies = ssd.copies;
  out.ssd_evictions = ssd.ssd_evictions;
  out.ssd_copies_dropped = ssd.copies_dropped;
  out.ssd_last_copies_kept = ssd.last_copies_kept;
  out.evictions = stats.evictions;
  out.evictions_lost = stats.evictions_lost;
  out.ssd_read_bytes = ssd.promotions * store_.block_bytes();
  out.hits_device = found_on_device_;
  out.hits_dram = stats.hits_dram;
  out.hits_ssd = stats.hits_ssd;
  out.hits_remote = found_remote_;
  out.misses = stats.misses;
  if (options_.disk) {
    const auto price = disk_price_.at(now, options_.disk_price);
    out.ssd_read_bytes_per_s = static_cast<std::uint64_t>(price.bytes_per_s());
    out.ssd_latency_ns = price.latency().count();
  }
  out.consistent = counts.add_up();
  return out;
}

}  // namespace mooncaf
