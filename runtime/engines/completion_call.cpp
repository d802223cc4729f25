#include "runtime/engines/completion_call.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/engines/told_blocks.hpp"

namespace mooncaf {

namespace {

using nlohmann::json;

result<void> can_be_asked(const sampling_params& s) {
  const auto refused = [](const char* what) {
    return fail(ec::unsupported,
                std::string{what} + ": the engines behind this cluster are not asked for it");
  };
  if (s.pooling != pooling_kind::none) return refused("embeddings");
  if (s.prompt_logprobs >= 0) return refused("prompt_logprobs");
  if (!s.bad_words.empty()) return refused("bad_words");
  if (!s.adapter.empty()) return refused("an adapter");
  return {};
}

std::uint32_t produced(const work_order& order) {
  return static_cast<std::uint32_t>(order.tokens.size()) - order.prompt_tokens;
}

/// Settings that are off are left out; an engine's own defaults are not relied on.
void add_sampling(json& body, const sampling_params& s) {
  body["temperature"] = s.temperature;
  if (s.temperature > 0) {
    body["top_p"] = s.top_p;
    body["top_k"] = std::max(s.top_k, 0);
    body["min_p"] = s.min_p;
    body["seed"] = static_cast<std::int64_t>(s.seed >> 1);  // theirs are signed
  }
  body["repetition_penalty"] = s.repetition_penalty;
  if (s.presence_penalty != 0) body["presence_penalty"] = s.presence_penalty;
  if (s.frequency_penalty != 0) body["frequency_penalty"] = s.frequency_penalty;
  for (const auto& [id, bias] : s.logit_bias) body["logit_bias"][std::to_string(id)] = bias;
  if (s.ignore_eos) body["ignore_eos"] = true;
  if (!s.stop_token_ids.empty()) body["stop_token_ids"] = s.stop_token_ids;
  if (!s.allowed_token_ids.empty()) body["allowed_token_ids"] = s.allowed_token_ids;
  if (!s.grammar.empty()) body["structured_outputs"] = {{"grammar", s.grammar}};
  if (s.logprobs >= 0) {
    body["logprobs"] = s.logprobs;
    body["return_tokens_as_token_ids"] = true;
  }
}

}  // namespace

std::uint32_t tokens_wanted(const work_order& order, const completion_terms& terms) {
  const auto wanted = order.sampling.max_tokens - std::min(order.sampling.max_tokens, produced(order));
  if (terms.context_tokens == 0) return wanted;
  const auto length = static_cast<std::uint32_t>(order.tokens.size());
  return std::min(wanted, terms.context_tokens - std::min(terms.context_tokens, length));
}

result<std::string> completion_body(const work_order& order, const completion_terms& terms) {
  if (auto may = can_be_asked(order.sampling); !may) return fail(may.error());
  const auto wanted = tokens_wanted(order, terms);
  if (wanted == 0)
    return fail(ec::invalid_argument, "the prompt has " + std::to_string(order.tokens.size()) +
                                          " tokens; with an answer the engine takes " +
                                          std::to_string(terms.context_tokens));
  json body{{"model", terms.model},
            {"prompt", order.tokens},
            {"max_tokens", wanted},
            {"stream", true},
            {"stream_options", {{"include_usage", true}}},
            {"return_token_ids", true}};
  const auto least = order.sampling.min_tokens - std::min(order.sampling.min_tokens, produced(order));
  if (least > 0) body["min_tokens"] = std::min(least, wanted);
  if (order.root != terms.root) body["cache_salt"] = told_blocks::salt_of(order.root);
  add_sampling(body, order.sampling);
  return body.dump();
}

}  // namespace mooncaf
