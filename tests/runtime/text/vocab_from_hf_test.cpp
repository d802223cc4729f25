#include "runtime/text/vocab_from_hf.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/runtime/text/vocab_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
using json = nlohmann::json;

namespace {

json tokenizer_json(const std::string& name) {
  std::ifstream in(std::string{MOONCAF_TEXT_GOLDEN} + "/hf_tokenizers/" + name + ".json");
  REQUIRE(in.good());
  return json::parse(in);
}

tokenizer_vocab vocab_of(hf_text_files files, const json& tokenizer) {
  const auto text = tokenizer.dump();
  files.tokenizer = text;
  auto vocab = vocab_from_hf(files, "m");
  REQUIRE_MESSAGE(vocab.has_value(), (vocab ? "" : to_string(vocab.error())));
  return std::move(*vocab);
}

void refused(const json& tokenizer, ec code, std::string_view part) {
  const auto text = tokenizer.dump();
  const auto vocab = vocab_from_hf({.tokenizer = text}, "m");
  REQUIRE_FALSE(vocab.has_value());
  INFO(to_string(vocab.error()));
  CHECK(vocab.error() == code);
  CHECK(vocab.error().detail.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("markers, ends and the template come from the files beside tokenizer.json") {
  const auto tokenizer = tokenizer_json("llama3");
  const auto id = [&](const char* text) {
    for (const auto& t : tokenizer["added_tokens"])
      if (t["content"] == text) return t["id"].get<std::int32_t>();
    return -1;
  };
  const auto eot = id("<|eot_id|>"), end = id("<|end_of_text|>");
  const auto generation = json{{"eos_token_id", {end, eot}}}.dump();
  const hf_text_files files{
      .tokenizer = {},
      .tokenizer_config = R"({"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|eot_id|>"},
                              "chat_template": [{"name": "tool_use", "template": "T"},
                                                {"name": "default", "template": "D"}]})",
      .generation_config = generation,
      .config = R"({"eos_token_id": 0})",
      .chat_template = {}};
  const auto vocab = vocab_of(files, tokenizer);
  CHECK(vocab.bos == id("<|begin_of_text|>"));
  CHECK(vocab.add_bos);
  CHECK(vocab.eos == eot);
  CHECK(vocab.ends == std::vector<std::int32_t>{end, eot});  // config.json's are older
  CHECK(vocab.chat_template == "D");
  const auto tok = built(vocab);
  CHECK(std::ranges::find(tok->eog_ids(), end) != tok->eog_ids().end());

  auto own = files;
  own.chat_template = "J";
  CHECK(vocab_of(own, tokenizer).chat_template == "J");
}

TEST_CASE("what a file of another maker asks for and is not offered is refused by name") {
  auto t = tokenizer_json("llama3");
  t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\w+";
  refused(t, ec::unsupported, "cut by an expression that is not known: \\w+");
  t = tokenizer_json("gpt2");
  t["model"]["type"] = "WordPiece";
  refused(t, ec::unsupported, "'WordPiece' is not offered");
  t = tokenizer_json("llama2");
  t["normalizer"] = {{"type", "Lowercase"}};
  refused(t, ec::unsupported, "'Lowercase'");
  t = tokenizer_json("phi3");
  t["added_tokens"][0]["lstrip"] = true;
  refused(t, ec::unsupported, "lstrip");
  t = tokenizer_json("qwen2");
  t["normalizer"] = nullptr;
  refused(t, ec::unsupported, "NFC");
}

TEST_CASE("what a Unigram file asks for and is not offered is refused by name") {
  auto t = tokenizer_json("llmjp");
  t["normalizer"]["normalizers"][0] = {{"type", "StripAccents"}};
  refused(t, ec::unsupported, "a normalizer of type 'StripAccents' is not offered");
  t["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "[0-9]+"}}}, {"content", "0"}};
  refused(t, ec::unsupported, "replacing by the expression '[0-9]+' is not offered");
  t["normalizer"]["pattern"] = {{"String", "a"}};
  t["normalizer"]["content"] = std::string(65, 'b');
  refused(t, ec::unsupported, "more than 64 times as long");
  t = tokenizer_json("llmjp");
  t["pre_tokenizer"] = {{"type", "Digits"}};
  refused(t, ec::unsupported, "a pre-tokenizer of type 'Digits' is not offered");
  t = tokenizer_json("marks");
  t["pre_tokenizer"]["replacement"] = "_";
  refused(t, ec::unsupported, "another mark than U+2581");
  t = tokenizer_json("t5");
  t["added_tokens"].back()["normalized"] = true;
  refused(t, ec::unsupported, "is looked for in normalised text");
  t = tokenizer_json("t5");
  t["model"]["unk_id"] = nullptr;
  refused(t, ec::unsupported, "'unk_id'");
}

TEST_CASE("a Unigram file that is damaged is refused with the place") {
  auto t = tokenizer_json("t5");
  t["model"]["vocab"][3][1] = "often";
  refused(t, ec::corrupt, "an entry 3 that is not a piece and its score");
  t = tokenizer_json("t5");
  auto& table = t["normalizer"]["normalizers"][0]["precompiled_charsmap"];
  table = "!";
  refused(t, ec::corrupt, "'precompiled_charsmap' is not base64");
  table = "////fw==";  // an index larger than the table
  const auto text = t.dump();
  auto vocab = vocab_from_hf({.tokenizer = text}, "m");
  REQUIRE(vocab.has_value());
  const auto made = tokenizer::from_vocab(std::move(*vocab));
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error() == ec::corrupt);
  CHECK(made.error().detail.find("table of replacements") != std::string::npos);
}

TEST_CASE("a damaged tokenizer.json is refused with the place") {
  const auto broken = vocab_from_hf({.tokenizer = "{\"model\": "}, "m");
  REQUIRE_FALSE(broken.has_value());
  CHECK(to_string(broken.error()) == "corrupt: m/tokenizer.json: not JSON at byte 11");
  auto t = tokenizer_json("gpt2");
  t["model"]["vocab"]["a"] = 4'000'000'000;
  refused(t, ec::corrupt, "token 'a' has the id 4000000000");
  t = tokenizer_json("gpt2");
  t["model"]["merges"][3] = 7;
  refused(t, ec::corrupt, "merge 3 is not two tokens");
  t.erase("model");
  refused(t, ec::corrupt, "'model' is missing");
  CHECK(vocab_from_hf({}, "m").error() == ec::not_found);
}
