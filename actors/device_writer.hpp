#pragma once
// The DEVICE WRITER: KV that passes left on the device alone (L1) comes to the node's memory (L2), before it
// leaves the device or because it is used often.
//
//   device_kv ── something is unwritten ──► device writer ── look, reserve ──► shard
//                                                 │  copy, checksum ──► its executor
//                                                 └─ commit, release ──► shard

#include <atomic>
#include <caf/response_promise.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <memory>
#include <vector>

#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "runtime/model/page_writer.hpp"
#include "runtime/request/device_write_core.hpp"

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
  /// Carries out the orders of the core; to be called after every call of it.
  void act();
  void carry_out(write_action::look& order);
  void carry_out(const write_action::reserve& order);
  void carry_out(write_action::copy& order);
  void carry_out(write_action::commit& order);
  void carry_out(const write_action::release& order);
  void carry_out(const write_action::rest& order);
  void carry_out(const write_action::flushed& order);

  context_ptr context_;
  cache_shard_actor shard_;
  executor_actor executor_;
  std::shared_ptr<page_writer> pages_;       ///< of tasks on `executor_`
  std::shared_ptr<std::atomic<bool>> told_;  ///< a tick is on its way
  device_write_core core_;
  std::vector<caf::typed_response_promise<std::uint64_t>> flushes_;  ///< that wait until all is written
};

}  // namespace mooncaf
