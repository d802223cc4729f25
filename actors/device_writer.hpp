#pragma once
// The DEVICE WRITER: KV that passes left on the device alone (L1) comes to the node's memory (L2), before it
// leaves the device or because it is used often. One chain of blocks after the other, parents first, beside
// computing.
//
//   device_kv ── something is unwritten ──► device writer ── look, reserve ──► shard
//                                                 │  copy, checksum ──► its executor
//                                                 └─ commit, release ──► shard

#include <atomic>
#include <caf/response_promise.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "gpu/checked_copies.hpp"
#include "runtime/model/kv_mirror.hpp"

namespace mooncaf {

class device_writer final : public device_writer_actor::base {
 public:
  /// @param context  with `device_blocks`. @param copies  a thread that may wait for the device.
  device_writer(caf::actor_config& config, context_ptr context, cache_shard_actor shard,
                executor_actor copies);

  const char* name() const override { return "mooncaf.device_writer"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  void go_on();
  void looked(std::uint32_t held);
  void reserved(const std::vector<slot_index>& slots);
  void copied(const std::vector<slot_index>& slots, const std::vector<std::uint64_t>& checksums);
  /// The chain's first `count` are in memory.
  void done(std::uint32_t count);

  context_ptr context_;
  cache_shard_actor shard_;
  executor_actor executor_;
  std::shared_ptr<copy_queue> queue_;                 ///< of tasks on `executor_`, one at a time
  checked_copies* checked_ = nullptr;                 ///< the queue, where it can be one
  std::shared_ptr<std::atomic<bool>> told_;           ///< a tick is on its way
  std::optional<kv_residency::write> chain_;          ///< at work
  std::uint32_t held_ = 0;                            ///< leading blocks of it that memory has
  std::uint64_t owner_ = 0;                           ///< of its slots
  bool waits_ = false;                                ///< for room in memory, until the next try
  bool failed_ = false;                               ///< the device did; its workers say so and end
  std::uint64_t flushed_ = 0;                         ///< blocks
  caf::typed_response_promise<std::uint64_t> flush_;  ///< pending while all is to be written
};

}  // namespace mooncaf
