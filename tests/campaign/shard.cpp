#include "tests/campaign/shard.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace mooncaf::campaign {

namespace {

constexpr duration io_time = 300us;  ///< of a block

/// Memory that is never touched: the stores hand out places in it.
std::span<std::byte> untouched(std::size_t bytes) {
  constexpr std::size_t most = std::size_t{1} << 32;
  static void* const all =
      ::mmap(nullptr, most, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED || bytes > most) std::abort();
  return {static_cast<std::byte*>(all), bytes};
}

tiered_store store_of(std::size_t slots, const disk* ssd) {
  auto places = block_allocator::create(untouched(slots * block_allocator::alignment), 1);
  if (!places) std::abort();
  tiered_store_options options;
  if (ssd != nullptr) {
    options.ssd = true;
    options.ssd_capacity_blocks = ssd->capacity;
    options.write = ssd->policy;
    options.max_writes = 6;
    options.max_reads = 6;
  }
  return {std::move(*places), options};
}

pinned_slots as_slots(const ready_pin& held) {
  pinned_slots out;
  out.from_ssd = held.from_ssd;
  for (const auto& block : held.pinned.blocks) {
    out.slots.push_back(block.slot.index);
    out.checksums.push_back(block.checksum);
  }
  return out;
}

remote_blocks as_remote(const ready_pin& held) {
  remote_blocks out;
  for (const auto& block : held.pinned.blocks)
    out.blocks.push_back({block.key, block.slot.index, block.checksum});
  return out;
}

}  // namespace

io_result disk::run(const io_job& job, std::uint64_t& slot) {
  const auto& key = job.block.name.key;
  const auto failed = [&](ec code, const char* why) { return io_result{job.id, {code, why}}; };
  if (job.what == io_job::kind::read) {
    const auto i = blocks.find(key);
    if (i == blocks.end()) return failed(ec::not_found, "the block is not on disk");
    if (i->second.content != job.block.checksum) return failed(ec::corrupt, "the block has rotted");
    slot = i->second.content;
    return {job.id, {}};
  }
  if (refuses) return failed(ec::io_error, "the disk takes nothing");
  if (job.what == io_job::kind::erase) {
    blocks.erase(key);
  } else {
    blocks[key] = {job.block, slot};
  }
  return {job.id, {}};
}

shard::shard(network& net, timeline& time, dice& luck, process self, std::size_t slots, disk* ssd)
    : net_(net),
      time_(time),
      luck_(luck),
      self_(self),
      ssd_(ssd),
      store_(store_of(slots, ssd)),
      contents_(slots) {
  if (ssd_ == nullptr) return;
  std::vector<ssd_block> found;
  for (const auto& [key, block] : ssd_->blocks) found.push_back(block.what);
  store_.recover(found);
}

void shard::soon(network::action what) {
  last_ = std::max(last_, time_.now() + luck_.between(1us, luck_.chance(5) ? 20ms : 200us));
  net_.in(self_, last_ - time_.now(), std::move(what));
}

prefix_view shard::look(const block_keys_t& keys) const {
  const auto held = store_.match(keys);
  prefix_view out;
  out.dram_blocks = held.dram;
  out.held_blocks = held.total();
  out.disk_block_ns = io_time.count();
  out.disk_wait_ns = static_cast<std::int64_t>(store_.ssd_stats().reads_pending) * out.disk_block_ns;
  return out;
}

void shard::look(block_keys_t keys, std::function<void(const prefix_view&)> answered) {
  soon([this, keys = std::move(keys), answered = std::move(answered)] {
    soon([view = look(keys), answered] { answered(view); });
  });
}

void shard::pin_then(std::uint64_t owner, const block_keys_t& keys, std::size_t from_ssd,
                     std::function<void(const ready_pin&)> answered, refused_fn refused) {
  const auto held = store_.pin(keys, owner_id{owner}, deadline(), from_ssd);
  if (!held) return refused(held.error());
  if (!held->ticket) return answered({{}, owner_id{owner}, held->pinned, 0});
  waiting_[held->ticket.value] = {owner, std::move(answered), std::move(refused)};
  pump();
}

void shard::pin(std::uint64_t owner, pin_order what, std::function<void(const pinned_slots&)> answered,
                refused_fn refused) {
  soon([this, owner, what = std::move(what), answered = std::move(answered), refused = std::move(refused)] {
    pin_then(
        owner, what.keys, what.from_ssd,
        [this, answered](const ready_pin& held) {
          soon([out = as_slots(held), answered] { answered(out); });
        },
        [this, refused](const error& why) { soon([why, refused] { refused(why); }); });
  });
}

void shard::pin_remote(std::uint64_t reader, const block_keys_t& keys, std::int64_t worth_ns,
                       std::function<void(const remote_blocks&)> answered, refused_fn refused) {
  soon([this, reader, keys, worth_ns, answered = std::move(answered), refused = std::move(refused)] {
    std::size_t from_ssd = all_blocks;
    if (worth_ns > 0) {
      const auto view = look(keys);
      from_ssd = static_cast<std::size_t>(std::max<std::int64_t>(worth_ns - view.disk_wait_ns, 0) /
                                          view.disk_block_ns);
    }
    pin_then(
        reader, keys, from_ssd, [answered](const ready_pin& held) { answered(as_remote(held)); }, refused);
  });
}

void shard::load(fetch_plan plan, std::function<void(bool all)> in,
                 std::function<void(const remote_blocks&)> answered) {
  soon([this, plan = std::move(plan), in = std::move(in), answered = std::move(answered)] {
    const auto owner = plan.id.owner();
    const auto ticket =
        store_.load(std::span{plan.keys}.subspan(plan.skip), plan.slots, owner_id{owner}, deadline());
    const auto nothing = [this, answered] { soon([answered] { answered({}); }); };
    if (!ticket) return nothing();
    waiting_[ticket->value] = {owner,
                               [this, answered](const ready_pin& held) {
                                 soon([out = as_remote(held), answered] { answered(out); });
                               },
                               [nothing](const error&) { nothing(); }};
    loads_[ticket->value] = in;
    pump();
  });
}

void shard::pump() {
  for (auto& ready : store_.take_ready()) {
    if (auto waiter = waiting_.extract(ready.ticket.value)) waiter.mapped().answered(ready);
  }
  if (ssd_ == nullptr || disk_busy_) return;
  if (flushed_ && store_.flush() == 0) std::exchange(flushed_, nullptr)();
  auto jobs = store_.take_io_jobs(4);
  if (jobs.empty()) return;
  disk_busy_ = true;
  const auto took = ssd_->extra + io_time * static_cast<int>(jobs.size());
  auto load = loads_.extract(jobs.front().load.value);
  const auto in = load ? std::move(load.mapped()) : nullptr;
  if (in) net_.in(self_, took / 2, [in] { in(false); });
  net_.in(self_, took, [this, in, jobs = std::move(jobs)] {
    std::vector<io_result> results;
    std::uint64_t nothing = 0;
    for (const auto& job : jobs)
      results.push_back(
          ssd_->run(job, job.what == io_job::kind::erase ? nothing : contents_[job.slot.index]));
    if (in && std::ranges::all_of(results, &io_result::ok)) in(true);
    // It may die before it hears of what the disk has done.
    net_.in(self_, luck_.between(1us, 200us), [this, results = std::move(results)] {
      disk_busy_ = false;
      store_.complete(results);
      pump();
    });
  });
}

void shard::withdraw(std::uint64_t owner) {
  for (auto i = waiting_.begin(); i != waiting_.end();) {
    if (i->second.owner != owner) {
      ++i;
      continue;
    }
    auto refused = std::move(i->second.refused);
    i = waiting_.erase(i);
    refused({ec::cancelled, "the request ended while its blocks were read from SSD"});
  }
}

void shard::flush(network::action done) {
  if (ssd_ == nullptr) return done();
  soon([this, done = std::move(done)]() mutable {
    flushed_ = std::move(done);
    store_.retry_writes();
    pump();
  });
}

void shard::reserve(std::uint64_t owner, std::uint32_t count,
                    std::function<void(const std::vector<slot_index>&)> answered, refused_fn refused) {
  soon([this, owner, count, answered = std::move(answered), refused = std::move(refused)] {
    const auto slots = store_.reserve(owner_id{owner}, count, deadline());
    pump();
    if (!slots) return soon([why = slots.error(), refused] { refused(why); });
    std::vector<slot_index> out;
    for (const auto& slot : *slots) out.push_back(slot.index);
    soon([out = std::move(out), answered] { answered(out); });
  });
}

void shard::commit(std::uint64_t owner, std::vector<commit_item> items) {
  soon([this, owner, items = std::move(items)] {
    for (const auto& item : items) {
      static_cast<void>(store_.commit(owner_id{owner}, item.slot, item.name, item.checksum));
    }
    if (news_) news_();
    pump();
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
  soon([this, owner] {
    store_.confirm(owner_id{owner});
    pump();
  });
}

void shard::release(std::uint64_t owner) {
  soon([this, owner] {
    store_.release_all(owner_id{owner});
    withdraw(owner);
    pump();
  });
}

void shard::expire() {
  soon([this] {
    for (const auto owner : store_.expire(time_.now())) withdraw(owner.value);
    pump();
  });
}

}  // namespace mooncaf::campaign
