#include "runtime/sched/rule_choice.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace mooncaf {

namespace {

/// Requests by which another rule must be ahead. Where neither is better, each of the n requests that end otherwise under the
/// other rule is as likely a gain as a loss: a lead of ten is three deviations of 11, and one of 100. Few end
/// otherwise where little is refused, and there a lead of some per mille counts; of few requests it must be large.
constexpr double clearly = 10;

/// Weight of the newest play: of neighbouring plays most requests are the same.
constexpr double newest = 0.3;

}  // namespace

std::vector<admission_rule> rules_to_play() {
  using enum admission_policy;
  return {{queue}, {priced}, {per_request}, {early}, {early, 0.9}, {baseline}};
}

std::optional<admission_rule> rule_choice::consider(const admission_rule& rule,
                                                    std::span<const played_rule> played) {
  for (const auto& p : played) {
    const double share =
        static_cast<double>(p.met) / static_cast<double>(std::max<std::uint64_t>(p.judged, 1));
    const auto at = std::ranges::find(standings_, p.rule, &standing::rule);
    if (at == standings_.end()) standings_.push_back({p.rule, share});
    else at->share += newest * (share - at->share);
  }
  if (standings_.empty()) return std::nullopt;
  const auto best = std::ranges::max_element(standings_, {}, &standing::share);
  const auto current = std::ranges::find(standings_, rule, &standing::rule);
  const auto judged = played.empty() ? 0.0 : static_cast<double>(played.front().judged);
  if (current != standings_.end() && judged * (best->share - current->share) < clearly) return std::nullopt;
  return best->rule;
}

std::string text_of(std::span<const rule_choice::standing> standings) {
  std::string out;
  for (const auto& s : standings) {
    std::array<char, 16> share;
    std::snprintf(share.data(), share.size(), " %.3f", s.share);
    out += (out.empty() ? "" : ", ") + text_of(s.rule) + share.data();
  }
  return out;
}

}  // namespace mooncaf
