#pragma once
// The sampler of a job, as both workers need it.

#include <memory>

#include "actors/messages.hpp"
#include "actors/node_context.hpp"
#include "runtime/model/sampler.hpp"

namespace mooncaf {

/// Stands behind the tokens of the job that are output already.
/// @error of `grammar_cache` for the job's grammar, which a gateway of another version has compiled.
result<std::shared_ptr<sampler>> make_sampler(const node_context& context, const generate_job& job);

/// The adapter that a job names. Null: none, or one that this node does not have, which `make_sampler`
/// refuses.
const lora_adapter* adapter_of(const node_context& context, const generate_job& job);

}  // namespace mooncaf
