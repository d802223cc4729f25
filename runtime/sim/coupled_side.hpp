#pragma once
// The nodes of a coupled cluster, which prefill and decode: the baseline.

#include <cstdint>
#include <vector>

#include "runtime/sim/attempts.hpp"
#include "runtime/sim/coupled_instance.hpp"
#include "runtime/sim/fleet.hpp"
#include "runtime/sim/node_memories.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// Where the roles are apart there are no nodes.
class coupled_side {
 public:
  /// All of these outlive the side.
  coupled_side(world& w, fleet& machines, node_memories& memories, attempts& requests);

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(all_.size()); }
  /// The request's prefix is there: it takes its place, waits for one, or is refused.
  void push(std::uint32_t slot);
  bool is_current(std::uint32_t node, std::uint32_t stamp) const noexcept {
    return all_[node].is_current(stamp);
  }
  /// The planned turn is done: answers that ended are closed. @returns requests with a computed prompt;
  /// `go_on` follows when they have been dealt with. Valid until the next turn.
  const std::vector<std::uint32_t>& turn(std::uint32_t node);
  /// Begins the next turn.
  void go_on(std::uint32_t node);
  /// As the node would report it.
  instance_load load(std::uint32_t node) const { return all_[node].load(); }
  /// A request with a computed prompt decodes from now on. @returns whether its KV stays on the device.
  bool decode(std::uint32_t slot);
  /// A request with a computed prompt has no more to do here, since its answer is one token.
  void leave(const request_state_record& r);
  /// Its machine goes on at another speed, after the step under way.
  void change_pace(std::uint32_t node);

  /// A prompt is being computed, or could be.
  bool computes_prompts(std::uint32_t node) const noexcept { return all_[node].computes_prompts(); }
  std::size_t running(std::uint32_t node) const noexcept { return all_[node].running(); }
  std::size_t waiting(std::uint32_t node) const noexcept { return all_[node].waiting(); }
  std::uint64_t context_tokens(std::uint32_t node) const noexcept { return all_[node].context_tokens(); }
  ticks busy(std::uint32_t node) const noexcept { return all_[node].busy(); }
  ticks prompts_busy(std::uint32_t node) const noexcept { return all_[node].prompts_busy(); }
  const std::optional<device_tier>& tier(std::uint32_t node) const noexcept { return all_[node].tier(); }

  /// @returns how far its members had got.
  std::vector<torn_answer> crash(std::uint32_t node) {
    return all_[node].crash(w_.time.now(), w_.requests, w_.out.gap);
  }
  void forget_kv(std::uint32_t node) { all_[node].forget_kv(); }

 private:
  void expect(std::uint32_t node, const std::optional<next_turn>& turn);

  world& w_;
  fleet& machines_;
  node_memories& memories_;
  attempts& requests_;
  std::vector<coupled_instance> all_;
  coupled_instance::news news_;  // of the latest turn
};

}  // namespace mooncaf::sim
