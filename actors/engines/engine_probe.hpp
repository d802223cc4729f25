#pragma once
// Gets to know an engine at the start: what it serves, and how long it takes for it.

#include <cstdint>
#include <utility>
#include <vector>

#include "actors/engines/engine_client.hpp"
#include "runtime/engines/completion_call.hpp"
#include "runtime/engines/engine_facts.hpp"
#include "runtime/model/calibration.hpp"

namespace mooncaf {

/// Waits until the engine answers, for as long as it takes: it may load its weights. Says so every few seconds.
/// @param model  its name there; empty: the first that it lists.
/// @error of `read_models`; `ec::unavailable` if it refuses to say.
result<engine_facts> meet_engine(engine_client& engine, const std::string& model);

/// How large the engine's steps are for which it is timed.
struct engine_limits {
  std::uint32_t vocabulary = 0;     ///< token ids of its prompts
  std::uint32_t budget_tokens = 0;  ///< longest prompt
  std::uint32_t max_batch = 0;      ///< answers at once
};

/// Times of an engine's prefill and decode steps, each (as `timing_sample`) measured by prompts of random tokens, from
/// outside: HTTP is in it. Takes some seconds.
/// @error of the engine.
result<std::pair<std::vector<timing_sample>, std::vector<timing_sample>>> time_engine(
    engine_client& engine, const completion_terms& terms, const engine_limits& limits);

}  // namespace mooncaf
