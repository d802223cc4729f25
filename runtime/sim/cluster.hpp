#pragma once
// The modelled machines of all roles, put together.

#include <cstdint>
#include <vector>

#include "runtime/sim/coupled_side.hpp"
#include "runtime/sim/decode_side.hpp"
#include "runtime/sim/fleet.hpp"
#include "runtime/sim/learned_links.hpp"
#include "runtime/sim/node_links.hpp"
#include "runtime/sim/node_memories.hpp"
#include "runtime/sim/prefill_side.hpp"
#include "runtime/sim/prompt_turns.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// The parts are used by name; questions about a machine of either role are asked here.
struct cluster {
  /// @param requests  hears how they end. Both outlive the cluster.
  cluster(world& w, attempts& requests)
      : links(w),
        learned(w),
        machines(w),
        memories(w),
        turns(w),
        prefills(w, machines, links, learned, memories),
        decodes(w, machines, requests),
        coupled(w, machines, memories, requests),
        w_(w) {}

  node_links links;
  learned_links learned;
  fleet machines;
  node_memories memories;
  prompt_turns turns;
  prefill_side prefills;
  decode_side decodes;
  coupled_side coupled;

  // ---- by prefill instance, or coupled node ----
  /// No prompt is computed, and none waits.
  bool idle(std::uint32_t instance) const noexcept;
  std::size_t waiting(std::uint32_t instance) const noexcept;
  /// Time that prompts have taken.
  ticks prompts_busy(std::uint32_t instance) const noexcept;
  const std::optional<device_tier>& tier(std::uint32_t instance) const noexcept;
  /// Begins a prefill step if it can; a decode instance on the same machine goes on at another speed.
  /// @returns whether a step began.
  bool start_prefill(std::uint32_t instance);
  void decode_turn(std::uint32_t instance, std::uint32_t stamp);
  /// `decode_side::arrived`.
  void kv_arrived(std::uint32_t slot);

  // ---- by machine ----
  ticks busy(std::uint32_t machine) const noexcept;
  /// A request computes there, waits for it, or moves KV from or to it.
  bool is_needed(std::uint32_t machine) const;
  /// Decoding goes on at another speed after the step under way.
  void change_pace(std::uint32_t machine);
  /// The KV of a machine that is not needed any more is gone.
  void empty_memory(std::uint32_t machine);
  /// The machine dies with all that it computed, held and moved. @returns how far its answers had got.
  std::vector<torn_answer> crash(std::uint32_t machine);

 private:
  world& w_;
};

}  // namespace mooncaf::sim
