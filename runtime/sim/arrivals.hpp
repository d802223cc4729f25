#pragma once
// When requests come to a simulated cluster, and with which prompts and answers.

#include <cstdint>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/sim/trace_source.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// A trace is read one request ahead. Where requests follow from answers, an earlier one may become known at
/// any time: its event overtakes the one that was expected, which is void then.
class arrivals {
 public:
  /// @param w  outlives the arrivals.
  explicit arrivals(world& w) : w_(w), priorities_(w.options.seed ^ 0x5EED) {}

  /// The first request is expected. @param source  outlives the run. @error  of the source; likewise below.
  result<void> begin(trace_source& source);
  bool is_void(const event& e) const { return source_->follows_answers() && e.at != expected_; }
  /// A time has come at which a request is expected. @pre not void. @returns whether one comes.
  result<bool> comes();
  /// The request that has come. @returns its slot.
  std::uint32_t open();
  /// The next one is expected, if it is known by now.
  result<void> expect();
  /// The answer of a session has ended.
  void answered(std::uint64_t session);

  std::uint64_t count() const noexcept { return count_; }
  /// Requests may still come.
  bool go_on() const noexcept { return more_; }

 private:
  result<void> read_ahead();
  void take_keys();
  void expect_after_answers();

  world& w_;
  trace_source* source_ = nullptr;  // while a run lasts
  random_source priorities_;
  ticks expected_ = 0;  // when the next request comes, if that follows from answers; 0: none is known
  workload_record upcoming_;
  std::vector<block_key> keys_;  // of its full blocks
  std::uint64_t count_ = 0;
  bool more_ = true;
};

}  // namespace mooncaf::sim
