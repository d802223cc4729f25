#include "runtime/sched/rule_choice.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace mooncaf {

namespace {

/// By which another rule must be ahead.
constexpr double clearly = 1.02;

/// Weight of the newest play: of neighbouring plays most requests are the same.
constexpr double newest = 0.2;

}  // namespace

std::vector<admission_rule> rules_to_play() {
  using enum admission_policy;
  return {{queue}, {queue, 0.9}, {priced}, {per_request}, {early}, {baseline}};
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
  if (current != standings_.end() && best->share <= clearly * current->share) return std::nullopt;
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
