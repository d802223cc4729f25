#pragma once
// The machines of a simulated cluster: which are there, how they fare, and their cost.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/sched/instance.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

///            restart                    over                      fail                 back
///   live ────────────► draining ──────────────► away ──► live   any ────► dead, unseen ─► dead ──► live
///                                                                that computes
/// In a cluster that grows and shrinks also: off ──► starting ──► live ──► draining ──► off.
enum class machine_state : std::uint8_t { live, draining, away, dead, starting, off };

/// Why a machine drains, besides a restart.
enum class machine_leaves : std::uint8_t { not_at_all, for_good, for_other_role };

/// Every change of a machine is told to the conductor here, and written down where it costs or saves money.
/// Machines are numbered by `cluster_layout`.
class fleet {
 public:
  /// The conductor hears of the machines that are there at first. @param w  outlives the fleet.
  explicit fleet(world& w);

  bool is(std::uint32_t machine, machine_state state) const noexcept { return all_[machine].state == state; }
  /// It is up, whatever the conductor thinks of it.
  bool computes(std::uint32_t machine) const noexcept { return all_[machine].computes(); }
  /// Its steps take so many times as long.
  double slower(std::uint32_t machine) const noexcept { return all_[machine].slower; }
  void slow_down(std::uint32_t machine, double factor) noexcept { all_[machine].slower *= factor; }
  /// Lives that it lost: plans of an earlier one are void.
  std::uint32_t life(std::uint32_t machine) const noexcept { return all_[machine].lives; }
  bool died_since(std::uint32_t machine, ticks when) const noexcept { return all_[machine].died >= when; }
  bool is_paid(std::uint32_t machine) const noexcept { return all_[machine].paid_since >= 0; }
  /// Machines of a role in one state.
  std::uint32_t count(worker_role role, machine_state state) const;
  /// Machines of a role that drain in order to serve in the other one.
  std::uint32_t changing_from(worker_role role) const;

  // ---- restarts: `line` is the number of the disturbance ----
  void drain_for(std::uint32_t machine, std::uint32_t line);
  bool is_restarted_by(std::uint32_t machine, std::uint32_t line, machine_state state) const noexcept {
    return all_[machine].line == line && is(machine, state);
  }
  void go_away(std::uint32_t machine);
  void come_back(std::uint32_t machine);

  // ---- deaths ----
  /// @pre `computes`. The conductor counts on it until `notice`.
  void die(std::uint32_t machine);
  /// The conductor hears that it is dead. @returns false if that is known, or not so.
  bool notice(std::uint32_t machine);
  /// A dead one joins like a new machine.
  void revive(std::uint32_t machine);

  // ---- growing and shrinking ----
  /// Switches one on, which has to start. @returns which; nothing if all are there.
  std::optional<std::uint32_t> hire(worker_role role);
  /// It has started.
  void serve(std::uint32_t machine);
  /// The latest that came drains, since its cache is the youngest. @returns which; nothing if only one
  /// serves.
  std::optional<std::uint32_t> dismiss(worker_role role, machine_leaves why);
  /// A machine that drains for good serves on. @returns whether there was one.
  bool keep_one(worker_role role);
  /// The machine drains in order to leave: it has not died meanwhile, and was not kept after all.
  bool leaves(std::uint32_t machine) const noexcept;
  /// The machine is not needed any more: it is switched off. @returns why it drained.
  machine_leaves let_go(std::uint32_t machine);

  /// The run begins: machines that are there are paid for from now on.
  void begin_paying();
  /// The run has ended: sums up the cost of all machines, dead and absent ones included.
  void sum_up(ticks end);

 private:
  static constexpr std::uint32_t no_line = ~std::uint32_t{0};
  struct condition {
    double slower = 1;
    machine_state state = machine_state::live;
    bool unseen = false;           ///< dead, and the conductor does not know it yet
    std::uint32_t line = no_line;  ///< of the disturbances: the restart that it goes through
    std::uint32_t lives = 0;
    ticks died = -1;                  ///< the last time
    ticks paid_since = -1, paid = 0;  ///< -1: it is not, being off; until then
    machine_leaves leaves = machine_leaves::not_at_all;
    bool computes() const noexcept { return state <= machine_state::draining; }
  };

  void join(std::uint32_t machine);
  void add_instance(worker_id id, node_id node, worker_role role);
  void tell(std::uint32_t machine, instance_state state);
  void changed(std::uint32_t machine, change_kind what);
  static void pay(condition& c, ticks until);

  world& w_;
  std::vector<condition> all_;
};

}  // namespace mooncaf::sim
