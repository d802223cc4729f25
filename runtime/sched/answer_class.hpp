#pragma once
// What is known of an answer's length before it is there.

#include <bit>
#include <cstddef>
#include <cstdint>

namespace mooncaf {

/// Requests whose answers are expected to be alike, from the best that is known of them: how long the answer
/// to the session's previous turn was; else that it is bounded by a small `max_tokens`; else how long the
/// prompt is. (In the conversation trace the logarithms of neighbouring answers of a session correlate by
/// 0.65, those of prompt and answer by 0.05.)
struct answer_class {
  static constexpr std::size_t by_prompt = 4, by_earlier = 6, by_bound = 4;
  static constexpr std::size_t count = by_prompt + by_earlier + by_bound;

  /// @param max_tokens  0: unknown. @param earlier  tokens of the session's previous answer; 0: unknown.
  static std::size_t of(std::uint64_t prompt_tokens, std::uint32_t max_tokens = 0,
                        std::uint32_t earlier = 0) noexcept {
    const bool bounded = max_tokens > 0 && max_tokens <= 1024;
    if (earlier > 0 && !(bounded && max_tokens <= earlier)) {
      // Up to 31, 63, … 511 tokens, longer.
      const auto octave = static_cast<std::size_t>(std::bit_width(earlier >> 5));
      return by_prompt + (octave < by_earlier ? octave : by_earlier - 1);
    }
    if (bounded) {
      const std::size_t i = max_tokens <= 16 ? 0 : max_tokens <= 64 ? 1 : max_tokens <= 256 ? 2 : 3;
      return by_prompt + by_earlier + i;
    }
    return prompt_tokens < 2048 ? 0 : prompt_tokens < 8192 ? 1 : prompt_tokens < 32768 ? 2 : 3;
  }
};

}  // namespace mooncaf
