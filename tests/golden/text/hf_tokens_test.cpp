// Tokenizers out of tokenizer.json, against the library that wrote them; make_hf_tokens.py made the files.

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/text/vocab_from_hf.hpp"
#include "tests/golden/text/from_hex.hpp"
#include "tests/runtime/text/vocab_fixture.hpp"

using namespace mooncaf;
using mooncaf::test::from_hex;
using namespace mooncaf::testing;
using json = nlohmann::json;

namespace {

std::string read(const std::string& name) {
  std::ifstream in(MOONCAF_TEXT_GOLDEN "/" + name, std::ios::binary);
  REQUIRE_MESSAGE(in.good(), name);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("every hard string has the ids that tokenizer.json gives it in Hugging Face's library") {
  const auto golden = json::parse(read("hf_tokens.json"));
  CHECK(golden.size() == 14);
  for (const auto& [name, cases] : golden.items()) {
    CAPTURE(name);
    const auto file = read("hf_tokenizers/" + name + ".json");
    auto vocab = vocab_from_hf({.tokenizer = file, .tokenizer_config = R"({"eos_token": "</s>"})"}, name);
    REQUIRE_MESSAGE(vocab.has_value(), (vocab ? "" : to_string(vocab.error())));
    const auto tok = built(std::move(*vocab));
    for (const auto& c : cases) {
      const auto text = from_hex(c["hex"]);
      INFO("\"", text, "\" = ", c["hex"].get<std::string>());
      const auto ids = tok->encode(text, special_tokens::parse);
      CHECK_MESSAGE(ids == c["ids"].get<std::vector<std::int32_t>>(), json(ids).dump(), " expected ",
                    c["ids"].dump());
      if (c.contains("text")) CHECK(tok->decode(ids) == c["text"].get<std::string>());
      if (c.contains("framed"))
        CHECK(tok->encode_prompt(text, special_tokens::parse) ==
              c["framed"].get<std::vector<std::int32_t>>());
    }
  }
}
