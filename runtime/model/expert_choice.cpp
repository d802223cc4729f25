#include "runtime/model/expert_choice.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace mooncaf {

void expert_choice::reserve(std::size_t tokens, std::uint32_t experts, std::uint32_t per_token) {
  chosen_.reserve(tokens * per_token);
  order_.reserve(experts);
  begin_.reserve(std::size_t{experts} + 2);
  rows_.reserve(tokens * per_token);
  weights_.reserve(tokens * per_token);
}

void expert_choice::choose_row(std::span<const float> scores, std::uint32_t per_token, bool normalise) {
  order_.resize(scores.size());
  std::iota(order_.begin(), order_.end(), 0u);
  const auto better = [&](std::uint32_t a, std::uint32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  };
  std::partial_sort(order_.begin(), order_.begin() + per_token, order_.end(), better);
  const auto peak = scores[order_.front()];
  double all = 0, best = 0;
  for (const float s : scores) all += std::exp(static_cast<double>(s - peak));
  for (std::uint32_t i = 0; i < per_token; ++i)
    best += std::exp(static_cast<double>(scores[order_[i]] - peak));
  for (std::uint32_t i = 0; i < per_token; ++i) {
    const auto share = std::exp(static_cast<double>(scores[order_[i]] - peak)) / (normalise ? best : all);
    chosen_.emplace_back(order_[i], static_cast<float>(share));
  }
}

void expert_choice::choose(std::span<const float> scores, std::uint32_t experts, std::uint32_t per_token,
                           bool normalise) {
  chosen_.clear();
  for (std::size_t at = 0; at < scores.size(); at += experts)
    choose_row(scores.subspan(at, experts), per_token, normalise);
  // Sorted by counting: begin_[e + 1] is where expert e's next row goes, and its end when all are placed.
  begin_.assign(std::size_t{experts} + 2, 0);
  for (const auto& [expert, weight] : chosen_) ++begin_[expert + 2];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  rows_.resize(chosen_.size());
  weights_.resize(chosen_.size());
  for (std::size_t i = 0; i < chosen_.size(); ++i) {
    const auto at = begin_[chosen_[i].first + 1]++;
    rows_[at] = static_cast<std::uint32_t>(i / per_token);
    weights_[at] = chosen_[i].second;
  }
}

}  // namespace mooncaf
