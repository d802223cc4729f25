// What the object store's directory keeps of a trace under each rule of eviction: the blocks of each request
// as objects, each with its parent and what computing it again costs, through the object table as it is in
// the product, leases and watermarks included. Time is the trace's.
//
//   mooncaf_store_eviction_bench TRACE.jsonl [BLOCKS…]

#include <cstdio>
#include <string>
#include <vector>

#include "storage/objects/table/object_table.hpp"
#include "tests/bench/trace_and_sizes.hpp"

using namespace mooncaf;
using sim::workload_record;

namespace {

constexpr std::uint64_t block_bytes = 1 * MiB;

/// In units of the first block's. A token of LLaMA2-70B takes 140 GFLOP for its weights, and 2.6 MFLOP for
/// each token before it: as much again after 53,000, which is 104 blocks of 512.
double cost_of(std::size_t depth) { return 1 + static_cast<double>(depth) / 104; }

struct outcome {
  double hits = 0, saved = 0;
  std::uint64_t regretted = 0;
};

outcome replay(const std::vector<workload_record>& trace, std::uint64_t blocks, eviction_policy rule,
               bool with_ties) {
  object_table_options options;
  options.eviction = rule;
  object_table table{options};
  if (table.mount("segment", "host", blocks * block_bytes) == 0) std::abort();
  std::uint64_t asked = 0, hit = 0;
  double cost = 0, saved = 0;
  std::vector<std::string> keys;
  for (const auto& request : trace) {
    const auto now = time_point{std::chrono::hours(1)} + std::chrono::milliseconds(request.timestamp_ms);
    table.tick(now);
    keys.clear();
    for (const auto& h : request.hash_ids) keys.push_back(std::to_string(h));
    std::size_t there = 0;
    while (there < keys.size() && table.exists(keys[there], now)) ++there;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ++asked;
      cost += cost_of(i);
      if (i < there) {
        ++hit;
        saved += cost_of(i);
        continue;
      }
      object_ties ties;
      if (with_ties) ties = {{}, i == 0 ? std::string_view{} : keys[i - 1], cost_of(i)};
      const auto got = table.reserve(1, keys[i], block_bytes, {}, {}, now, ties);
      if (got.code == store_code::ok) static_cast<void>(table.publish(1, got.ticket, 0, now));
    }
  }
  return {static_cast<double>(hit) / static_cast<double>(asked), saved / cost, table.counts().regretted};
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = trace_and_sizes(argc, argv, "BLOCKS", {1000, 3000, 10'000, 30'000, 50'000});
  if (!given) return given.error();
  const auto& [trace, sizes] = *given;
  struct column {
    const char* name;
    eviction_policy rule;
    bool ties;
  };
  const column columns[] = {{"lru, no parents", eviction_policy::lru, false},
                            {"lru", eviction_policy::lru, true},
                            {"lfu", eviction_policy::lfu, true},
                            {"length_aware", eviction_policy::length_aware, true},
                            {"cost_aware", eviction_policy::cost_aware, true}};
  std::printf("%-9s", "blocks");
  for (const auto& c : columns) std::printf("%-26s", c.name);
  std::printf("\n%-9s", "");
  for (std::size_t i = 0; i < std::size(columns); ++i) std::printf("%-26s", "hit, saved, put again");
  std::printf("\n");
  for (const auto blocks : sizes) {
    std::printf("%-9llu", static_cast<unsigned long long>(blocks));
    for (const auto& c : columns) {
      const auto o = replay(trace, blocks, c.rule, c.ties);
      std::printf("%.4f %.4f %-12llu", o.hits, o.saved, static_cast<unsigned long long>(o.regretted));
    }
    std::printf("\n");
  }
  return 0;
}
