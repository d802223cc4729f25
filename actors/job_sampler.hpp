#pragma once
// The sampler of a job, as both workers need it.

#include <memory>

#include "actors/messages.hpp"
#include "actors/node_context.hpp"
#include "runtime/model/sampler.hpp"

namespace mooncaf {

/// Stands behind the tokens of the job that are output already.
/// @error what `grammar_cache` says of the job's grammar; the gateway has compiled it, so that is another
/// version's.
result<std::shared_ptr<sampler>> make_sampler(const node_context& context, const generate_job& job);

/// The adapter that a job names. Null: none, or one that this node does not have, which `make_sampler`
/// refuses.
const lora_adapter* adapter_of(const node_context& context, const generate_job& job);

}  // namespace mooncaf
