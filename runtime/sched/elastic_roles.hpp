#pragma once
// Which role each node plays, of those that have workers of both: the conductor places prompts, or answers, there.
//
//   plays one ── told to leave ──► leaves ── nothing is charged and nothing runs there ──► plays the other
//       │                            ▲
//       └─ a role has nobody ──► plays both ── somebody else plays one of them
//
// A change moves no byte: both workers are there all the time, and share the node's blocks.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/units.hpp"
#include "runtime/sched/cluster_state.hpp"
#include "runtime/sched/pool_watch.hpp"
#include "runtime/sched/role_switch.hpp"

namespace mooncaf {

struct elastic_role_options {
  bool on = false;
  /// For which one role must have been the fuller one. Loads are means over twice as long, and are looked at twice
  /// meanwhile.
  duration hold = role_switch_options{}.hold;
  /// Nodes that may change in an hour, back and forth; 0: any number. A role that nobody plays is taken all the same.
  std::uint32_t budget = 0;
};

/// What a node does from now on about a role.
enum class role_step : std::uint8_t { plays, leaves, rests };

constexpr auto words_of(role_step) noexcept {
  using enum role_step;
  return words<role_step, 3>{{{plays, "plays"}, {leaves, "leaves"}, {rests, "rests"}}};
}

struct role_change {
  node_id node;
  worker_role role = worker_role::prefill;
  role_step step = role_step::rests;
  double prefill_load = 0, decode_load = 0;  ///< as they were judged last (`pool_load`)
};

/// @thread  Owned by the conductor; not synchronised.
class elastic_roles {
 public:
  /// @param ttft_slo, tbt_slo  by which loads are measured.
  elastic_roles(const elastic_role_options& options, duration ttft_slo, duration tbt_slo);

  bool on() const noexcept { return options_.on; }

  /// Instances of a node that joined, or stay when others were removed. Has a role chosen for a node that has both
  /// kinds.
  void added(const instance_desc& desc, cluster_state& cluster);
  /// The node is gone, or finishes its requests in order to go.
  void left(node_id node, cluster_state& cluster);
  void removed(worker_id worker, cluster_state& cluster);
  void reported(worker_id worker, const instance_load& load, time_point now);

  /// To be called about twice a second: ends changes under way, and decides whether to begin one.
  /// @param leads  whether this conductor places. One that does not follows what nodes are seen to do, so that it
  /// knows their roles when it comes to lead.
  void decide(cluster_state& cluster, time_point now, bool leads);
  /// Changes since the last call.
  std::vector<role_change> take_changes();

 private:
  struct side {
    std::vector<worker_id> workers;
    role_step now = role_step::rests;
    time_point since{};  ///< … when it began to leave
  };
  struct elastic_node {
    side prefill, decode;
    side& of(worker_role role) noexcept { return role == worker_role::prefill ? prefill : decode; }
    const side& of(worker_role role) const noexcept {
      return role == worker_role::prefill ? prefill : decode;
    }
    bool has_both() const noexcept { return !prefill.workers.empty() && !decode.workers.empty(); }
    bool plays_both() const noexcept {
      return prefill.now == role_step::plays && decode.now == role_step::plays;
    }
  };
  void set(node_id node, worker_role role, role_step next, cluster_state& cluster, time_point now = {});
  /// Nodes that play a role, also ones that cannot do otherwise.
  std::uint32_t players(worker_role role, node_id but = {}) const;
  std::uint32_t charged(const side& s, const cluster_state& cluster) const;
  bool is_done(const side& s, const cluster_state& cluster) const;
  /// Gives a role that nobody plays to somebody, and takes from nodes that play both what others play, too.
  void even_out(cluster_state& cluster, time_point now);
  void stand_in(worker_role role, cluster_state& cluster, time_point now);
  void end_changes(cluster_state& cluster, time_point now);
  bool is_spent(time_point now);
  void follow(cluster_state& cluster, time_point now);
  /// The node that gives the role up at the least cost; nothing: none can.
  std::optional<node_id> giver(worker_role role, const cluster_state& cluster) const;

  elastic_role_options options_;
  role_switch rule_;
  pool_watch watch_;
  std::map<node_id, elastic_node> nodes_;
  std::vector<role_change> changes_;
  std::deque<time_point> begun_;  ///< changes of the last hour, where they are counted
  time_point now_{};
};

}  // namespace mooncaf
