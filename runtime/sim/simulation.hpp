#pragma once
// The cluster on a virtual clock: production scheduling, batching and eviction, modelled machines.

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/sim/arrivals.hpp"
#include "runtime/sim/attempts.hpp"
#include "runtime/sim/cluster.hpp"
#include "runtime/sim/disturber.hpp"
#include "runtime/sim/hot_copier.hpp"
#include "runtime/sim/options.hpp"
#include "runtime/sim/outcome.hpp"
#include "runtime/sim/prefix_loader.hpp"
#include "runtime/sim/rounds.hpp"
#include "runtime/sim/rule_changer.hpp"
#include "runtime/sim/sampler.hpp"
#include "runtime/sim/scaling.hpp"
#include "runtime/sim/trace_source.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// One run: the event loop, and the way of a request from part to part.
///
///   arrivals ─► attempts (admission_queue ─► conductor_core) ─► prefix_loader (pin, read, fetch) ─► prefill_side
///                  ▲  ▲                                                                               │ KV stream
///                  │  └─────────────────────── finished, refused, lost ───────────────────── decode_side
///                  └ disturber, scaling: machines that break, come and go
///
/// Links and disks are queues: a transfer ends when both its sender and its receiver have worked off their
/// earlier ones and it. Deterministic: the same options and trace give the same outcome, bit for bit.
/// @cost  a few microseconds per request; memory follows live requests and cached blocks.
class simulation {
 public:
  /// @param options  as checked by `check_options`.
  explicit simulation(const simulation_options& options);

  /// @param progress  called now and then with the number of requests that have arrived; may be empty.
  /// @error  of the source.
  result<outcome> run(trace_source& source, const std::function<void(std::uint64_t)>& progress = {});

  /// Before the run: these leading blocks of a prompt lie in the memory of a prefill instance, or coupled node.
  void warm(std::uint32_t instance, std::span<const block_key> keys) {
    cluster_.memories.of(instance).insert(keys, 0, 0);
  }

  const conductor_core& conductor() const noexcept { return world_.conductor; }
  std::size_t live_requests() const noexcept { return world_.requests.live(); }

 private:
  result<void> begin(trace_source& source);
  bool is_over() const noexcept;
  bool hopeless() const noexcept;
  result<void> play(const event& e);
  result<void> arrival(const event& e);
  void dispatch(const event& e);
  void happen_to_machine(std::uint32_t machine, std::uint32_t stamp);

  void act();
  void act_on(const decision& d);
  void place(std::uint32_t slot, const placement& where);
  void begin_load(std::uint32_t slot, const placement& where);
  void enter_prefill(std::uint32_t slot);
  void count_prefix(const request_state_record& r, std::uint32_t here);
  void stop_loading(std::uint32_t instance);
  void start_prefill(std::uint32_t instance);
  void prefill_exit(std::uint32_t instance);
  void coupled_turn(std::uint32_t node, std::uint32_t stamp);
  void first_token(std::uint32_t slot);

  world world_;
  arrivals arrivals_;
  attempts attempts_;
  cluster cluster_;
  prefix_loader loader_;
  hot_copier copier_;
  rounds rounds_;
  disturber disturber_;
  scaling scaling_;
  rule_changer rules_;
  sampler sampler_;
  std::vector<prompt_turns::turn> arriving_;  // at their workers
  ticks began_ = 0;
};

}  // namespace mooncaf::sim
