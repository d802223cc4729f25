#pragma once
// Which experts of a mixture each token goes to, and with which weight.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/model/model_config.hpp"
#include "runtime/model/tensor_part.hpp"

namespace mooncaf {

/// Used by one thread at a time; allocates nothing once it was given room.
class expert_choice {
 public:
  /// Makes room for so many tokens.
  void reserve(std::size_t tokens, std::uint32_t experts, std::uint32_t per_token);

  /// The best experts of each token, equal ones by their number, as the model's mixtures have it.
  /// @param scores  row-major [tokens, n_experts].
  /// @param bias    [n_experts], added to scores for the choice and not for the weights; or empty.
  void choose(std::span<const float> scores, const model_config& c, std::span<const float> bias);

  /// The tokens that go to expert `e`, ascending, and the weights that they go there with.
  std::span<const std::uint32_t> rows(std::uint32_t e) const noexcept { return part(rows_, e); }
  std::span<const float> weights(std::uint32_t e) const noexcept { return part(weights_, e); }
  /// Where the rows of experts [first, first + count) are in the row of all experts' rows.
  part_range place(std::size_t first, std::size_t count = 1) const noexcept {
    return {begin_[first], begin_[first + count] - begin_[first]};
  }

 private:
  template <class T>
  std::span<const T> part(const std::vector<T>& of, std::uint32_t e) const noexcept {
    return std::span{of}.subspan(begin_[e], begin_[e + 1] - begin_[e]);
  }
  void choose_row(std::span<const float> scores, const model_config& c, std::span<const float> bias);
  void leave_best_groups(const expert_routing& r);

  std::vector<std::pair<std::uint32_t, float>> chosen_;   ///< [tokens · per_token]: expert, weight
  std::vector<std::uint32_t> order_;                      ///< experts of the row at hand, best first
  std::vector<double> worth_;                             ///< of each expert for the row at hand
  std::vector<std::pair<double, std::uint32_t>> groups_;  ///< worth and number of each group of experts
  std::vector<std::size_t> begin_;                        ///< [experts + 1], into `rows_` and `weights_`
  std::vector<std::uint32_t> rows_;
  std::vector<float> weights_;
};

}  // namespace mooncaf
