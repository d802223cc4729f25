#include "runtime/model/expert_choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace mooncaf {

namespace {

constexpr double none = -std::numeric_limits<double>::infinity();

}  // namespace

void expert_choice::reserve(std::size_t tokens, std::uint32_t experts, std::uint32_t per_token) {
  chosen_.reserve(tokens * per_token);
  order_.reserve(experts);
  worth_.reserve(experts);
  groups_.reserve(experts);
  begin_.reserve(std::size_t{experts} + 2);
  rows_.reserve(tokens * per_token);
  weights_.reserve(tokens * per_token);
}

/// Experts outside of the best groups become worth nothing.
void expert_choice::leave_best_groups(const expert_routing& r) {
  const auto size = worth_.size() / r.groups;
  groups_.clear();
  for (std::uint32_t g = 0; g < r.groups; ++g) {
    double best = none, second = none;
    for (const double w : std::span{worth_}.subspan(g * size, size)) {
      second = std::max(second, std::min(best, w));
      best = std::max(best, w);
    }
    groups_.emplace_back(r.group_of_two ? best + second : best, g);
  }
  std::partial_sort(groups_.begin(), groups_.begin() + r.best_groups, groups_.end(),
                    [](const auto& a, const auto& b) {
                      return a.first != b.first ? a.first > b.first : a.second < b.second;
                    });
  for (const auto& [worth, group] : std::span{groups_}.subspan(r.best_groups))
    std::fill_n(worth_.begin() + static_cast<std::ptrdiff_t>(group * size), size, none);
}

void expert_choice::choose_row(std::span<const float> scores, const model_config& c,
                               std::span<const float> bias) {
  const auto& r = c.routing;
  const float peak = *std::ranges::max_element(scores);
  const auto raw = [&](std::uint32_t e) {
    return r.sigmoid ? 1 / (1 + std::exp(-static_cast<double>(scores[e])))
                     : std::exp(static_cast<double>(scores[e] - peak));
  };
  worth_.resize(scores.size());
  for (std::uint32_t e = 0; e < scores.size(); ++e)
    worth_[e] = r.sigmoid ? raw(e) + (bias.empty() ? 0 : bias[e]) : scores[e];
  if (r.groups > 1) leave_best_groups(r);
  order_.resize(scores.size());
  std::iota(order_.begin(), order_.end(), 0u);
  const auto better = [&](std::uint32_t a, std::uint32_t b) {
    return worth_[a] != worth_[b] ? worth_[a] > worth_[b] : a < b;
  };
  const auto best = std::span{order_}.first(c.experts_per_token);
  std::partial_sort(order_.begin(), order_.begin() + c.experts_per_token, order_.end(), better);
  double total = 0;
  if (c.normalise_experts)
    for (const auto e : best) total += raw(e);
  else if (r.sigmoid) total = 1;
  else
    for (std::uint32_t e = 0; e < scores.size(); ++e) total += raw(e);
  for (const auto e : best) chosen_.emplace_back(e, static_cast<float>(raw(e) / total * r.scale));
}

void expert_choice::choose(std::span<const float> scores, const model_config& c,
                           std::span<const float> bias) {
  const auto experts = c.n_experts, per_token = c.experts_per_token;
  chosen_.clear();
  for (std::size_t at = 0; at < scores.size(); at += experts)
    choose_row(scores.subspan(at, experts), c, bias);
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
