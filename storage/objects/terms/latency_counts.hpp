#pragma once
// How long things took: a histogram of fixed bounds.

#include <algorithm>
#include <array>
#include <cstdint>

#include "runtime/base/units.hpp"

namespace mooncaf {

struct latency_counts {
  /// Upper bounds in nanoseconds, inclusive; times beyond the last are in one more.
  static constexpr std::array<std::uint64_t, 15> bounds{
      1'000,     2'000,     5'000,      20'000,      50'000,      100'000,       200'000,       500'000,
      1'000'000, 5'000'000, 20'000'000, 100'000'000, 500'000'000, 2'000'000'000, 20'000'000'000};
  std::array<std::uint64_t, bounds.size() + 1> counts{};
  std::uint64_t total_ns = 0;

  void note(duration took) {
    const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0));
    const auto at = std::lower_bound(bounds.begin(), bounds.end(), ns) - bounds.begin();
    ++counts[static_cast<std::size_t>(at)];
    total_ns += ns;
  }
  void add(const latency_counts& more) {
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += more.counts[i];
    total_ns += more.total_ns;
  }
};

}  // namespace mooncaf
