#pragma once
// Admission `adaptive`: when the last minutes are played again, and what comes of it.
//
//   conductor_core ── recall ──► shadow_question ──► played under each rule, elsewhere (runtime/sim/shadow_play.hpp)
//         ▲                                                    │
//         └── play_by ── better rule? ◄── rule_choice ◄── played_rule …

#include <optional>
#include <span>

#include "runtime/sched/conductor_core.hpp"
#include "runtime/sched/rule_choice.hpp"
#include "runtime/sched/shadow_question.hpp"
#include "runtime/sched/what_if.hpp"

namespace mooncaf {

/// The last minutes of a conductor, and its cluster as it is by now. @cost  a copy of the requests' keys.
shadow_question recall(const conductor_core& core, time_point now);

/// @thread  Owned by the conductor; not synchronised.
class shadow_core {
 public:
  /// To be called often by a conductor that places requests.
  /// @returns what to play now; nothing: it is not time, a play is under way, there is nothing to learn, or admission
  /// is not `adaptive`.
  std::optional<shadow_question> due(const conductor_core& core, time_point now);
  /// The play that was due is over: the better rule is in force from now on. @param took  processor time.
  /// @returns that rule, if it is another one.
  std::optional<admission_rule> played(conductor_core& core, const played_minutes& played, duration took,
                                       time_point now);

  /// How the rules do; nothing before the first play.
  std::span<const rule_choice::standing> standings() const noexcept { return choice_.standings(); }
  std::uint64_t changes() const noexcept { return changes_; }
  /// As the latest play found.
  std::span<const played_what_if> what_ifs() const noexcept { return what_ifs_; }

 private:
  /// A play may take a tenth of one processor.
  static constexpr int rest_per_work = 9;

  rule_choice choice_;
  bool playing_ = false;
  std::optional<time_point> next_;
  std::uint64_t changes_ = 0;
  std::vector<played_what_if> what_ifs_;
};

}  // namespace mooncaf
