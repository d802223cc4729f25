#pragma once
// Facts that an engine tells of itself, for the start.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"
#include "runtime/engines/engine_make.hpp"

namespace mooncaf {

struct engine_facts {
  std::string model;                 ///< its name there
  std::uint32_t context_tokens = 0;  ///< longest prompt and answer together; 0: not told
  std::uint64_t cache_tokens = 0;    ///< of KV that its memory holds; 0: not told
  engine_make make = engine_make::vllm;
};

/// Reads the answer to `GET /v1/models`. @param wanted  the model's name; empty: the first.
/// @error `ec::not_found` with the names that there are; `ec::corrupt`.
result<engine_facts> read_models(std::string_view body, std::string_view wanted);

/// The tokens of KV in the answer to `GET /metrics`, as vLLM's `vllm:cache_config_info` or SGLang's
/// `sglang:max_total_num_tokens` has them; 0: it does not.
std::uint64_t cache_tokens_in(std::string_view metrics);

/// Requests that run or wait in the engine, as vLLM's `vllm:num_requests_running` and `…_waiting`, or SGLang's
/// `sglang:num_running_reqs` and `num_queue_reqs`, have them; empty: the answer to `GET /metrics` does not say.
std::optional<std::uint32_t> requests_in(std::string_view metrics);

}  // namespace mooncaf
