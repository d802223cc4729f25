// What an engine is asked for an order.

#include "runtime/engines/completion_call.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

using namespace mooncaf;
using nlohmann::json;

namespace {

struct order_world {
  order_world() {
    terms.model = "m";
    terms.context_tokens = 100;
    terms.root = {1, 2};
    order.tokens = {5, 6, 7};
    order.prompt_tokens = 3;
    order.root = terms.root;
    order.sampling.max_tokens = 10;
    order.sampling.temperature = 0;
  }
  json asked() {
    const auto body = completion_body(order, terms);
    REQUIRE(body);
    return json::parse(*body);
  }
  completion_terms terms;
  work_order order;
};

}  // namespace

TEST_CASE_FIXTURE(order_world, "the prompt goes as token ids, and what is off is left out") {
  const auto body = asked();
  CHECK(body["prompt"] == json({5, 6, 7}));
  CHECK(body["model"] == "m");
  CHECK(body["max_tokens"] == 10);
  CHECK(body["temperature"] == 0);
  CHECK(body["stream"] == true);
  CHECK(body["return_token_ids"] == true);
  for (const auto* absent :
       {"seed", "cache_salt", "logprobs", "structured_outputs", "stop", "min_tokens", "presence_penalty"})
    CHECK_MESSAGE(!body.contains(absent), absent);
}

TEST_CASE_FIXTURE(order_world, "every sampling setting has its field") {
  auto& s = order.sampling;
  s.temperature = 0.5f;
  s.top_p = 0.25f;
  s.top_k = -1;
  s.min_p = 0.125f;
  s.seed = UINT64_MAX;
  s.repetition_penalty = 1.5f;
  s.presence_penalty = 0.5f;
  s.frequency_penalty = -0.5f;
  s.logit_bias = {{17, 2.5f}};
  s.min_tokens = 4;
  s.ignore_eos = true;
  s.stop = {"never sent: the gateway looks for it"};
  s.stop_token_ids = {3};
  s.allowed_token_ids = {1, 2};
  s.grammar = "root ::= \"a\"";
  s.logprobs = 2;
  order.root = {0xAB, 0xCD};
  const auto body = asked();
  CHECK(body["top_p"] == 0.25);
  CHECK(body["top_k"] == 0);
  CHECK(body["min_p"] == 0.125);
  CHECK(body["seed"].get<std::int64_t>() == INT64_MAX);
  CHECK(body["repetition_penalty"] == 1.5);
  CHECK(body["presence_penalty"] == 0.5);
  CHECK(body["frequency_penalty"] == -0.5);
  CHECK(body["logit_bias"] == json{{"17", 2.5}});
  CHECK(body["min_tokens"] == 4);
  CHECK(body["ignore_eos"] == true);
  CHECK_FALSE(body.contains("stop"));
  CHECK(body["stop_token_ids"] == json({3}));
  CHECK(body["allowed_token_ids"] == json({1, 2}));
  CHECK(body["structured_outputs"]["grammar"] == s.grammar);
  CHECK(body["logprobs"] == 2);
  CHECK(body["return_tokens_as_token_ids"] == true);
  CHECK(body["cache_salt"] == "00000000000000ab00000000000000cd");
}

TEST_CASE_FIXTURE(order_world, "a request that moved here asks for the rest of its answer") {
  order.tokens = {5, 6, 7, 8, 9};
  order.sampling.min_tokens = 4;
  CHECK(asked()["max_tokens"] == 8);
  CHECK(asked()["min_tokens"] == 2);
  order.sampling.max_tokens = 1000;
  CHECK(asked()["max_tokens"] == 95);
  terms.context_tokens = 0;
  CHECK(asked()["max_tokens"] == 998);
  terms.context_tokens = 5;
  const auto full = completion_body(order, terms);
  REQUIRE_FALSE(full);
  CHECK(full.error().code == ec::invalid_argument);
}

TEST_CASE_FIXTURE(order_world, "what no engine is asked for is refused by name") {
  const auto refused = [&](auto&& change) {
    auto other = order;
    change(other.sampling);
    const auto body = completion_body(other, terms);
    REQUIRE_FALSE(body);
    CHECK(body.error().code == ec::unsupported);
    return body.error().detail;
  };
  CHECK(refused([](auto& s) { s.pooling = pooling_kind::mean; }).starts_with("embeddings"));
  CHECK(refused([](auto& s) { s.prompt_logprobs = 0; }).starts_with("prompt_logprobs"));
  CHECK(refused([](auto& s) { s.bad_words = {{1}}; }).starts_with("bad_words"));
  CHECK(refused([](auto& s) { s.adapter = "x"; }).starts_with("an adapter"));
}

TEST_CASE_FIXTURE(order_world, "SGLang is asked the same in its own words") {
  terms.make = engine_make::sglang;
  const auto plain = asked();
  CHECK(plain["input_ids"] == json({5, 6, 7}));
  CHECK(plain["stream"] == true);
  CHECK(plain["sampling_params"] ==
        json{{"temperature", 0}, {"repetition_penalty", 1}, {"max_new_tokens", 10}});
  for (const auto* absent : {"extra_key", "return_logprob"}) CHECK_MESSAGE(!plain.contains(absent), absent);
  auto& s = order.sampling;
  s.temperature = 0.5f;
  s.top_p = 0.25f;
  s.top_k = 0;
  s.min_p = 0.125f;
  s.seed = UINT64_MAX;
  s.repetition_penalty = 1.5f;
  s.presence_penalty = 0.5f;
  s.frequency_penalty = -0.5f;
  s.logit_bias = {{17, 2.5f}};
  s.min_tokens = 4;
  s.ignore_eos = true;
  s.stop_token_ids = {9};
  s.grammar = "root ::= x";
  s.logprobs = 2;
  order.root = {3, 4};
  const auto full = asked();
  CHECK(full["sampling_params"] == json{{"temperature", 0.5},
                                        {"top_p", 0.25},
                                        {"top_k", -1},
                                        {"min_p", 0.125},
                                        {"sampling_seed", INT64_MAX},
                                        {"repetition_penalty", 1.5},
                                        {"presence_penalty", 0.5},
                                        {"frequency_penalty", -0.5},
                                        {"logit_bias", {{"17", 2.5}}},
                                        {"ignore_eos", true},
                                        {"stop_token_ids", {9}},
                                        {"ebnf", "root ::= x"},
                                        {"max_new_tokens", 10},
                                        {"min_new_tokens", 4}});
  CHECK((full["return_logprob"] == true && full["top_logprobs_num"] == 2));
  CHECK(full["extra_key"].get<std::string>().size() == 32);
  s.allowed_token_ids = {1};
  CHECK(completion_body(order, terms).error().detail.starts_with("allowed_token_ids"));
}
