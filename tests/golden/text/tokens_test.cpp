// Token ids against Hugging Face's tokenizers and SentencePiece; make_tokens.py beside this file made
// tokens.json.

#include <doctest/doctest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/text/chat_template.hpp"
#include "tests/golden/text/from_hex.hpp"
#include "tests/runtime/text/vocab_fixture.hpp"

using namespace mooncaf;
using mooncaf::test::from_hex;
using namespace mooncaf::testing;
using json = nlohmann::json;

namespace {

const json& golden() {
  static const json parsed = [] {
    std::ifstream in(std::string{MOONCAF_TEXT_GOLDEN} + "/tokens.json");
    REQUIRE(in.good());
    return json::parse(in);
  }();
  return parsed;
}

std::shared_ptr<const tokenizer> tokenizer_named(const std::string& name) {
  static std::map<std::string, std::shared_ptr<const tokenizer>> cache;
  auto& slot = cache[name];
  if (!slot) slot = built(name == "smollm2" ? smollm2_vocab() : tiny_vocab(name));
  return slot;
}

std::vector<std::int32_t> encode(const std::string& encoder, const std::string& text) {
  const bool parse = encoder == "smollm2_parse";
  return tokenizer_named(parse ? "smollm2" : encoder)
      ->encode(text, parse ? special_tokens::parse : special_tokens::as_text);
}

std::string hash_of(const std::vector<std::int32_t>& ids) {
  std::uint64_t value = 0xcbf29ce484222325ull;
  for (const std::int32_t id : ids) value = (value ^ static_cast<std::uint32_t>(id)) * 0x100000001b3ull;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

TEST_CASE("every hard string has the ids that the reference gives it") {
  for (const auto& c : golden()["cases"]) {
    const std::string text = from_hex(c["hex"]);
    for (const auto& [encoder, expected] : c["ids"].items()) {
      INFO(encoder, ": \"", text, "\" = ", c["hex"].get<std::string>());
      const auto ids = encode(encoder, text);
      CHECK_MESSAGE(ids == expected.get<std::vector<std::int32_t>>(), json(ids).dump(), " expected ",
                    expected.dump());
    }
  }
}

TEST_CASE("runs of a hundred thousand characters have the reference's ids, and take no time") {
  const auto start = std::chrono::steady_clock::now();
  for (const auto& c : golden()["long_runs"]) {
    const std::string unit = c["unit"];
    std::string text;
    for (int i = 0; i < c["count"].get<int>(); ++i) text += unit;
    for (const auto& [encoder, expected] : c["digests"].items()) {
      INFO(encoder, ": ", c["count"].get<int>(), " times \"", unit, "\"");
      const auto ids = encode(encoder, text);
      CHECK(ids.size() == expected[0].get<std::size_t>());
      CHECK(hash_of(ids) == expected[1].get<std::string>());
    }
  }
  // Quadratic merging would take minutes; the bound leaves room for sanitizers.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("conversations are rendered to the ids of apply_chat_template") {
  for (const auto& c : golden()["chats"]) {
    const std::string vocab_name = c["vocab"], template_name = c["template"];
    std::shared_ptr<const tokenizer> tok;
    if (template_name == "file") {
      tok = tokenizer_named(vocab_name);
    } else {
      tokenizer_vocab vocab = tiny_vocab(vocab_name);
      vocab.chat_template = golden()["templates"][template_name];
      tok = built(std::move(vocab));
    }
    const auto chat = chat_template::recognise(tok);
    REQUIRE_MESSAGE(chat.has_value(), (chat ? "" : to_string(chat.error())));
    std::vector<chat_message> messages;
    for (const auto& m : c["messages"]) messages.push_back({m["role"], m["content"], {}, "", "", ""});
    chat_render_options options;
    options.add_generation_prompt = c["generation_prompt"];
    const auto ids = chat->render(messages, options);
    INFO(vocab_name, " ", template_name, " ", c["messages"].dump());
    REQUIRE(ids.has_value());
    CHECK_MESSAGE(*ids == c["ids"].get<std::vector<std::int32_t>>(), tok->decode(*ids, special_text::show),
                  "\nexpected\n", tok->decode(c["ids"].get<std::vector<std::int32_t>>(), special_text::show));
  }
}
