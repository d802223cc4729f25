#pragma once
// What is in a trace.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/sim/log_histogram.hpp"
#include "runtime/sim/trace_source.hpp"

namespace mooncaf::sim {

/// Collected request by request. Memory follows the number of different blocks.
class trace_stats {
 public:
  void add(const workload_record& r);
  /// A few lines for people.
  std::string to_text() const;

  std::uint64_t requests() const noexcept { return requests_; }
  std::uint64_t blocks() const noexcept { return blocks_; }
  std::uint64_t different_blocks() const noexcept { return uses_.size(); }
  /// Share of blocks that an endless cache would have held: all but the first use of each.
  double reusable_share() const noexcept {
    return blocks_ == 0 ? 0 : 1 - static_cast<double>(uses_.size()) / static_cast<double>(blocks_);
  }
  double mean_input() const noexcept { return input_.mean(); }
  double mean_output() const noexcept { return output_.mean(); }
  double span_s() const noexcept { return static_cast<double>(last_ms_ - first_ms_) * 1e-3; }
  std::vector<std::uint64_t> hottest(std::size_t count) const;

 private:
  std::uint64_t requests_ = 0, blocks_ = 0;
  std::int64_t first_ms_ = 0, last_ms_ = 0;
  log_histogram input_, output_;
  std::unordered_map<std::uint64_t, std::uint32_t> uses_;
};

/// The ids that most requests use, most used first; of equals the smallest id.
std::vector<std::uint64_t> hottest_blocks(const std::vector<workload_record>& records, std::size_t count);

}  // namespace mooncaf::sim
