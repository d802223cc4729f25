#pragma once
// A cluster in which nothing goes wrong: messages and transfers take no time, and computing what a model says.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/request/prefill_core.hpp"
#include "runtime/sched/decode_batch.hpp"
#include "runtime/sched/instance.hpp"

namespace mooncaf::campaign {

/// What the dice decide else. Blocks hold nothing, so tokens mean nothing; decode nodes keep their blocks to
/// themselves.
struct steady_pace {
  std::function<duration(std::span<const prefill_part>)> prefill_step;
  std::function<duration(std::uint64_t batch, std::uint64_t context_tokens)> decode_step;
  prefill_core_options prefill_options;
  decode_batch_options decode_batch;
  instance_desc prefill, decode;       ///< of each instance, but for its id and node
  std::vector<std::uint32_t> answers;  ///< tokens of each, by its sampling seed
};

}  // namespace mooncaf::campaign
