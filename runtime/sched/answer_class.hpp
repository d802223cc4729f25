#pragma once
// Clues to an answer's length before it is there.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace mooncaf {

/// Requests with answers expected to be alike, by the best clue that there is: how long the answer to the
/// session's previous turn was; else how long the tenant's answers are as a rule; else that it is bounded by
/// a small `max_tokens`, which goes first where it is below either; else how long the prompt is. (In the
/// conversation trace the logarithms of neighbouring answers of a session correlate by 0.65, those of prompt
/// and answer by 0.05.)
struct answer_class {
  static constexpr std::size_t by_prompt = 4, by_earlier = 6, by_bound = 4, by_tenant = 6;
  static constexpr std::size_t count = by_prompt + by_earlier + by_bound + by_tenant;

  /// @param max_tokens  0: unknown. @param earlier  tokens of the session's previous answer; 0: unknown.
  /// @param typical  tokens of the tenant's ordinary answer; 0: unknown.
  static std::size_t of(std::uint64_t prompt_tokens, std::uint32_t max_tokens = 0, std::uint32_t earlier = 0,
                        std::uint32_t typical = 0) noexcept {
    const bool bounded = max_tokens > 0 && max_tokens <= 1024;
    const auto says_more = [&](std::uint32_t tokens) {
      return tokens > 0 && !(bounded && max_tokens <= tokens);
    };
    // Up to 31, 63, … 511 tokens, longer.
    const auto octave = [](std::uint32_t tokens, std::size_t of) {
      return std::min(static_cast<std::size_t>(std::bit_width(tokens >> 5)), of - 1);
    };
    if (says_more(earlier)) return by_prompt + octave(earlier, by_earlier);
    if (says_more(typical)) return by_prompt + by_earlier + by_bound + octave(typical, by_tenant);
    if (bounded) {
      const std::size_t i = max_tokens <= 16 ? 0 : max_tokens <= 64 ? 1 : max_tokens <= 256 ? 2 : 3;
      return by_prompt + by_earlier + i;
    }
    return prompt_tokens < 2048 ? 0 : prompt_tokens < 8192 ? 1 : prompt_tokens < 32768 ? 2 : 3;
  }
};

}  // namespace mooncaf
