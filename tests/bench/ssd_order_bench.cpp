// What a small SSD gains by knowing more of its blocks: which follow which, and which of them memory has,
// too. One node's memory over its SSD, written to when blocks leave memory; keys alone, of a trace.
//
//   mooncaf_ssd_order_bench TRACE.jsonl

#include <cstdio>
#include <vector>

#include "runtime/sim/node_cache.hpp"
#include "runtime/sim/trace_source.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

struct found {
  double share = 0;           ///< blocks of prompts that were found, as a prefix
  std::uint64_t written = 0;  ///< blocks to the SSD
};

found replay(const std::vector<workload_record>& trace, std::uint64_t dram, std::uint64_t ssd,
             const eviction_options& order) {
  conductor_core nobody{conductor_options{}};
  node_cache cache{{{}, order, dram, ssd, write_policy::write_back, 0}, nobody, node_id{1}};
  std::uint64_t now = 0, asked = 0, hits = 0;
  std::vector<block_key> keys;
  node_cache::pins pins;
  for (const auto& request : trace) {
    ++now;
    keys.clear();
    for (const auto id : request.hash_ids) keys.push_back({id + 1, ~id * 0x9E3779B97F4A7C15ull});
    const auto hit = cache.pin(keys, static_cast<std::uint32_t>(keys.size()), now, pins);
    cache.insert(keys, hit.blocks, now);
    cache.unpin(pins);
    asked += keys.size();
    hits += hit.blocks;
  }
  return {static_cast<double>(hits) / static_cast<double>(asked), cache.ssd_written()};
}

}  // namespace

int main(int argc, char** argv) {
  const auto trace = argc > 1 ? load_trace(argv[1]) : fail(ec::invalid_argument, "usage: bench TRACE.jsonl");
  if (!trace) {
    std::fprintf(stderr, "%s\n", to_string(trace.error()).c_str());
    return 1;
  }
  std::printf("| memory | SSD | no parents | written | parents | written | and memory | written |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (const std::uint64_t dram : {1'000, 3'000}) {
    for (const double share : {0.5, 1.0, 2.0}) {
      const auto ssd = static_cast<std::uint64_t>(share * static_cast<double>(dram));
      std::printf("| %llu | %llu |", static_cast<unsigned long long>(dram),
                  static_cast<unsigned long long>(ssd));
      for (const auto& order : {eviction_options{.leaf_first = false, .copies_first = false},
                                eviction_options{.copies_first = false}, eviction_options{}}) {
        const auto f = replay(*trace, dram, ssd, order);
        std::printf(" %.4f | %llu |", f.share, static_cast<unsigned long long>(f.written));
      }
      std::printf("\n");
    }
  }
}
