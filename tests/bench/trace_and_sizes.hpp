#pragma once
// The command line of benches that play a trace against several sizes: TRACE.jsonl [SIZE…].

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "runtime/sim/trace_source.hpp"

namespace mooncaf {

/// @param unit   of the sizes, for who gives no trace.
/// @param usual  sizes for who gives none.
/// @error the exit status; why is on standard error by then.
inline tl::expected<std::pair<std::vector<sim::workload_record>, std::vector<std::uint64_t>>, int>
trace_and_sizes(int argc, char** argv, const char* unit, std::vector<std::uint64_t> usual) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s TRACE.jsonl [%s...]\n", argv[0], unit);
    return tl::make_unexpected(2);
  }
  auto trace = sim::load_trace(argv[1]);
  if (!trace) {
    std::fprintf(stderr, "%s\n", to_string(trace.error()).c_str());
    return tl::make_unexpected(1);
  }
  std::vector<std::uint64_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  return std::pair{std::move(*trace), sizes.empty() ? std::move(usual) : std::move(sizes)};
}

}  // namespace mooncaf
