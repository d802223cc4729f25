#include "runtime/engines/completion_call.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/engines/told_blocks.hpp"

namespace mooncaf {

namespace {

using nlohmann::json;

result<void> can_be_asked(const sampling_params& s, engine_make make) {
  const auto refused = [](const char* what) {
    return fail(ec::unsupported,
                std::string{what} + ": the engines behind this cluster are not asked for it");
  };
  if (s.pooling != pooling_kind::none) return refused("embeddings");
  if (s.prompt_logprobs >= 0) return refused("prompt_logprobs");
  if (!s.bad_words.empty()) return refused("bad_words");
  if (!s.adapter.empty()) return refused("an adapter");
  if (make == engine_make::sglang && !s.allowed_token_ids.empty()) return refused("allowed_token_ids");
  return {};
}

std::uint32_t produced(const work_order& order) {
  return static_cast<std::uint32_t>(order.tokens.size()) - order.prompt_tokens;
}

/// The settings that all engines know by the same name. Those that are off are left out; an engine's own defaults are not
/// relied on.
json sampling_of(const sampling_params& s) {
  json out{{"temperature", s.temperature}, {"repetition_penalty", s.repetition_penalty}};
  if (s.temperature > 0) {
    out["top_p"] = s.top_p;
    out["min_p"] = s.min_p;
  }
  if (s.presence_penalty != 0) out["presence_penalty"] = s.presence_penalty;
  if (s.frequency_penalty != 0) out["frequency_penalty"] = s.frequency_penalty;
  for (const auto& [id, bias] : s.logit_bias) out["logit_bias"][std::to_string(id)] = bias;
  if (s.ignore_eos) out["ignore_eos"] = true;
  if (!s.stop_token_ids.empty()) out["stop_token_ids"] = s.stop_token_ids;
  return out;
}

/// Theirs are signed.
std::int64_t seed_of(const sampling_params& s) { return static_cast<std::int64_t>(s.seed >> 1); }

json vllm_body(const work_order& order, const completion_terms& terms, std::uint32_t most,
               std::uint32_t least) {
  const auto& s = order.sampling;
  auto body = sampling_of(s);
  body.update({{"model", terms.model},
               {"prompt", order.tokens},
               {"max_tokens", most},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"return_token_ids", true}});
  if (least > 0) body["min_tokens"] = least;
  if (order.root != terms.root) body["cache_salt"] = told_blocks::salt_of(order.root);
  if (s.temperature > 0) {
    body["top_k"] = std::max(s.top_k, 0);
    body["seed"] = seed_of(s);
  }
  if (!s.allowed_token_ids.empty()) body["allowed_token_ids"] = s.allowed_token_ids;
  if (!s.grammar.empty()) body["structured_outputs"] = {{"grammar", s.grammar}};
  if (s.logprobs >= 0) {
    body["logprobs"] = s.logprobs;
    body["return_tokens_as_token_ids"] = true;
  }
  return body;
}

json sglang_body(const work_order& order, const completion_terms& terms, std::uint32_t most,
                 std::uint32_t least) {
  const auto& s = order.sampling;
  auto sampling = sampling_of(s);
  sampling["max_new_tokens"] = most;
  if (least > 0) sampling["min_new_tokens"] = least;
  if (s.temperature > 0) {
    sampling["top_k"] = s.top_k > 0 ? s.top_k : -1;
    sampling["sampling_seed"] = seed_of(s);
  }
  if (!s.grammar.empty()) sampling["ebnf"] = s.grammar;
  json body{{"input_ids", order.tokens}, {"stream", true}, {"sampling_params", std::move(sampling)}};
  if (order.root != terms.root) body["extra_key"] = told_blocks::salt_of(order.root);
  if (s.logprobs >= 0) {
    body["return_logprob"] = true;
    body["top_logprobs_num"] = s.logprobs;
  }
  return body;
}

}  // namespace

std::uint32_t tokens_wanted(const work_order& order, const completion_terms& terms) {
  const auto wanted = order.sampling.max_tokens - std::min(order.sampling.max_tokens, produced(order));
  if (terms.context_tokens == 0) return wanted;
  const auto length = static_cast<std::uint32_t>(order.tokens.size());
  return std::min(wanted, terms.context_tokens - std::min(terms.context_tokens, length));
}

result<std::string> completion_body(const work_order& order, const completion_terms& terms) {
  if (auto may = can_be_asked(order.sampling, terms.make); !may) return fail(may.error());
  const auto wanted = tokens_wanted(order, terms);
  if (wanted == 0)
    return fail(ec::invalid_argument, "the prompt has " + std::to_string(order.tokens.size()) +
                                          " tokens; with an answer the engine takes " +
                                          std::to_string(terms.context_tokens));
  const auto least =
      std::min(wanted, order.sampling.min_tokens - std::min(order.sampling.min_tokens, produced(order)));
  return (terms.make == engine_make::sglang ? sglang_body : vllm_body)(order, terms, wanted, least).dump();
}

}  // namespace mooncaf
