#pragma once
// How a token is chosen from the logits of a row where they lie, so that it alone leaves the device.
//
// The choice is defined to the last bit, and no order of summation is part of it, so that a device of a
// thousand threads draws the host's token. The weight of an entry is e^(value - largest value) by the
// polynomial of `negative_exponential`, in steps of 2^-34: sums of so many of them as a vocabulary may have
// are exact in any order. An entry 24 nats below the best has no weight.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#if defined(__CUDACC__)
#define MOONCAF_ANYWHERE __host__ __device__ __forceinline__
#else
#define MOONCAF_ANYWHERE [[gnu::always_inline]] inline
#endif

namespace mooncaf {

/// Entries up to which sums of weights are exact.
inline constexpr std::size_t largest_vocabulary = std::size_t{1} << 19;

/// Below the best, that an entry may be for any chance; far beyond where weights become 0.
inline constexpr float all_nats = 60;

/// Likeliest entries that a device names at most.
inline constexpr std::size_t most_alternatives = 32;

/// A token with its logit or weight.
struct candidate {
  float value;
  std::int32_t id;
  /// Likelier first, lower id first among equals.
  friend bool operator<(const candidate& a, const candidate& b) noexcept {
    return a.value != b.value ? a.value > b.value : a.id < b.id;
  }
};

/// What may be drawn; values as in `sampling_params`.
struct draw_limits {
  float temperature = 1;  ///< > 0
  float min_p = 0;
  std::int32_t top_k = 0;  ///< 0 or less: all
  float top_p = 1;
};

/// What becomes of one token's logit x before the choice: min(x, most) + bias, then divided by `repetition`
/// if positive, else multiplied, then less `frequency`, less `presence`.
struct logit_edit {
  std::int32_t id = 0;
  float most = std::numeric_limits<float>::infinity();
  float bias = 0;
  float repetition = 1;
  float frequency = 0;
  float presence = 0;
};

/// How the token of a row is chosen. What spans name is read when the choice is handed over, but for `top`.
struct token_choice {
  std::uint32_t row = 0;              ///< of the logits; no row is chosen from twice
  bool greedy = true;                 ///< the largest logit, of equals the lowest id
  draw_limits limits;                 ///< else
  double u = 0;                       ///< … and where in what is left, [0, 1), walking ids upwards
  std::span<const logit_edit> edits;  ///< no id twice
  bool describe = false;              ///< whether `chosen_token` gets more than the id
  /// Gets the likeliest entries before the edits, in no order, as many as there is room for: at most
  /// `most_alternatives`. Behind those that are above minus infinity come some with id -1. Empty unless
  /// `describe`.
  std::span<candidate> top;
};

struct chosen_token {
  std::int32_t id = -1;
  float logit = 0;     ///< before edits
  float peak = 0;      ///< the largest one before edits
  double weights = 0;  ///< sum of e^(logit - peak) before edits; 0 if the peak is not finite
};

/// What an edit makes of a logit.
MOONCAF_ANYWHERE float edited(float x, const logit_edit& e) {
  x = (e.most < x ? e.most : x) + e.bias;
  x = x > 0 ? x / e.repetition : x * e.repetition;
  return x - e.frequency - e.presence;
}

/// e^x for x in [-60, 0]; relative error below 3e-6 (3e-7 above -8).
/// 2^f on [-0.5, 0.5] is the Taylor polynomial of degree 6 of e^(f ln 2). No product is fused with a sum.
MOONCAF_ANYWHERE float negative_exponential(float x) {
  constexpr float round = 12582912.0f;  // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
  const float scaled = x * 1.44269504f;
  const float shifted = scaled + round;
  const float f = (scaled - (shifted - round)) * 0.693147181f;
  float p = 1.0f / 720;
  p = p * f + 1.0f / 120;
  p = p * f + 1.0f / 24;
  p = p * f + 1.0f / 6;
  p = p * f + 0.5f;
  p = p * f + 1.0f;
  p = p * f + 1.0f;
  const auto exponent = __builtin_bit_cast(std::uint32_t, shifted) << 23;
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, p) + exponent);
}

/// The weight of an entry that is `below` the best, at most 0; 0 where that is less than -nats, or no number.
MOONCAF_ANYWHERE float entry_weight(float below, float nats) {
  constexpr float step = 0x1p-11f;  // the last digit of numbers from here on up is 2^-34
  const bool keep = below >= -nats;
  const float e = negative_exponential(keep ? below : 0.0f);
  return keep ? (e + step) - step : 0.0f;
}

}  // namespace mooncaf
