#include "actors/job_sampler.hpp"

#include <span>
#include <utility>

namespace mooncaf {

result<std::shared_ptr<sampler>> make_sampler(const node_context& context, const generate_job& job) {
  if (!job.sampling.adapter.empty() && adapter_of(context, job) == nullptr)
    return fail(ec::not_found, "this node has no adapter '" + job.sampling.adapter + "'");
  std::unique_ptr<token_constraint> constraint;
  if (!job.sampling.grammar.empty()) {
    auto started = context.grammars->start(job.sampling.grammar);
    if (!started) return fail(started.error());
    constraint = std::move(*started);
  }
  const std::span tokens{job.tokens};
  return std::make_shared<sampler>(job.sampling, tokens.first(job.prompt_tokens), context.text->eog_ids(),
                                   context.shape.vocab_size, tokens.subspan(job.prompt_tokens),
                                   std::move(constraint));
}

const lora_adapter* adapter_of(const node_context& context, const generate_job& job) {
  const auto found = context.adapters.find(job.sampling.adapter);
  return found == context.adapters.end() ? nullptr : found->second.get();
}

}  // namespace mooncaf
