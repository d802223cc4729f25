#pragma once
// How full prefill and decode are, from what their instances report.

#include <map>
#include <optional>

#include "runtime/base/ids.hpp"
#include "runtime/base/units.hpp"
#include "runtime/sched/cluster_state.hpp"
#include "runtime/sched/pool_load.hpp"

namespace mooncaf {

struct pool_loads {
  pool_load prefill, decode;
  std::uint32_t prefill_nodes = 0, decode_nodes = 0;  ///< on which those instances run
};

/// @thread  Owned by the conductor; not synchronised.
class pool_watch {
 public:
  /// What an instance said last.
  struct reported_work {
    instance_load load;
    time_point at{};
    time_point worked{};  ///< … of the latest report in which it had computed
    duration looked_busy{};
    time_point looked{};
  };

  /// @param ttft_slo, tbt_slo  of which waiting prompts and a decode step are a share.
  pool_watch(duration ttft_slo, duration tbt_slo) : ttft_slo_(ttft_slo), tbt_slo_(tbt_slo) {}

  void reported(worker_id worker, const instance_load& load, time_point now);
  void removed(worker_id worker) { work_.erase(worker); }
  /// Null: it has not reported.
  const reported_work* of(worker_id worker) const;

  /// Time since the last look; nothing: there was none.
  std::optional<duration> since_look(time_point now) const;
  /// The loads, each a mean over about `over`. Shares of time are of the time since the last look.
  const pool_loads& look(const cluster_state& cluster, time_point now, duration over);
  /// As they were seen last.
  const pool_loads& seen() const noexcept { return seen_; }

 private:
  void look_at_prefill(const cluster_state& cluster, time_point now);
  void look_at_decode(const cluster_state& cluster);

  duration ttft_slo_, tbt_slo_;
  calm_load prefill_calm_, decode_calm_;
  pool_loads seen_;
  std::optional<time_point> looked_;
  std::map<worker_id, reported_work> work_;
};

}  // namespace mooncaf
