#pragma once
// A prefill or decode instance, as it registers and as it reports.

#include <cstdint>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/instance_state.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/worker_role.hpp"
#include "runtime/sched/estimators.hpp"

namespace mooncaf {

/// A worker, as it registers.
struct instance_desc {
  worker_id id;
  node_id node;
  worker_role role = worker_role::prefill;
  std::uint32_t capacity = 1;         ///< decode: largest batch
  std::vector<timing_point> samples;  ///< calibration of its device
  std::uint64_t capacity_tokens = 0;  ///< decode: context tokens that its KV memory holds; 0: no limit known
  /// Decode: room for all `max_tokens` is kept from the start (a modelled instance); else an answer takes
  /// memory as it grows.
  bool reserves_answers = false;
  instance_state state = instance_state::live;
};

/// A decode step that was timed, and its work.
struct timed_step {
  std::uint64_t number = 0;  ///< of its instance's steps, from 1; 0: there was none
  std::uint32_t batch = 0;
  std::uint64_t context_tokens = 0;
  duration took{};
};

/// A worker's report about itself, sent now and then.
struct instance_load {
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  std::uint64_t context_tokens = 0;  ///< decode: of the running batch
  timed_step step;                   ///< decode: the latest; the batch may be another by now, or empty
  duration busy{};                   ///< that its device computed, since its start
  std::uint32_t others = 0;          ///< decode: requests in its batch that no conductor placed
};

}  // namespace mooncaf
