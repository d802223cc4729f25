#pragma once
// The options of a prefill worker's core, made of its node's.

#include <algorithm>
#include <cstdint>

#include "actors/node_context.hpp"
#include "runtime/request/prefill_core.hpp"

namespace mooncaf {

/// Prompts that one step may end, and so the rows of logits that its runner needs: with prompts shorter
/// than 16 tokens a step is not filled, which costs less than room for logits that are hardly ever wanted.
constexpr std::uint32_t prompts_per_step(std::uint32_t budget_tokens) {
  return std::max(1u, budget_tokens / 16);
}

/// Good for as long as the context lives. @param stages  of its runner. @param journal  of `worker_links`.
prefill_core_options prefill_options_of(const context_ptr& context, std::uint32_t stages,
                                        journal::sink journal);

}  // namespace mooncaf
