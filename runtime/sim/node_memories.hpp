#pragma once
// The KV that the modelled nodes hold: memory and disk of each, and blocks that only its device has.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/sim/device_tier.hpp"
#include "runtime/sim/node_cache.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// Cache options of a node with a prefill instance, or a coupled one.
node_cache_options cache_options_of(const world& w);

/// Where prompts and answers share a device's own memory (coupled nodes), blocks may be there alone. The
/// device writer takes no time here: a block that is to leave the device, or is used often, is in memory at
/// once.
class node_memories {
 public:
  /// @param w  outlives the memories.
  explicit node_memories(world& w);

  /// Of a prefill instance, or a coupled node.
  node_cache& of(std::uint32_t instance) noexcept { return caches_[instance]; }
  const node_cache& of(std::uint32_t instance) const noexcept { return caches_[instance]; }
  /// From now on `device` is the device of a coupled node. @param device  outlives the memories.
  void attach(std::uint32_t instance, device_tier& device);

  /// Leading blocks of a prompt that the device of its node has.
  std::uint32_t on_device(const request_state_record& r) const;
  /// Keeps the device's blocks of a prompt for it. @returns leading blocks that need not be computed, blocks
  /// of the device alone included.
  std::uint32_t adopt_from_device(const request_state_record& r);
  /// The computed KV of a prompt stays on the device: memory gets none of it.
  bool stays_on_device(const request_state_record& r) const;
  /// The device need not keep anything for the request any more.
  void let_go(const request_state_record& r);
  /// Writes blocks that are to leave the device of a node to the node's memory.
  void tend_device(std::uint32_t instance);
  /// Brings blocks for another node to memory if the device alone has them. @returns how long that takes.
  ticks bring_down(std::uint32_t instance, std::span<const block_key> keys);

  /// Blocks evicted and bytes written to disks, over all nodes.
  void sum_up();

 private:
  /// Null: nothing stays in a memory of its own.
  device_tier* device_of(std::uint32_t instance) const noexcept {
    return devices_.empty() ? nullptr : devices_[instance];
  }

  world& w_;
  std::vector<node_cache> caches_;
  std::vector<device_tier*> devices_;  // of coupled nodes
};

}  // namespace mooncaf::sim
