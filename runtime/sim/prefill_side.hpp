#pragma once
// The prefill instances of a cluster with roles apart: from the queue to the computed prompt, and the KV that
// leaves meanwhile.

#include <cstdint>
#include <vector>

#include "runtime/sched/estimators.hpp"
#include "runtime/sim/fleet.hpp"
#include "runtime/sim/learned_links.hpp"
#include "runtime/sim/node_links.hpp"
#include "runtime/sim/node_memories.hpp"
#include "runtime/sim/prefill_instance.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// Instances are numbered as their machines are. In a coupled cluster there are none; what its nodes believe
/// of their speed is known all the same.
class prefill_side {
 public:
  /// All of these outlive the side.
  prefill_side(world& w, const fleet& machines, node_links& links, learned_links& learned,
               node_memories& memories);

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(all_.size()); }
  /// The request's prefix is there, or comes in beside its computation.
  void push(const request_state_record& r);
  /// Begins a step if the first stage is free and something waits. @param beside_decode  the machine decodes,
  /// too. @returns whether it began one.
  bool start(std::uint32_t instance, bool beside_decode);
  /// An event of an instance that died since is void.
  bool is_current(const event& e) const noexcept { return e.stamp == machines_.life(e.target); }
  void first_stage_free(std::uint32_t instance) noexcept { all_[instance].first_stage_free(); }
  /// The oldest step leaves the last stage.
  prefill_step take_exit(std::uint32_t instance);
  /// A chunk of that step is computed, and its KV leaves. @returns whether its prompt is complete.
  bool computed(request_state_record& r, const prefill_chunk& chunk, const prefill_step& step);
  /// The rest of a prompt need not be computed.
  void cancel(const request_state_record& r) { all_[r.prefill].cancel(r.id); }

  bool has_stages() const noexcept { return w_.layout.pipeline() > 1; }
  bool computing(std::uint32_t instance) const noexcept {
    return instance < all_.size() && all_[instance].computing();
  }
  std::size_t waiting(std::uint32_t instance) const noexcept { return all_[instance].waiting(); }
  ticks busy(std::uint32_t instance) const noexcept { return all_[instance].busy(); }
  const std::optional<device_tier>& tier(std::uint32_t instance) const noexcept {
    return all_[instance].tier();
  }
  /// As told when the instance, or coupled node, joined, and as measured there since.
  const prefill_model& believed(std::uint32_t instance) const noexcept { return believed_[instance]; }

  void crash(std::uint32_t instance) { all_[instance].crash(w_.time.now()); }
  void forget_kv(std::uint32_t instance) { all_[instance].forget_kv(); }

 private:
  /// Those of its prompt that are computed.
  std::span<const block_key> full_blocks(const request_state_record& r) const;
  void publish(request_state_record& r);
  void stream_out(request_state_record& r, const prefill_chunk& chunk, const prefill_step& step);

  world& w_;
  const fleet& machines_;
  node_links& links_;
  learned_links& learned_;
  node_memories& memories_;
  std::vector<prefill_instance> all_;
  std::vector<prefill_model> believed_;  // by instance, or coupled node
};

}  // namespace mooncaf::sim
