#pragma once
// The decode instances of a cluster whose roles are apart: from the KV that arrived to the last token.

#include <cstdint>
#include <vector>

#include "runtime/sched/estimators.hpp"
#include "runtime/sim/attempts.hpp"
#include "runtime/sim/decode_instance.hpp"
#include "runtime/sim/fleet.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// In a coupled cluster there are no instances.
class decode_side {
 public:
  /// All of these outlive the side.
  decode_side(world& w, fleet& machines, attempts& requests);

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(all_.size()); }
  /// All of a request's KV is at its instance: it joins the batch, waits, or is refused. @param beside_prefill
  /// as below.
  void arrived(std::uint32_t slot, bool beside_prefill);
  /// The steps planned under this stamp are done. @param beside_prefill  the machine computes a prompt, too.
  void turn(std::uint32_t instance, std::uint32_t stamp, bool beside_prefill);
  /// Its machine goes on at another speed, after the step under way.
  void change_pace(std::uint32_t instance);
  /// The prefill instance on the same machine begins or ends a step.
  void neighbour_changed(std::uint32_t instance);

  std::size_t running(std::uint32_t instance) const noexcept {
    return instance < all_.size() ? all_[instance].running() : 0;
  }
  std::size_t waiting(std::uint32_t instance) const noexcept { return all_[instance].waiting(); }
  std::uint64_t context_tokens(std::uint32_t instance) const noexcept {
    return all_[instance].context_tokens();
  }
  ticks busy(std::uint32_t instance) const noexcept { return all_[instance].busy(); }
  const std::optional<device_tier>& tier(std::uint32_t instance) const noexcept {
    return all_[instance].tier();
  }

  /// @returns how far its members had got.
  std::vector<torn_answer> crash(std::uint32_t instance) {
    return all_[instance].crash(w_.time.now(), w_.requests, w_.out.gap);
  }
  void forget_kv(std::uint32_t instance) { all_[instance].forget_kv(); }
  instance_load load(std::uint32_t instance) const { return all_[instance].load(w_.time.now()); }

 private:
  void expect(std::uint32_t instance, const std::optional<next_turn>& turn);

  world& w_;
  fleet& machines_;
  attempts& requests_;
  std::vector<decode_instance> all_;
  std::vector<decode_model> believed_;   // each of its speed: as told, and as measured since
  std::vector<std::uint32_t> finished_;  // scratch
};

}  // namespace mooncaf::sim
