#pragma once
// The last minutes of a cluster, played again under other rules of admission.

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/sched/admission_rule.hpp"
#include "runtime/sched/shadow_question.hpp"
#include "runtime/sched/what_if.hpp"
#include "runtime/sim/options.hpp"
#include "runtime/sim/outcome.hpp"
#include "runtime/sim/trace_source.hpp"

namespace mooncaf::sim {

/// A conductor's memory as a workload on a modelled cluster:
///
///   ├── before: the later half ──┼──── judged: all of them ────┼── behind: the first ones ──┤
///
/// A rule that lets in too many does well for a while, and would be judged by that if the cluster were idle before: so
/// it has played a while before it is judged. The minutes go on behind the last request, or it would find an
/// idle cluster there. Prefixes that were cached when the requests came lie where they lay.
/// @thread  One; several plays of different questions may run at once.
class shadow_play {
 public:
  /// @pre `q.worth_playing()`. @param q  outlives the play.
  explicit shadow_play(const shadow_question& q);

  /// How the rule would have done. @cost  some ten microseconds a request.
  played_rule under(const admission_rule& rule) const;
  /// How `rule` would have done with it; nothing where it is not possible. @cost  as above.
  std::optional<played_what_if> with(what_if what, const admission_rule& rule) const;

  const simulation_options& options() const noexcept { return options_; }
  /// The requests of all laps.
  const std::vector<workload_record>& records() const noexcept { return records_; }

 private:
  /// A prefix that was cached before a request of these minutes made it.
  struct cached_prefix {
    std::uint32_t instance = 0;
    std::vector<block_key> keys;
  };
  /// Requests that came in [from, to) come again from `begins` on.
  struct lap {
    std::uint32_t number = 0;
    std::int64_t from_ms = 0, to_ms = 0, begins_ms = 0;
  };
  void take_laps(const shadow_question& q);
  void take_lap(const shadow_question& q, const lap& l);
  void undo_sharing(const shadow_question& q);
  outcome run(simulation_options o, const admission_rule& rule) const;

  simulation_options options_;
  std::vector<workload_record> records_;
  std::vector<cached_prefix> caches_;
  std::uint64_t judged_ = 0;
};

/// All of `rules`, one after the other. @pre as above.
std::vector<played_rule> play_rules(const shadow_question& q, std::span<const admission_rule> rules);
/// … and what else could be different. @param stops  asked between runs: whether to leave the rest.
played_minutes play_all(const shadow_question& q, std::span<const admission_rule> rules,
                        const std::function<bool()>& stops);

}  // namespace mooncaf::sim
