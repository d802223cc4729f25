#pragma once
// The hit ratio of one pool of blocks for a trace, by eviction policy and size.

#include <cstdint>

#include "runtime/sim/trace_source.hpp"
#include "storage/prefix_tree.hpp"

namespace mooncaf::sim {

/// One pool for all requests, the production tree without memory behind it. A request asks for all of its
/// blocks at one moment: resident ones count as hits; then all of them are used or put in, in order, each new
/// one after a victim has made room. Blocks of one request that tie give way from its end.
/// @source  Mooncake (arXiv 2407.00079), Table 1.
class hit_ratio_pool {
 public:
  /// @param capacity  in blocks; 0: without end.
  hit_ratio_pool(const eviction_options& options, std::uint64_t capacity)
      : pool_(tree_.open(storage_tier::dram, options)), capacity_(capacity) {}

  void request(const workload_record& r);

  std::uint64_t hits() const noexcept { return hits_; }
  /// Hits that no miss precedes in their request: a prefix cache can use no others.
  std::uint64_t prefix_hits() const noexcept { return prefix_hits_; }
  std::uint64_t blocks() const noexcept { return blocks_; }
  double ratio() const noexcept { return share(hits_); }
  double prefix_ratio() const noexcept { return share(prefix_hits_); }

 private:
  double share(std::uint64_t n) const noexcept {
    return blocks_ == 0 ? 0 : static_cast<double>(n) / static_cast<double>(blocks_);
  }
  prefix_tree tree_;
  prefix_tree::tier& pool_;
  std::uint64_t capacity_;
  std::uint64_t now_ = 0, hits_ = 0, prefix_hits_ = 0, blocks_ = 0;
};

}  // namespace mooncaf::sim
