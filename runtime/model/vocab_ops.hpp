#pragma once
// Loops over the whole vocabulary: the arithmetic under `sampler`.
//
// They are written for the vectoriser (fixed lanes, no branches). The lanes also fix the order of every sum,
// so that a draw comes out the same on every host. Scratch memory belongs to the calling thread and is
// reused: after the first call with a vocabulary size, nothing allocates.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace mooncaf {

/// A token with its logit or weight.
struct candidate {
  float value;
  std::int32_t id;
  /// Likelier first, lower id first among equals.
  friend bool operator<(const candidate& a, const candidate& b) noexcept {
    return a.value != b.value ? a.value > b.value : a.id < b.id;
  }
};

/// Logits of tokens whose bit is not in `kept` become at most `most`; bits beyond its end are not in it.
void lower_others(std::span<float> logits, std::span<const std::uint64_t> kept, float most) noexcept;

/// Lowest id of the largest logit; 0 if all are NaN or minus infinity.
std::int32_t argmax(std::span<const float> logits) noexcept;

/// log Σ e^logit. @cost two passes.
double log_sum_exp(std::span<const float> logits);

/// The `k` best entries, unordered; fewer if fewer are above minus infinity. NaN is never among them.
void select_best(std::span<const float> logits, std::size_t k, std::vector<candidate>& out);

/// What may be drawn; values as in `sampling_params`.
struct draw_limits {
  float temperature = 1;  ///< > 0
  float min_p = 0;
  std::int32_t top_k = 0;
  float top_p = 1;
};

/// Draws a token: softmax at the given temperature, cut by min-p, then top-k, then top-p; `u` in [0, 1) picks
/// from what is left by walking ids upwards. Overwrites `logits`.
std::int32_t draw_token(std::span<float> logits, const draw_limits& limits, double u);

}  // namespace mooncaf
