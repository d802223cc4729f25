#pragma once
// Loops over the whole vocabulary: the arithmetic under `sampler`, and how a host device chooses tokens.
//
// They are written for the vectoriser (fixed lanes, no branches). Sums are exact (gpu/token_choice.hpp), so
// that a draw comes out the same on every device. Scratch memory belongs to the calling thread and is reused:
// after the first call with a vocabulary size, nothing allocates.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "gpu/token_choice.hpp"

namespace mooncaf {

/// Logits of tokens whose bit is not in `kept` become at most `most`; bits beyond its end are not in it.
void lower_others(std::span<float> logits, std::span<const std::uint64_t> kept, float most) noexcept;

/// Lowest id of the largest logit; 0 if all are NaN or minus infinity.
std::int32_t argmax(std::span<const float> logits) noexcept;

/// The largest logit, NaN skipped, and Σ e^(logit - it); 0 where that is not finite. @cost two passes.
struct logit_mass {
  float peak;
  double weights;
};
logit_mass mass_of(std::span<const float> logits);

/// log Σ e^logit of the row that was summed.
double log_sum_exp(float peak, double weights) noexcept;

/// The `k` best entries, unordered; fewer if fewer are above minus infinity. NaN is never among them.
void select_best(std::span<const float> logits, std::size_t k, std::vector<candidate>& out);

/// Draws a token: softmax at the given temperature, cut by min-p, then top-k, then top-p; `u` in [0, 1) picks
/// from what is left by walking ids upwards. Overwrites `logits`.
std::int32_t draw_token(std::span<float> logits, const draw_limits& limits, double u);

/// Chooses a token as `how` says. Overwrites `logits`.
chosen_token choose_token(std::span<float> logits, const token_choice& how);

/// `min_p` as nats below the best logit, which is how devices take it.
float nats_kept(float min_p) noexcept;

}  // namespace mooncaf
