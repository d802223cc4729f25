// KV blocks of a trace beside objects of the store on one node: what is found of either in memory that is
// divided by hand, in memory of which a part goes where it is needed more, and in one list of both. The block
// store, the object table and the boundary are the product's; time is the trace's.
//
//   mooncaf_memory_boundary_bench TRACE.jsonl [GIB…]
//
// A block of 512 tokens and an object are 1 MiB each. Objects are asked for 40 times a second, with a
// frequency by rank that does not change, and put where they are missing. "By turns" there are objects alone
// in the first and the last third of the trace's hour, and blocks alone in the second; "together" there are
// both all the time.

#include <sys/mman.h>

#include <cmath>
#include <cstdio>
#include <list>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "storage/memory_boundary.hpp"
#include "storage/objects/table/object_table.hpp"
#include "storage/tiered_store.hpp"
#include "tests/bench/trace_and_sizes.hpp"

using namespace mooncaf;
using sim::workload_record;

namespace {

constexpr std::uint64_t unit = 1 * MiB;      // of the object table
constexpr std::size_t slot_bytes = 4 * KiB;  // of the block store: its memory is never touched

/// What happens: at a time, the blocks of a request, or one object.
struct event {
  time_point at;
  const workload_record* request = nullptr;
  std::uint64_t object = 0;
};

struct found {
  std::uint64_t asked = 0, hits = 0;
  double rate() const { return asked == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(asked); }
};

struct outcome {
  found blocks, objects;
  std::uint64_t slabs = 0;
  double both() const {
    return static_cast<double>(blocks.hits + objects.hits) /
           static_cast<double>(blocks.asked + objects.asked);
  }
};

std::vector<event> events_of(const std::vector<workload_record>& trace, bool by_turns) {
  constexpr std::uint64_t objects = 40'000;
  constexpr double a_second = 40;
  std::vector<double> sum(objects);
  double total = 0;
  for (std::uint64_t i = 0; i < objects; ++i) sum[i] = total += 1 / std::pow(static_cast<double>(i + 1), 0.8);
  std::mt19937_64 random{1};
  const auto begin = time_point{std::chrono::hours(1)};
  const auto end_ms = static_cast<double>(trace.back().timestamp_ms);
  std::vector<event> all;
  const auto third = [&](double ms) { return static_cast<int>(3 * ms / (end_ms + 1)); };
  double next_ms = 0;
  const auto until = [&](double ms) {
    for (; next_ms <= ms; next_ms += 1000 / a_second) {
      if (by_turns && third(next_ms) == 1) continue;
      const auto drawn = std::generate_canonical<double, 53>(random) * total;
      const auto which = std::lower_bound(sum.begin(), sum.end(), drawn) - sum.begin();
      all.push_back({begin + std::chrono::microseconds(static_cast<std::int64_t>(next_ms * 1000)), nullptr,
                     static_cast<std::uint64_t>(which)});
    }
  };
  for (const auto& r : trace) {
    until(static_cast<double>(r.timestamp_ms));
    if (!by_turns || third(static_cast<double>(r.timestamp_ms)) == 1)
      all.push_back({begin + std::chrono::milliseconds(r.timestamp_ms), &r, 0});
  }
  return all;
}

block_key key_of(std::int64_t hash_id) {
  return {static_cast<std::uint64_t>(hash_id) + 1, 0x9E3779B97F4A7C15ull};
}

/// Both, as a node has them.
class node {
 public:
  node(std::uint64_t blocks, std::uint64_t objects, std::uint64_t shared)
      : memory_(static_cast<std::byte*>(::mmap(nullptr, (blocks + shared) * slot_bytes, PROT_NONE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
        store_(*block_allocator::create({memory_, (blocks + shared) * slot_bytes}, slot_bytes), {}),
        table_({}),
        bytes_((blocks + shared) * slot_bytes),
        boundary_(shared * unit, memory_boundary::slab_for(shared * unit)) {
    segment_ = table_.mount("segment", "host", (objects + shared) * unit);
    if (segment_ == 0) std::abort();
  }
  ~node() { ::munmap(memory_, bytes_); }

  outcome run(const std::vector<event>& all) {
    outcome o;
    auto looked = all.front().at;
    for (const auto& e : all) {
      for (; e.at - looked >= look_interval; looked += look_interval) look(looked);
      table_.tick(e.at);
      if (e.request) ask(*e.request, o.blocks, e.at);
      else ask(e.object, o.objects, e.at);
    }
    using side = memory_boundary::side;
    o.slabs = boundary_.moved_to(side::blocks) + boundary_.moved_to(side::objects);
    return o;
  }

 private:
  static constexpr duration look_interval = std::chrono::milliseconds(250);

  void look(time_point now) {
    using side = memory_boundary::side;
    if (boundary_.shared() == 0) return;
    static_cast<void>(store_.expire(now));
    for (bool again = true; again;) {
      static_cast<void>(store_.withhold(boundary_.withheld_from(side::blocks) / unit));
      auto blocks = store_.boundary();
      for (auto* const n : {&blocks.withheld_bytes, &blocks.bytes, &blocks.idle_bytes})
        *n *= unit / slot_bytes;
      const auto objects = table_.withhold(segment_, boundary_.withheld_from(side::objects), now);
      again = boundary_.look(blocks, *objects, now);
    }
  }

  void ask(const workload_record& request, found& f, time_point now) {
    std::vector<block_key> keys;
    for (const auto h : request.hash_ids) keys.push_back(key_of(h));
    const owner_id owner{next_owner_++};
    f.asked += keys.size();
    const auto there = store_.pin(keys, owner, now + std::chrono::hours(1));
    if (!there) std::abort();
    const auto held = there->pinned.blocks.size();
    f.hits += held;
    if (const auto slots = store_.reserve(owner, keys.size() - held, now + std::chrono::hours(1)))
      for (std::size_t i = held; i < keys.size(); ++i)
        static_cast<void>(
            store_.commit(owner, (*slots)[i - held].index,
                          {keys[i], i == 0 ? block_key{} : keys[i - 1], static_cast<std::uint32_t>(i)}, 0));
    store_.release_all(owner);
  }

  void ask(std::uint64_t object, found& f, time_point now) {
    ++f.asked;
    const auto key = std::to_string(object);
    if (table_.exists(key, now)) {
      ++f.hits;
      return;
    }
    const auto got = table_.reserve(1, key, unit, {}, {}, now);
    if (got.code == store_code::ok) static_cast<void>(table_.publish(1, got.ticket, 0, now));
  }

  std::byte* memory_;
  tiered_store store_;
  object_table table_;
  std::size_t bytes_;
  memory_boundary boundary_;
  std::uint32_t segment_ = 0;
  std::uint64_t next_owner_ = 1;
};

/// One list of both, least recently used last; a prompt's blocks leave from its end.
outcome ideal(const std::vector<event>& all, std::uint64_t units) {
  std::list<std::uint64_t> order;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> at;
  const auto use = [&](std::uint64_t what) {
    const auto known = at.find(what);
    if (known != at.end()) order.erase(known->second);
    order.push_front(what);
    at[what] = order.begin();
    if (order.size() > units) {
      at.erase(order.back());
      order.pop_back();
    }
    return known != at.end();
  };
  outcome o;
  for (const auto& e : all) {
    if (!e.request) {
      ++o.objects.asked;
      o.objects.hits += use(e.object * 2 + 1);
      continue;
    }
    const auto& ids = e.request->hash_ids;
    std::size_t there = 0;
    while (there < ids.size() && at.count(static_cast<std::uint64_t>(ids[there]) * 2) != 0) ++there;
    o.blocks.asked += ids.size();
    o.blocks.hits += there;
    for (auto i = ids.size(); i > 0; --i) use(static_cast<std::uint64_t>(ids[i - 1]) * 2);
  }
  return o;
}

void print(const char* name, const outcome& o) {
  std::printf("  %-28s both %.4f   blocks %.4f   objects %.4f   slabs %llu\n", name, o.both(),
              o.blocks.rate(), o.objects.rate(), static_cast<unsigned long long>(o.slabs));
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = trace_and_sizes(argc, argv, "GIB", {16, 32, 64});
  if (!given) return given.error();
  const auto& [trace, sizes] = *given;
  for (const bool by_turns : {true, false}) {
    const auto all = events_of(trace, by_turns);
    for (const auto gib : sizes) {
      const auto units = gib * 1024;
      std::printf("%llu GiB, %s\n", static_cast<unsigned long long>(gib), by_turns ? "by turns" : "together");
      print("halves", node{units / 2, units / 2, 0}.run(all));
      outcome best;
      std::uint64_t best_share = 0;
      for (std::uint64_t eighths = 1; eighths < 8; ++eighths) {
        const auto o = node{units * eighths / 8, units - units * eighths / 8, 0}.run(all);
        if (best.blocks.asked != 0 && o.both() <= best.both()) continue;
        best = o;
        best_share = eighths;
      }
      print(("best fixed, " + std::to_string(best_share) + "/8 to blocks").c_str(), best);
      print("moving, an eighth each own", node{units / 8, units / 8, units - units / 4}.run(all));
      print("one list of both", ideal(all, units));
    }
  }
  return 0;
}
