#pragma once
// Which admission rule to go over to, by how each of them did on the last minutes: admission `adaptive`.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/sched/admission_rule.hpp"

namespace mooncaf {

/// The rules that are played: the default, and others that are ahead of it on some workloads.
std::vector<admission_rule> rules_to_play();

/// Remembers how rules did, since what is ahead on one stretch of a few minutes is so by chance as often as not. The
/// rule in force stays until another one keeps clearly more requests inside their SLOs: a change costs those that were let
/// in, or kept waiting, under the old one.
/// @thread  Owned by the conductor; not synchronised.
class rule_choice {
 public:
  /// @param rule  in force. @param played  every rule, that one included.
  /// @returns the rule to go over to; nothing: it stays.
  std::optional<admission_rule> consider(const admission_rule& rule, std::span<const played_rule> played);

  /// A rule's share of requests inside both SLOs, of late.
  struct standing {
    admission_rule rule;
    double share = 0;
  };
  std::span<const standing> standings() const noexcept { return standings_; }

 private:
  std::vector<standing> standings_;
};

/// "queue 0.931, priced 0.902".
std::string text_of(std::span<const rule_choice::standing> standings);

}  // namespace mooncaf
