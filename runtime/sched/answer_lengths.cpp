#include "runtime/sched/answer_lengths.hpp"

#include <algorithm>
#include <cmath>

namespace mooncaf {

void answer_lengths::sum_up() {
  // Of one length, the ended ones first: the others were still there then.
  std::ranges::sort(seen_, [](const answer& a, const answer& b) {
    return a.tokens != b.tokens ? a.tokens < b.tokens : a.over > b.over;
  });
  curve_.clear();
  mean_ = 0;
  double longer = 1;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    mean_ += static_cast<double>(seen_[i].tokens) / static_cast<double>(seen_.size());
    if (!seen_[i].over) continue;
    longer *= 1 - 1 / static_cast<double>(seen_.size() - i);
    if (curve_.empty() || curve_.back().tokens != seen_[i].tokens)
      curve_.push_back({seen_[i].tokens, longer});
    else curve_.back().longer = longer;
  }
}

std::uint32_t answer_lengths::draw(double share, std::uint32_t beyond) const {
  constexpr double longest = 1 << 24;
  const auto first = std::ranges::upper_bound(curve_, beyond, {}, &point::tokens);
  const double there = first == curve_.begin() ? 1 : (first - 1)->longer;
  const double wanted = there * (1 - share);
  const auto at = std::find_if(first, curve_.end(), [&](const point& p) { return p.longer <= wanted; });
  if (at != curve_.end()) return at->tokens;
  const double left = curve_.empty() ? 1 : curve_.back().longer;
  const double behind = left > 0 && wanted > 0 ? std::log(left / wanted) : 1;
  const double from = std::max(beyond, seen_.back().tokens);
  return static_cast<std::uint32_t>(
      std::min(from + std::max(mean_, 1.0) * std::max(behind, 0.0) + 1, longest));
}

}  // namespace mooncaf
