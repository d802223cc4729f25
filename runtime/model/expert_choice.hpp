#pragma once
// Which experts of a mixture each token goes to, and with which weight.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace mooncaf {

/// Used by one thread at a time; allocates nothing once it was given room.
class expert_choice {
 public:
  /// Makes room for so many tokens.
  void reserve(std::size_t tokens, std::uint32_t experts, std::uint32_t per_token);

  /// Softmax over each token's scores, then the best `per_token` of them; equal ones by their number.
  /// @param scores     row-major [tokens, experts].
  /// @param normalise  weights of a token are divided by their sum.
  void choose(std::span<const float> scores, std::uint32_t experts, std::uint32_t per_token, bool normalise);

  /// The tokens that go to expert `e`, ascending, and the weights that they go there with.
  std::span<const std::uint32_t> rows(std::uint32_t e) const noexcept { return part(rows_, e); }
  std::span<const float> weights(std::uint32_t e) const noexcept { return part(weights_, e); }

 private:
  template <class T>
  std::span<const T> part(const std::vector<T>& of, std::uint32_t e) const noexcept {
    return std::span{of}.subspan(begin_[e], begin_[e + 1] - begin_[e]);
  }
  void choose_row(std::span<const float> scores, std::uint32_t per_token, bool normalise);

  std::vector<std::pair<std::uint32_t, float>> chosen_;  ///< [tokens · per_token]: expert, weight
  std::vector<std::uint32_t> order_;                     ///< experts, best first, of the row at hand
  std::vector<std::size_t> begin_;                       ///< [experts + 1], into these two
  std::vector<std::uint32_t> rows_;
  std::vector<float> weights_;
};

}  // namespace mooncaf
