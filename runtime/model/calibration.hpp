#pragma once
// Measures the device that a worker runs on, with the model it serves: a few short passes at start.
// What an earlier start measured (`kept_timings`) makes them unnecessary, but for the first, which shows that
// the device works and touches every weight.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "runtime/model/forward_pass.hpp"

namespace mooncaf {

/// One measured pass. Prefill: (new tokens, cached tokens, nanoseconds). Decode: (batch, context tokens of
/// all sequences together, nanoseconds).
using timing_sample = std::array<std::int64_t, 3>;

/// Shape of a pass to measure: (new tokens, cached tokens) or (batch, context tokens).
using pass_shape = std::array<std::int64_t, 2>;

/// Measures every shape several times, round after round, and keeps the shortest: a machine that does
/// something else meanwhile makes a pass longer, never shorter. A slow device is measured once, and ends with
/// the shapes that fit the time.
/// @param pass  takes the n-th shape. @param now  the time.
/// @error of `pass`.
result<std::vector<timing_sample>> best_of_rounds(const std::vector<pass_shape>& shapes,
                                                  const std::function<result<duration>(std::size_t)>& pass,
                                                  const std::function<time_point()>& now);

/// Prefill passes of several lengths, with and without a prefix: about a second on a CPU with a small model,
/// some seconds on any device.
/// @param context_tokens  longest context that is served.
/// @param budget_tokens  longest pass, e.g. the worker's token budget of a step.
/// @param memory  for KV of these passes, which nobody has yet; empty: memory of their own.
/// @param known  of an earlier start; if there are any, no more is measured.
result<std::vector<timing_sample>> calibrate_prefill(forward_pass& runner, std::uint32_t context_tokens,
                                                     std::uint32_t budget_tokens,
                                                     std::span<std::byte> memory = {},
                                                     std::vector<timing_sample> known = {});

/// Decode steps of several batch sizes and context lengths.
/// @param max_batch  largest batch of the worker.
result<std::vector<timing_sample>> calibrate_decode(forward_pass& runner, std::uint32_t context_tokens,
                                                    std::uint32_t max_batch, std::span<std::byte> memory = {},
                                                    std::vector<timing_sample> known = {});

}  // namespace mooncaf
