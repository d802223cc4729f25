#pragma once
// Lengths, blocks and reuse in a trace.

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/sim/trace_source.hpp"

namespace mooncaf::sim {

/// How often each length occurs. Memory follows the number of different lengths.
class length_counts {
 public:
  void add(std::uint32_t length) { ++counts_[length], ++count_; }
  double mean() const;
  /// The least length that a share `q` of all does not exceed: exact. 0 if there is none.
  std::uint32_t quantile(double q) const;
  std::uint32_t longest() const { return counts_.empty() ? 0 : counts_.rbegin()->first; }

 private:
  std::map<std::uint32_t, std::uint64_t> counts_;
  std::uint64_t count_ = 0;
};

/// Collected request by request. Memory follows the number of different blocks.
class trace_stats {
 public:
  void add(const workload_record& r);
  /// A few lines for people. @param block_tokens  of the blocks that were added.
  std::string to_text(std::uint32_t block_tokens) const;
  /// The same as one JSON object.
  std::string to_json(std::uint32_t block_tokens) const;

  std::uint64_t requests() const noexcept { return requests_; }
  std::uint64_t blocks() const noexcept { return blocks_; }
  std::uint64_t different_blocks() const noexcept { return uses_.size(); }
  /// Share of blocks that an endless cache would have held: all but the first use of each.
  double reusable_share() const noexcept {
    return blocks_ == 0 ? 0 : 1 - static_cast<double>(uses_.size()) / static_cast<double>(blocks_);
  }
  double span_s() const noexcept { return static_cast<double>(last_ms_ - first_ms_) * 1e-3; }
  std::vector<std::uint64_t> hottest(std::size_t count) const;

 private:
  struct uses {
    std::uint64_t once = 0, most = 0;  ///< blocks that one request has; requests that have the hottest block
  };
  uses count_uses() const noexcept;

  std::uint64_t requests_ = 0, blocks_ = 0;
  std::int64_t first_ms_ = 0, last_ms_ = 0;
  length_counts input_, output_;
  std::unordered_map<std::uint64_t, std::uint32_t> uses_;
};

/// The ids that most requests use, most used first; of equals the smallest id.
std::vector<std::uint64_t> hottest_blocks(const std::vector<workload_record>& records, std::size_t count);

}  // namespace mooncaf::sim
