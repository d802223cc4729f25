#pragma once
// A worker's surroundings.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/interfaces.hpp"
#include "runtime/compute/device_health.hpp"
#include "runtime/sched/estimators.hpp"
#include "runtime/sched/journal/sink.hpp"

namespace mooncaf {

/// Local actors that a worker talks to, and the health of its device.
struct worker_links {
  worker_id id;
  cache_shard_actor shard;
  messenger_actor messenger;
  executor_actor executor;
  /// Prefill by a pipeline group: executors of the steps beside the first one.
  std::vector<executor_actor> beside;
  /// Decode on a device with memory of its own: a thread that brings prompts there, beside the steps; may
  /// wait for the device. Invalid: the first step of each loads its prompt.
  executor_actor loads;
  prefill_model passes;     ///< prefill: how long a pass takes, as calibrated
  decode_model steps;       ///< decode: how long a step takes, as calibrated
  journal::sink journal{};  ///< gets the worker's decisions; empty: nothing is written down
  std::shared_ptr<device_health> health = std::make_shared<device_health>();
  /// Is told once when the worker computes nothing any more, and why. Called by the worker's thread.
  std::function<void(const std::string& why)> device_lost;
};

}  // namespace mooncaf
