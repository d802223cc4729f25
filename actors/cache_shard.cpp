#include "actors/cache_shard.hpp"

#include <caf/send.hpp>

#include "actors/executor.hpp"
#include "actors/log.hpp"
#include "actors/metrics/metrics.hpp"
#include "actors/stray_errors.hpp"

namespace mooncaf {

namespace {

constexpr auto tick_interval = std::chrono::milliseconds(20);
constexpr auto answer_limit = std::chrono::seconds(10);
constexpr duration longest_write = std::chrono::seconds(5);  ///< of what a device alone has, for another node
/// … for decode here: what is not in memory by then is sent by who computes the prompt.
constexpr duration longest_write_for_decode = std::chrono::seconds(1);

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

block_tier as_tier(storage_tier tier) {
  switch (tier) {
    case storage_tier::dram:
      return block_tier::dram;
    case storage_tier::ssd:
      return block_tier::ssd;
    case storage_tier::device:
      break;
  }
  return block_tier::device;
}

block_event_msg as_message(const block_event& e) {
  block_event_msg out;
  out.key = e.name.key;
  out.parent = e.name.parent;
  out.depth = e.name.depth;
  out.tier = as_tier(e.tier);
  switch (e.what) {
    case block_event::kind::stored:
      out.what = block_change::stored;
      break;
    case block_event::kind::moved:
      out.what = block_change::moved;
      break;
    case block_event::kind::removed:
      out.what = block_change::removed;
      break;
  }
  return out;
}

/// Disk work of one pump, and its results.
class disk_task final : public blocking_task {
 public:
  /// @param load  who computes with what is read part by part; null: nobody.
  /// @param part_layers  layers of a part.
  disk_task(std::shared_ptr<rocksdb_tier> tier, std::vector<io_job> jobs, const block_pieces& shape,
            prefix_load_ptr load, std::uint32_t part_layers)
      : tier_(std::move(tier)),
        jobs_(std::move(jobs)),
        shape_(shape),
        load_(std::move(load)),
        part_layers_(part_layers) {}
  void run() override {
    const auto began = clock_type::now();
    load_progress progress;
    if (load_) {
      progress = [this](ticket_id, std::optional<std::uint32_t> parts) {
        if (!parts) load_->give_up();
        else load_->landed((*parts - 1) * part_layers_, part_layers_);
        // What has landed needs no patience: false if nobody computes with it any more.
        return parts && load_->wait(*parts * part_layers_ - 1, duration{});
      };
    }
    results_ = execute(jobs_, *tier_, shape_, progress);
    elapsed_ = clock_type::now() - began;
  }
  /// Bytes read, if reading was all it did and all of it went well; else 0.
  std::uint64_t bytes_read() const {
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i].what != io_job::kind::read || !results_[i].ok()) return 0;
    }
    return jobs_.size() * shape_.block_bytes();
  }
  duration elapsed() const noexcept { return elapsed_; }
  const std::vector<io_result>& results() const noexcept { return results_; }

 private:
  std::shared_ptr<rocksdb_tier> tier_;
  std::vector<io_job> jobs_;
  block_pieces shape_;
  prefix_load_ptr load_;
  std::uint32_t part_layers_;
  std::vector<io_result> results_;
  duration elapsed_{};
};

}  // namespace

cache_shard::cache_shard(caf::actor_config& config, context_ptr context, tiered_store store,
                         std::shared_ptr<rocksdb_tier> ssd, executor_actor disk, transfer_price price,
                         duration lease)
    : cache_shard_actor::base(config),
      context_(std::move(context)),
      store_(std::move(store)),
      ssd_(std::move(ssd)),
      disk_(std::move(disk)),
      disk_price_(price),
      lease_(lease) {}

cache_shard_actor::behavior_type cache_shard::make_behavior() {
  outlive_stray_errors(*this);
  delayed_send(this, tick_interval, tick_atom_v);
  return {
      [this](look_atom, const block_keys_t& keys) { return look(keys); },
      [this](pin_atom, std::uint64_t owner, const block_keys_t& keys, std::uint32_t max_from_ssd) {
        return pin(owner, keys, max_from_ssd);
      },
      [this](pin_atom, std::uint64_t owner, const block_keys_t& keys) { return pin_for_decode(owner, keys); },
      [this](pin_remote_atom, std::uint64_t owner, const block_keys_t& keys, std::int64_t worth_ns) {
        return pin_remote(owner, keys, worth_ns);
      },
      [this](load_atom, const fetch_plan& plan, const prefix_load_ptr& into) { return load(plan, into); },
      [this](reserve_atom, std::uint64_t owner, std::uint32_t count) { return reserve(owner, count); },
      [this](commit_atom, std::uint64_t owner, const std::vector<commit_item>& items) {
        commit(owner, items);
      },
      [this](found_atom, std::uint64_t remote, std::uint64_t on_device) {
        fetched_ += remote;
        on_device_ += on_device;
        store_.count_elsewhere(remote + on_device);
      },
      [this](renew_atom, const std::vector<std::uint64_t>& owners) {
        for (const auto owner : owners) store_.renew(owner_id{owner}, deadline());
      },
      [this](fence_atom, std::uint64_t owner) { store_.fence(owner_id{owner}); },
      [this](confirm_atom, std::uint64_t owner) {
        store_.confirm(owner_id{owner});
        pump();
      },
      [this](release_atom, std::uint64_t owner) {
        store_.release_all(owner_id{owner});
        withdraw(owner);
        pump();
      },
      [this](status_atom) { return status(); },
      [this](flush_atom) { return flush(); },
      [this](withhold_atom, std::uint64_t bytes) { return withhold(bytes); },
      [this](follow_atom, const caf::actor& conductor) {
        follower_ = caf::actor_cast<conductor_actor>(conductor);
        store_.drain_events();  // the snapshot says it all
        const auto held = store_.snapshot();
        send_in_batches(held.blocks, true, held.sequence);
      },
      [this](tick_atom) { tick(); },
  };
}

void cache_shard::on_exit() {
  follower_ = nullptr;
  disk_ = nullptr;
  waiting_.clear();
  loads_.clear();
  wanted_.clear();
  flushing_ = {};
}

prefix_view cache_shard::look(const block_keys_t& keys) const {
  const auto held = store_.match(keys);
  prefix_view out;
  out.dram_blocks = held.dram;
  out.held_blocks = held.total();
  // Blocks that others wait for are read first.
  const auto queued = store_.ssd_stats().reads_pending * store_.block_bytes();
  const auto price = disk_price_.at(clock_type::now());
  out.disk_wait_ns = price.estimate(queued).count();
  out.disk_block_ns = (price.estimate(store_.block_bytes()) - price.latency()).count();
  return out;
}

caf::result<pinned_slots> cache_shard::pin(std::uint64_t owner, const block_keys_t& keys,
                                           std::uint32_t max_from_ssd) {
  auto pinned = store_.pin(keys, owner_id{owner}, deadline(), max_from_ssd);
  if (!pinned) return to_caf(pinned.error());
  if (!pinned->ticket) return as_slots(pinned->pinned, 0);
  auto promise = make_response_promise();
  waiting_.emplace(pinned->ticket, waiting_pin{promise, owner, false});
  pump();
  return promise;
}

caf::result<pinned_slots> cache_shard::pin_for_decode(std::uint64_t owner, const block_keys_t& keys) {
  auto promise = make_response_promise();
  bring_and_pin({promise, owner, keys, false, 0, 0, {}}, longest_write_for_decode);
  return promise;
}

caf::result<remote_blocks> cache_shard::pin_remote(std::uint64_t owner, const block_keys_t& keys,
                                                   std::int64_t worth_ns) {
  auto promise = make_response_promise();
  const auto patience = worth_ns > 0 ? std::min(duration{worth_ns}, longest_write) : longest_write;
  bring_and_pin({promise, owner, keys, true, worth_ns, 0, {}}, patience);
  return promise;
}

void cache_shard::bring_and_pin(wanted_pin&& w, duration patience) {
  const auto here = static_cast<std::uint32_t>(store_.match(w.keys).total());
  if (const auto& device = context_->device_blocks) w.blocks = device->bring(w.keys, here);
  if (w.blocks <= here) return pin_wanted(w);
  w.until = clock_type::now() + patience;
  wanted_.push_back(std::move(w));
}

/// Whoever waits for what the device alone had gets it once it is here, or what is here when the time is
/// over.
void cache_shard::serve_wanted() {
  const auto now = clock_type::now();
  std::vector<wanted_pin> ready;
  std::erase_if(wanted_, [&](wanted_pin& w) {
    const bool over = now >= w.until || store_.match(w.keys).total() >= w.blocks;
    if (over) ready.push_back(std::move(w));
    return over;
  });
  for (auto& w : ready) pin_wanted(w);
}

void cache_shard::pin_wanted(wanted_pin& w) {
  std::size_t from_ssd = all_blocks;
  if (w.worth_ns > 0) {
    const auto view = look(w.keys);
    const auto left = std::max<std::int64_t>(w.worth_ns - view.disk_wait_ns, 0);
    from_ssd = static_cast<std::size_t>(left / std::max<std::int64_t>(view.disk_block_ns, 1));
  }
  auto pinned = store_.pin(w.keys, owner_id{w.owner}, deadline(), from_ssd);
  if (!pinned) return w.reply.deliver(to_caf(pinned.error()));
  if (pinned->ticket) {
    waiting_.emplace(pinned->ticket, waiting_pin{w.reply, w.owner, w.remote});
    pump();
  } else if (w.remote) {
    w.reply.deliver(as_remote(pinned->pinned, context_->region.id));
  } else {
    w.reply.deliver(as_slots(pinned->pinned, 0));
  }
}

caf::result<remote_blocks> cache_shard::load(const fetch_plan& plan, const prefix_load_ptr& into) {
  const auto wanted = std::span{plan.keys}.subspan(std::min<std::size_t>(plan.skip, plan.keys.size()));
  const auto ticket = store_.load(wanted, plan.slots, owner_id{plan.id.owner()}, deadline());
  if (!ticket) return to_caf(ticket.error());
  auto promise = make_response_promise();
  waiting_.emplace(*ticket, waiting_pin{promise, plan.id.owner(), true});
  loads_.emplace(*ticket, into);
  pump();
  return promise;
}

caf::result<std::vector<slot_index>> cache_shard::reserve(std::uint64_t owner, std::uint32_t count) {
  auto slots = store_.reserve(owner_id{owner}, count, deadline());
  pump();
  if (!slots) return to_caf(slots.error());
  std::vector<slot_index> out;
  out.reserve(slots->size());
  for (const auto& slot : *slots) out.push_back(slot.index);
  return out;
}

void cache_shard::commit(std::uint64_t owner, const std::vector<commit_item>& items) {
  for (const auto& item : items) {
    // A refused commit (expired owner) leaves the block unpublished, which costs a later recomputation and no
    // more.
    static_cast<void>(
        store_.commit(owner_id{owner}, item.slot, {item.key, item.parent, item.depth}, item.checksum));
  }
  serve_wanted();
  pump();
}

caf::result<std::uint64_t> cache_shard::flush() {
  if (!ssd_) return std::uint64_t{0};
  flushing_ = make_response_promise();
  written_before_ = store_.ssd_stats().writes;
  store_.retry_writes();
  auto answer = flushing_;
  pump();
  return answer;
}

void cache_shard::pump() {
  for (auto& ready : store_.take_ready()) {
    const auto i = waiting_.find(ready.ticket);
    if (i == waiting_.end()) continue;
    auto waiter = std::move(i->second);
    waiting_.erase(i);
    if (waiter.remote) {
      waiter.reply.deliver(as_remote(ready.pinned, context_->region.id));
    } else {
      waiter.reply.deliver(as_slots(ready.pinned, ready.from_ssd));
    }
  }
  if (!ssd_ || disk_busy_) return;
  if (flushing_.pending() && store_.flush() == 0)
    flushing_.deliver(store_.ssd_stats().writes - written_before_);
  auto jobs = store_.take_io_jobs();
  if (jobs.empty()) return;
  disk_busy_ = true;
  auto load = loads_.extract(jobs.front().load);
  task_ptr task =
      std::make_shared<disk_task>(ssd_, std::move(jobs), store_.shape(),
                                  load ? std::move(load.mapped()) : nullptr, context_->disk_part_layers);
  // The disk may be slow but it answers: an executor runs every task to its end.
  request(disk_, caf::infinite, run_atom_v, std::move(task)).then([this](const task_ptr& finished) {
    disk_busy_ = false;
    const auto& work = static_cast<const disk_task&>(*finished);
    disk_price_.observe(work.bytes_read(), work.elapsed(), clock_type::now());
    store_.complete(work.results());
    // What made room on the disk may be on the device alone now.
    if (const auto& device = context_->device_blocks) device->tell();
    watch_disk();
    pump();
  });
}

void cache_shard::tick() {
  const auto expired = store_.expire(clock_type::now());
  for (const auto owner : expired) withdraw(owner.value);
  // Writes that the disk refused are tried again as time passes.
  if (!expired.empty() || store_.ssd_stats().jobs_queued > 0) pump();
  serve_wanted();
  send_events();
  ask_for_copies();
  delayed_send(this, tick_interval, tick_atom_v);
}

/// Behind the events, which the answer takes into account.
void cache_shard::ask_for_copies() {
  if (!follower_ || asks_for_copies_) return;
  auto keys = store_.ask_for_copies();
  if (keys.empty()) return;
  asks_for_copies_ = true;
  request(follower_, answer_limit, keep_atom_v, context_->id, keys)
      .then(
          [this, keys](const block_keys_t& kept) {
            asks_for_copies_ = false;
            store_.copies_are(keys, kept);
          },
          // Without an answer what was known stays, and it is asked about again.
          [this](const caf::error&) { asks_for_copies_ = false; });
}

void cache_shard::watch_disk() {
  const auto& refusal = store_.write_refusal();
  if (context_->meters) {
    context_->meters->set_ssd("refuses_writes", refusal ? 1 : 0);
    context_->meters->set_ssd("write_failures", static_cast<double>(store_.ssd_stats().write_failures));
  }
  if (refusal.has_value() == disk_refuses_) return;
  disk_refuses_ = refusal.has_value();
  if (disk_refuses_) {
    log_warn("ssd", {{"problem", "writes are refused: " + to_string(*refusal)},
                     {"effect", "new blocks live in memory alone; tried again after 1 s, later every 60 s"}});
  } else {
    log_info("ssd", {{"message", "takes writes again"}});
  }
}

void cache_shard::withdraw(std::uint64_t owner) {
  const auto ended = error{ec::cancelled, "the request ended while its blocks came from SSD or the device"};
  std::erase_if(wanted_, [&](wanted_pin& w) {
    if (w.owner != owner) return false;
    w.reply.deliver(to_caf(ended));
    return true;
  });
  for (auto i = waiting_.begin(); i != waiting_.end();) {
    if (i->second.owner != owner) {
      ++i;
      continue;
    }
    i->second.reply.deliver(to_caf(ended));
    i = waiting_.erase(i);
  }
}

void cache_shard::send_events() {
  if (!follower_) return;
  const auto events = store_.drain_events();
  if (!events.empty()) send_in_batches(events, false, events.front().sequence);
}

void cache_shard::send_in_batches(std::span<const block_event> events, bool snapshot,
                                  std::uint64_t sequence) {
  constexpr std::size_t batch_size = 512;  // keeps a CAF message below 64 KiB
  std::size_t at = 0;
  std::uint32_t part = 0;
  do {
    block_event_batch batch;
    batch.node = context_->id;
    batch.snapshot = snapshot;
    batch.part = part++;
    batch.first_seq = snapshot ? sequence : events[at].sequence;
    for (const auto end = std::min(events.size(), at + batch_size); at < end; ++at) {
      batch.events.push_back(as_message(events[at]));
    }
    send(follower_, blocks_atom_v, std::move(batch));
  } while (at < events.size());
}

boundary_state cache_shard::withhold(std::uint64_t bytes) {
  constexpr std::uint64_t at_once = 64 * MiB;  // so that those who wait for us do not wait for long
  const auto block = store_.block_bytes();
  const auto room = store_.shape().group_bytes();  // whole pages
  const auto slots = (bytes + block - 1) / block;
  for (const auto slot : store_.withhold(slots, std::max<std::size_t>(1, at_once / block)))
    if (!give_pages_back(*context_->memory, store_.slot(slot).offset, room))
      log_warn("memory", {{"problem", "the kernel does not take pages back: " + errno_text()}});
  pump();
  const auto now = store_.boundary();
  return {now.withheld_bytes, now.bytes, now.idle_bytes, now.taken_bytes,
          now.coldest ? now.coldest->count() : -1};
}

shard_status cache_shard::status() const {
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
  out.owners = counts.owners;
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
  out.hits_device = on_device_;
  out.hits_dram = stats.hits_dram;
  out.hits_ssd = stats.hits_ssd;
  out.hits_remote = fetched_;
  out.misses = stats.misses;
  if (ssd_) {
    const auto price = disk_price_.at(clock_type::now());
    out.ssd_read_bytes_per_s = static_cast<std::uint64_t>(price.bytes_per_s());
    out.ssd_latency_ns = price.latency().count();
  }
  out.consistent = counts.add_up();
  return out;
}

}  // namespace mooncaf
