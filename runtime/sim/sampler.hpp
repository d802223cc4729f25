#pragma once
// Looks at a simulated cluster now and then, and sums up in the end.

#include <cstdint>
#include <vector>

#include "runtime/sim/cluster.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// A row of the timeline is about the time since the row before it.
class sampler {
 public:
  /// Both outlive the sampler.
  sampler(world& w, cluster& c) : w_(w), c_(c), busy_(w.layout.machines()) {}

  /// The run begins.
  void begin();
  /// @param arriving  requests may still come: decode's means cover this time alone.
  void sample(bool arriving);
  /// The run has ended, `w.out.span_s` after it began.
  void sum_up();

 private:
  void count_machines(timeline_row& row) const;
  void look_at_prompts(timeline_row& row);
  void look_at_decoding(timeline_row& row);
  void count_blocks(timeline_row& row);
  void add_occupancy(timeline_row& row, std::size_t running, std::uint64_t context, double instances);
  float busy_since(std::uint32_t machine);
  void sum_up_devices();

  world& w_;
  cluster& c_;
  ticks began_ = 0, sampled_ = 0;  // the latest row
  std::uint64_t rows_ = 0;         // while requests arrived
  // Until the latest row:
  std::uint64_t blocks_ = 0, missed_ = 0, rejected_ = 0;
  std::vector<ticks> busy_;  // by machine
};

}  // namespace mooncaf::sim
