// Reasoning apart from answers: read, and put in front of a grammar.

#include <doctest/doctest.h>

#include <random>

#include "runtime/reasoning/reasoning_grammar.hpp"
#include "runtime/reasoning/reasoning_reader.hpp"
#include "tests/runtime/grammar/grammar_fixture.hpp"

using namespace mooncaf;
using testing::accepts;

namespace {

/// "reasoning|rest" of `text`, whole, by the byte and in pieces of random lengths, which must be the same.
std::string read(const std::string& text, thought_state state, reasoning_form form = reasoning_form::think) {
  std::mt19937 random(7);
  std::string first;
  for (int round = 0; round < 12; ++round) {
    reasoning_reader reader{form, state};
    thought_parts all;
    const auto add = [&](const thought_parts& p) {
      CHECK((p.reasoning.empty() || all.rest.empty()));
      all.reasoning += p.reasoning;
      all.rest += p.rest;
    };
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = round == 0 ? text.size() : round == 1 ? 1 : 1 + random() % 9;
      add(reader.feed(std::string_view{text}.substr(at, n)));
      at += n;
    }
    add(reader.finish());
    const auto said = all.reasoning + "|" + all.rest;
    if (round == 0) first = said;
    CHECK(said == first);
  }
  return first;
}

}  // namespace

TEST_CASE("reasoning is taken out of an answer, without the white space around it") {
  using enum thought_state;
  CHECK(read("<think>\nIt is 4.\n\nSure.\n</think>\n\nFour.\n", may_open) == "It is 4.\n\nSure.|Four.\n");
  CHECK(read("\n <think>a</think>b", may_open) == "a|b");
  CHECK(read("a < b </think>\n\n<think>c", open) == "a < b|<think>c");
  CHECK(read("<think></think>b", may_open) == "|b");
  CHECK(read("\n\n</think>b", open) == "|b");
  CHECK(read("never closed </thin \n", open) == "never closed </thin|");
  CHECK(read("x </think", open) == "x </think|");
  CHECK(read("Say <think>a</think>", may_open) == "|Say <think>a</think>");
  CHECK(read(" \n", may_open) == "| \n");
  CHECK(read("<thin", may_open) == "|<thin");
  CHECK(read("<think>a</think>b", over) == "|<think>a</think>b");
  CHECK(read("[THINK]a[x[/THINK] b", may_open, reasoning_form::mistral) == "a[x|b");
}

TEST_CASE("an answer in channels is what its final one says; what the analysis says is reasoning") {
  using enum thought_state;
  const auto channels = [](const std::string& text) { return read(text, may_open, reasoning_form::harmony); };
  const std::string analysis = "<|channel|>analysis<|message|>", final_one = "<|channel|>final<|message|>",
                    next = "<|end|><|start|>assistant";
  CHECK(channels(analysis + "2 < 3, so <|end|> it is." + next + final_one + "Yes.\n") ==
        "2 < 3, so <|end|> it is.|Yes.\n");
  CHECK(channels(final_one + "Yes.") == "|Yes.");
  CHECK(channels(analysis + "never said") == "never said|");
  CHECK(channels(analysis + "a<|end|><|end|><|start|>assistant<|channel|>fin") ==
        "a<|end|><|end|><|start|>assistant<|channel|>fin|");
  // What is not said to the user is left to whoever reads calls.
  const std::string call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}";
  CHECK(channels(analysis + "I ask.<|end|><|start|>assistant" + call) == "I ask.|<|start|>assistant" + call);
  CHECK(channels(analysis +
                 "I ask.<|end|><|start|>assistant to=functions.f<|channel|>commentary<|message|>{}") ==
        "I ask.|<|start|>assistant to=functions.f<|channel|>commentary<|message|>{}");
  CHECK(channels("{\"a\": 1}") == "|{\"a\": 1}");
  CHECK(channels("<|channel|>commentary<|message|>x") == "|<|channel|>commentary<|message|>x");
  CHECK(channels("<|chan") == "|<|chan");
}

TEST_CASE("templates say how a model thinks, and prompts whether it does already") {
  using enum thought_state;
  CHECK(reasoning_form_of("{{ '<think>\\n' }}") == reasoning_form::think);
  CHECK(reasoning_form_of("{{ content.split('</think>')[-1] }}") == reasoning_form::think);
  CHECK(reasoning_form_of("[THINK]{{ m }}[/THINK]") == reasoning_form::mistral);
  CHECK(reasoning_form_of("<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>") ==
        reasoning_form::harmony);
  CHECK(!reasoning_form_of("{{ messages }}"));
  const auto state = [](std::string_view end) { return thought_state_of(reasoning_form::think, end); };
  CHECK(state("assistant\n<think>\n") == open);
  CHECK(state("assistant\n<think>\n\n</think>\n\n") == over);
  CHECK(state("<think> is a mark<|im_end|>\nassistant\n") == may_open);
  CHECK(state("") == may_open);
}

TEST_CASE("a grammar holds behind the reasoning, which is free but for the mark that ends it") {
  using enum thought_state;
  const std::string yes = "root ::= \"yes\" | \"no\" other\nother ::= \"!\"\n";
  const auto opened = thought_first(yes, reasoning_form::think, open);
  for (const auto* text : {"</think>yes", "a <b> </b> </think>\n\nno!", "</think </think>yes",
                           "<</</t</think>no!", "<think>\xC3\xA9 yes</think> yes"})
    CHECK_MESSAGE(accepts(opened, text), text);
  for (const auto* text : {"yes", "a</think>", "a</think>maybe", "a</think>yes</think>yes", "a</think >yes"})
    CHECK_FALSE_MESSAGE(accepts(opened, text), text);
  const auto free = thought_first(yes, reasoning_form::think, may_open);
  for (const auto* text : {"yes", "<think>\nno, or\n</think>\n\nyes", "\n<think></think>no!"})
    CHECK_MESSAGE(accepts(free, text), text);
  for (const auto* text : {"<think>yes", "</think>yes", "think</think>yes", "perhaps"})
    CHECK_FALSE_MESSAGE(accepts(free, text), text);
  CHECK(thought_first(yes, reasoning_form::harmony, may_open) == yes);
  CHECK(thought_first(yes, reasoning_form::think, over) == yes);
  CHECK(accepts(thought_first(yes, reasoning_form::mistral, open), "a[b[/c[/THINK]yes"));
}
