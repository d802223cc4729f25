// The three tiers of KV together: device blocks over a node's memory over a disk, with requests that are
// cancelled, a disk that is late, rots and refuses, and too little room everywhere. Every byte that a pass
// reads is compared with what belongs there, in each order of pages.

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <thread>

#include "gpu/linked/linked_device.hpp"
#include "runtime/model/kv_arrival.hpp"
#include "runtime/model/kv_mirror.hpp"
#include "tests/storage/tiered_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

/// Blocks of 256 bytes, as the tiered fixture has them.
constexpr kv_layout layout_of(page_order order) {
  kv_layout l{2, 1, 4, 8, kv_dtype::f16};
  l.pages = order;
  return l;
}
constexpr page_order orders[] = {page_order::page_first_direct, page_order::page_first,
                                 page_order::layer_first};
constexpr std::uint32_t tier_block_tokens = layout_of(orders[0]).block_tokens,
                        tier_longest = 7 * tier_block_tokens;
/// Too few for all. Of pages by layer those of one group.
constexpr std::size_t slots_of(page_order order) {
  return order == page_order::layer_first ? kv_layout::layer_group : 20;
}
static_assert(layout_of(orders[0]).block_bytes() == test::tiered_block_bytes);

/// Of a device's block, whose bytes follow from its key.
std::vector<std::byte> row_of(const kv_layout& layout, const block_key& key, std::size_t offset) {
  const auto all = bytes_of(key, test::tiered_block_bytes);
  return {all.begin() + static_cast<std::ptrdiff_t>(offset),
          all.begin() + static_cast<std::ptrdiff_t>(offset + layout.row_bytes())};
}

/// Whether a page holds what belongs there, row by row.
bool page_is(const kv_layout& layout, const std::byte* page, const block_key& key) {
  const auto strides = layout.page();
  for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer)
    for (const bool value : {false, true})
      for (std::uint32_t token = 0; token < tier_block_tokens; ++token) {
        const auto expected = row_of(layout, key, layout.offset(layer, 0, value, token));
        const std::span there{page + strides.offset(layer, value ? 1 : 0, token), expected.size()};
        if (!std::ranges::equal(expected, there)) return false;
      }
  return true;
}

/// What all requests share: the device and its blocks, memory and disk with what was asked of it, a shard's
/// mailbox (the lock).
struct tiers_world {
  tiers_world(page_order order, std::uint32_t seed, std::size_t device_blocks)
      : layout(layout_of(order)),
        tiers(slots_of(order), options_of(seed), layout.pieces()),
        dev(*make_linked_device({{1, false, {}}, {seed % 2 == 0 ? 0 : std::size_t{4} << 20, {}}, 2})),
        kv(*device_kv::make(*dev, layout, device_blocks * test::tiered_block_bytes, tier_longest,
                            {seed % 2 == 0, seed % 3 == 0 ? 2u : 0u}, tiers.tree)),
        random(seed) {}

  static tiered_store_options options_of(std::uint32_t seed) {
    auto o = options_for(static_cast<write_policy>(seed / 2 % 3), 10 + seed % 20);
    o.dram.eviction.policy = static_cast<eviction_policy>(seed / 3 % 3);
    o.max_reads = 1 + seed % 5;
    o.device_gives_back = seed % 2 != 0 && seed % 3 != 0;
    return o;
  }
  /// What a shard is told of other nodes, late or never. @pre locked.
  void hear() {
    if (random() % 3 == 0) tiers.store.copies_are(asked, kept);
    asked = tiers.store.ask_for_copies();
    kept.clear();
    for (std::size_t i = 0; i < asked.size(); i += 2)
      if (random() % 2 == 0) kept.push_back(asked[i]);
  }
  /// Some of what the disk was asked for happens. @pre locked.
  void disk_works() {
    for (const auto& job : tiers.store.take_io_jobs(random() % 4)) jobs.push_back(job);
    const auto count = std::min<std::size_t>(jobs.size(), random() % 5);
    tiers.disk.writes_fail = random() % 10 == 0;
    if (random() % 40 == 0 && !tiers.disk.blocks.empty()) tiers.disk.blocks.erase(tiers.disk.blocks.begin());
    std::vector<io_result> done;
    for (std::size_t i = 0; i < count; ++i) done.push_back(tiers.disk.run(jobs[i]));
    jobs.erase(jobs.begin(), jobs.begin() + static_cast<std::ptrdiff_t>(count));
    tiers.store.complete(done);
    for (auto& ready : tiers.store.take_ready()) promoted.push_back(std::move(ready));
    hear();
    clock += 10ms;
    for (const auto dead : tiers.store.expire(clock)) FAIL("owner " << dead.value << " expired");
  }

  const kv_layout layout;
  std::mutex mutex;
  tiered_fixture tiers;
  std::vector<io_job> jobs;
  std::vector<ready_pin> promoted;
  time_point clock{};
  std::uint64_t next_owner = 1;
  bool alone = false;  ///< one worker at a time
  std::vector<block_key> asked, kept;
  std::size_t read_blocks = 0, cancelled = 0, refused = 0, promotions = 0, adopted = 0, written = 0;
  std::size_t arrived = 0, stopped = 0;  ///< prompts that landed from elsewhere; … that were given up
  std::unique_ptr<device> dev;
  std::shared_ptr<device_kv> kv;
  std::mt19937 random;
};

/// A worker: runs one request after the other, as a prefill worker would.
class worker {
 public:
  worker(tiers_world& w, std::uint32_t seed)
      : world_(w),
        layout(w.layout),
        mirror_(*w.dev, w.kv, w.kv->layout()),
        compute_(w.dev->make_copy_queue()),
        writes_(w.dev->make_copy_queue()),
        arrivals_(w.dev->make_copy_queue()),
        random_(seed) {
    scratch_.resize(tier_longest / tier_block_tokens * test::tiered_block_bytes);
  }

  void request() {
    std::vector<int> choices;
    for (std::uint32_t i = 0, n = 1 + below(tier_longest / tier_block_tokens); i < n; ++i)
      choices.push_back(static_cast<int>(below(i == 0 ? 3 : 2)));
    names_ = prompt(choices);
    keys_ = keys_of(names_);
    const auto end =
        static_cast<std::uint32_t>(names_.size() - 1) * tier_block_tokens + 1 + below(tier_block_tokens);
    const owner_id owner{next_owner()};
    auto start = begin(owner, end);
    bool cancelled = start && *start < end - 1 && below(3) == 0 && !arrive(owner, *start, end - 1);
    while (start && *start < end && !cancelled) {
      const auto n = std::min(end - *start, 1 + below(3 * tier_block_tokens));
      cancelled = !pass(owner, *start, n, below(12) == 0);
      *start += n;
    }
    arrival_.reset();
    world_.kv->let_go(owner.value);
    if (below(2) == 0) write_back();
    const std::lock_guard lock(world_.mutex);
    if (start && !cancelled && below(8) != 0) commit(owner);
    world_.cancelled += cancelled;
    // Some are read by somebody for longer: decode, or a peer.
    if (start && !cancelled && below(3) == 0)
      reading_.push_back({owner, keys_, hosts_, in_memory_ / tier_block_tokens});
    else world_.tiers.store.release_all(owner);
    if (reading_.size() > 2 || (!reading_.empty() && below(3) == 0)) let_go();
    std::erase_if(world_.promoted, [&](const ready_pin& p) { return p.owner == owner; });
    world_.disk_works();
    std::string why;
    if (!world_.tiers.store.consistent(&why)) FAIL(why);
  }

  void end() {
    const std::lock_guard lock(world_.mutex);
    while (!reading_.empty()) let_go();
  }

 private:
  struct reader {
    owner_id owner;
    std::vector<block_key> keys;
    std::vector<std::byte*> hosts;
    std::size_t full;
  };
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  std::uint64_t next_owner() {
    const std::lock_guard lock(world_.mutex);
    return world_.next_owner++;
  }

  /// Of who read tier_longest, whose blocks nobody has touched. @pre locked.
  void let_go() {
    const auto& r = reading_.front();
    for (std::size_t b = 0; b < r.full; ++b) REQUIRE(page_is(layout, r.hosts[b], r.keys[b]));
    world_.tiers.store.release_all(r.owner);
    reading_.erase(reading_.begin());
  }

  /// Pins what there is of the prompt, reads from disk if it comes in time, reserves the rest.
  /// @returns positions that are there; nothing if there is no room.
  std::optional<std::uint32_t> begin(owner_id owner, std::uint32_t end) {
    const auto reusable = std::span(keys_).first((end - 1) / tier_block_tokens);
    std::vector<pinned_block> held;
    {
      const std::lock_guard lock(world_.mutex);
      auto reply = world_.tiers.store.pin(reusable, owner, later, below(3) == 0 ? 0 : 10);
      if (!reply) return std::nullopt;
      held = std::move(reply->pinned.blocks);
      for (std::uint32_t patience = below(200); reply->ticket; --patience) {
        world_.disk_works();
        const auto came = std::ranges::find(world_.promoted, reply->ticket, &ready_pin::ticket);
        if (came != world_.promoted.end()) {
          world_.promotions += came->from_ssd;
          held = std::move(came->pinned.blocks);
          world_.promoted.erase(came);
          break;
        }
        if (patience == 0) return std::nullopt;  // the client went away
      }
      for (const auto& b : held) {
        CHECK(checksum64(b.slot.address, layout.pieces()) == b.checksum);
        CHECK(page_is(layout, b.slot.address, b.key));
      }
    }
    hosts_.clear();
    own_.clear();
    for (std::size_t b = 0; b < held.size(); ++b) {
      REQUIRE(held[b].key == keys_[b]);  // no hole
      hosts_.push_back(held[b].slot.address);
    }
    const std::lock_guard lock(world_.mutex);
    const auto fresh = world_.tiers.store.reserve(owner, layout.blocks_for(end) - hosts_.size(), later);
    if (!fresh) {
      ++world_.refused;
      return std::nullopt;
    }
    for (const auto& s : *fresh) {
      own_.push_back(s);
      hosts_.push_back(s.address);
      layout.pieces().each(0, test::tiered_block_bytes, [&](std::size_t at, std::size_t length) {
        std::fill_n(s.address + at, length, std::byte{0xEE});
      });
    }
    const auto here = static_cast<std::uint32_t>(held.size());
    in_memory_ = here * tier_block_tokens;
    const auto adopted = world_.kv->adopt(owner.value, reusable, here);
    world_.adopted += adopted > here ? adopted - here : 0;
    return std::max(here, adopted) * tier_block_tokens;
  }

  /// Into the page of the token's block, as it lies there.
  void write_row(std::uint32_t layer, bool value, std::uint32_t token) {
    const auto b = token / tier_block_tokens, t = token % tier_block_tokens;
    std::ranges::copy(row_of(layout, keys_[b], layout.offset(layer, 0, value, t)),
                      hosts_[b] + layout.page().offset(layer, value ? 1 : 0, t));
  }

  /// The rest of the prompt comes from elsewhere, in pieces, and goes on to the device as it lands, if that
  /// has room; then the first pass of decode. @returns false if it was cancelled on its way.
  bool arrive(owner_id owner, std::uint32_t& start, std::uint32_t tokens) {
    const std::span full = std::span(keys_).first(tokens / tier_block_tokens);
    const auto arrival = kv_arrival::make(world_.kv, arrivals_,
                                          {owner.value, {full.begin(), full.end()}, hosts_, tokens}, nullptr);
    if (!arrival || in_memory_ < start) return true;
    if (below(2) == 0) arrival->landed(0, start);
    struct piece {
      std::uint32_t layer, first, last;
    };
    std::vector<piece> pieces;
    for (auto at = start; at < tokens;) {
      const auto last = std::min(tokens, at + 1 + below(2 * tier_block_tokens));
      for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer) pieces.push_back({layer, at, last});
      at = last;
    }
    if (below(3) == 0) std::ranges::shuffle(pieces, random_);
    const auto stop = below(4) == 0 ? below(static_cast<std::uint32_t>(pieces.size())) : pieces.size();
    for (std::size_t i = 0; i < pieces.size() && i < stop; ++i) {
      const auto& p = pieces[i];
      for (auto t = p.first; t < p.last; ++t)
        for (const bool value : {false, true}) write_row(p.layer, value, t);
      arrival->landed(p.layer, p.first, p.last);
    }
    const std::unique_lock count(world_.mutex);
    if (stop < pieces.size()) {
      ++world_.stopped;
      // Its slots are somebody else's next: no copy may read them any more.
      arrival->stop();
      return false;
    }
    ++world_.arrived;
    arrival->finish();
    REQUIRE(arrival->loaded());
    arrival_ = below(8) != 0 ? arrival : nullptr;  // some end before their first step
    start = in_memory_ = tokens;
    return true;
  }

  /// One pass over `n` new positions. @returns false if it was cancelled on its way.
  bool pass(owner_id owner, std::uint32_t start, std::uint32_t n, bool cancel) {
    const std::vector<std::int32_t> tokens(n);
    batch_item item{tokens, start, hosts_, false, {}, 0, owner.value, keys_};
    std::uint32_t from = start;
    item.may_stay = below(6) != 0;
    item.written_from = &from;
    item.arrival = arrival_.get();
    const auto moved = world_.kv->stats().loaded_bytes;
    REQUIRE(mirror_.begin({&item, 1}) == 1);
    const auto stop = cancel ? below(layout.n_layers) : layout.n_layers;
    const auto arrived = std::exchange(arrival_, nullptr) != nullptr;
    if (below(2) == 0) mirror_.load_all();
    for (std::uint32_t layer = 0; layer < stop; ++layer) {
      mirror_.load(layer);
      compute_->wait(mirror_.loaded(layer));
      read(layer, start);
      mirror_.store(layer, write(layer, start, start + n));
    }
    wait_for(compute_->record());  // it reads `scratch_`, and nobody's blocks are given back before
    mirror_.end(!cancel);
    if (arrived && world_.alone) REQUIRE(world_.kv->stats().loaded_bytes == moved);
    if (cancel) return false;
    check_rows(from, start + n);
    if (from <= in_memory_) in_memory_ = start + n;
    return true;
  }

  /// What a device's writer does: a chain that only the device has, to memory, if that has room.
  void write_back() {
    const auto w = world_.kv->next_write(below(3) == 0);
    if (!w) return;
    std::vector<block_key> keys;
    for (const auto& b : w->chain) keys.push_back(b.key);
    const owner_id owner{next_owner()};
    std::uint32_t held = 0;
    std::vector<slot_ref> pages;
    {
      const std::lock_guard lock(world_.mutex);
      held = world_.tiers.store.match(keys).total();
      if (const auto got = world_.tiers.store.reserve(owner, keys.size() - held, later)) pages = *got;
      else return world_.kv->wrote(w->id, held);
    }
    std::vector<kv_copy> copies;
    for (std::size_t i = 0; i < pages.size(); ++i)
      for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer)
        append_rows(layout, world_.kv->block(w->chain[held + i].block), pages[i].address, layer, 0,
                    tier_block_tokens, copies);
    writes_->store(copies);
    wait_for(writes_->record());
    const std::lock_guard lock(world_.mutex);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const auto& b = w->chain[held + i];
      REQUIRE(page_is(layout, pages[i].address, b.key));
      REQUIRE(world_.tiers.store.commit(owner, pages[i].index, {b.key, b.parent, b.depth},
                                        checksum64(pages[i].address, layout.pieces())));
    }
    world_.written += pages.size();
    world_.tiers.store.release_all(owner);
    world_.kv->wrote(w->id, static_cast<std::uint32_t>(keys.size()));
  }

  /// What attention would read, compared with what belongs there.
  void read(std::uint32_t layer, std::uint32_t start) {
    const auto at = layout.offset(layer, 0, false, 0);
    const auto count = layout.blocks_for(start);
    std::vector<kv_copy> out;
    for (std::size_t b = 0; b < count; ++b)
      out.push_back({mirror_.blocks(0)[b] + at, scratch_.data() + b * test::tiered_block_bytes + at,
                     layout.layer_bytes(), 0, 1});
    compute_->store(out);
    wait_for(compute_->record());
    for_rows(layer, 0, start, [&](std::uint32_t b, std::size_t offset) {
      const auto expected = row_of(layout, keys_[b], offset);
      REQUIRE(std::ranges::equal(
          expected, std::span(scratch_).subspan(b * test::tiered_block_bytes + offset, expected.size())));
    });
    const std::lock_guard lock(world_.mutex);
    world_.read_blocks += count;
  }

  event_ptr write(std::uint32_t layer, std::uint32_t from, std::uint32_t to) {
    std::vector<kv_copy> in;
    for_rows(layer, from, to, [&](std::uint32_t b, std::size_t offset) {
      const auto row = row_of(layout, keys_[b], offset);
      std::ranges::copy(
          row, scratch_.begin() + static_cast<std::ptrdiff_t>(b * test::tiered_block_bytes + offset));
      in.push_back({mirror_.blocks(0)[b] + offset, scratch_.data() + b * test::tiered_block_bytes + offset,
                    row.size(), 0, 1});
    });
    compute_->load(in);
    return compute_->record();
  }

  /// What was written back, in the node's memory.
  void check_rows(std::uint32_t from, std::uint32_t to) {
    const auto strides = layout.page();
    for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer)
      for (auto p = from; p < to; ++p)
        for (const bool value : {false, true}) {
          const auto b = p / tier_block_tokens, token = p % tier_block_tokens;
          const auto expected = row_of(layout, keys_[b], layout.offset(layer, 0, value, token));
          const auto* const there = hosts_[b] + strides.offset(layer, value ? 1 : 0, token);
          REQUIRE(std::ranges::equal(expected, std::span(there, expected.size())));
        }
  }

  template <class Visit>
  void for_rows(std::uint32_t layer, std::uint32_t from, std::uint32_t to, Visit&& visit) {
    for (auto p = from; p < to; ++p)
      for (const bool value : {false, true})
        visit(p / tier_block_tokens, layout.offset(layer, 0, value, p % tier_block_tokens));
  }

  /// Full blocks of its own that are in memory, parents first. @pre locked.
  void commit(owner_id owner) {
    const auto held = hosts_.size() - own_.size();
    for (auto b = held; b < in_memory_ / tier_block_tokens; ++b) {
      const auto& slot = own_[b - held];
      REQUIRE(
          world_.tiers.store.commit(owner, slot.index, names_[b], checksum64(slot.address, layout.pieces())));
    }
  }

  tiers_world& world_;
  const kv_layout layout;
  kv_mirror mirror_;
  std::unique_ptr<copy_queue> compute_, writes_;
  std::shared_ptr<copy_queue> arrivals_;
  std::shared_ptr<kv_arrival> arrival_;  ///< of the request's first pass
  std::mt19937 random_;
  std::vector<block_name> names_;
  std::vector<block_key> keys_;
  std::vector<std::byte*> hosts_;
  std::vector<slot_ref> own_;
  std::uint32_t in_memory_ = 0;  ///< leading positions that `hosts_` have
  std::vector<std::byte> scratch_;
  std::vector<reader> reading_;
};

/// Nothing is held for anybody, in any tier.
void check_nothing_leaked(tiers_world& w) {
  w.tiers.disk.writes_fail = false;
  std::vector<io_result> done;
  for (const auto& job : w.jobs) done.push_back(w.tiers.disk.run(job));
  w.tiers.store.complete(done);
  w.tiers.drain();
  w.tiers.check();
  const auto counts = w.tiers.store.integrity();
  CHECK(counts.owners == 0);
  CHECK(counts.pinned == 0);
  CHECK(counts.free + counts.committed == w.tiers.memory.slots.total());
  CHECK(w.kv->stats().blocks_used <= w.kv->stats().blocks);
  w.kv->start_over();
  CHECK(w.kv->stats().blocks_used == 0);
}

}  // namespace

TEST_CASE(
    "requests over three tiers that are full, slow and broken read what belongs there, and leak nothing") {
  for (const auto order : orders) {
    CAPTURE(to_string(layout_of(order)));
    std::size_t read = 0, cancelled = 0, refused = 0, promotions = 0, adopted = 0, written = 0;
    std::size_t arrived = 0, stopped = 0, copies_dropped = 0, last_copies_kept = 0;
    for (std::uint32_t seed = 1; seed <= 22; ++seed) {
      CAPTURE(seed);
      tiers_world w(
          order, seed,
          (seed % 2 == 0 ? 1 : 2) * tier_longest / tier_block_tokens + seed % 9);  // some stay in odd ones
      w.alone = true;
      worker one(w, 100 + seed), other(w, 200 + seed);
      for (int i = 0; i < 100; ++i) (w.random() % 2 == 0 ? one : other).request();
      one.end(), other.end();
      check_nothing_leaked(w);
      read += w.read_blocks, cancelled += w.cancelled, refused += w.refused, promotions += w.promotions;
      adopted += w.adopted, written += w.written;
      arrived += w.arrived, stopped += w.stopped;
      copies_dropped += w.tiers.store.ssd_stats().copies_dropped;
      last_copies_kept += w.tiers.store.ssd_stats().last_copies_kept;
    }
    CHECK(read > 1000);
    CHECK(cancelled > 50);
    CHECK(promotions > 50);
    CHECK(refused > 10);
    CHECK(adopted > 50);
    CHECK(written > 50);
    CHECK(arrived > 50);
    CHECK(stopped > 20);
    CHECK(copies_dropped > 20);
    CHECK(last_copies_kept > 10);
  }
}

TEST_CASE("workers side by side share the tiers without a byte in the wrong place") {
  for (const auto order : orders) {
    for (std::uint32_t seed = 1; seed <= 4; ++seed) {
      CAPTURE(to_string(layout_of(order)));
      CAPTURE(seed);
      tiers_world w(order, seed, (seed % 2 == 0 ? 1 : 2) * tier_longest / tier_block_tokens + seed);
      std::vector<std::thread> threads;
      for (std::uint32_t t = 0; t < 3; ++t)
        threads.emplace_back([&w, t, seed] {
          worker mine(w, 1000 * t + seed);
          for (int i = 0; i < 40; ++i) mine.request();
          mine.end();
        });
      for (auto& t : threads) t.join();
      check_nothing_leaked(w);
      CHECK(w.read_blocks > 0);
    }
  }
}
