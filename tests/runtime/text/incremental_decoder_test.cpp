#include "runtime/text/incremental_decoder.hpp"

#include <doctest/doctest.h>

#include <random>

#include "runtime/base/utf8.hpp"
#include "tests/runtime/text/vocab_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

TEST_CASE("a stream of any tokens gives, joined, the text of them all, in whole characters") {
  std::mt19937 rng(21);
  for (const auto& name : {"tiny_gpt2", "tiny_spm"}) {
    const auto tok = built(tiny_vocab(name));
    const auto emoji = tok->encode("\U0001f469\u200d\U0001f680 \u4f60\u597d");
    for (int round = 0; round < 2000; ++round) {
      const auto how = round % 2 ? special_text::show : special_text::hide;
      std::vector<std::int32_t> ids;
      for (unsigned n = rng() % 30; n > 0; --n) {
        // Mostly fragments of characters, in and out of order.
        ids.push_back(rng() % 3 ? emoji[rng() % emoji.size()] : static_cast<std::int32_t>(rng() % 660));
      }
      incremental_decoder stream(tok, how, stream_start::begins_text);
      std::string joined;
      for (const auto id : ids) {
        const std::string part = stream.push(id);
        REQUIRE(utf8::is_well_formed(part));
        joined += part;
      }
      joined += stream.finish();
      INFO(name, ", seed 21, round ", round);
      REQUIRE(joined == tok->decode(ids, how));
    }
  }
}

TEST_CASE("a character goes out when its last byte arrives") {
  const auto tok = built(byte_vocab());
  const auto ids = tok->encode("\u00e9x");
  REQUIRE(ids.size() == 3);
  incremental_decoder stream(tok);
  CHECK(stream.push(ids[0]).empty());
  CHECK(stream.push(ids[1]) == "\u00e9");
  CHECK(stream.push(ids[2]) == "x");
  CHECK(stream.push(ids[0]).empty());
  CHECK(stream.finish() == "\ufffd");
  CHECK(stream.finish().empty());
}

TEST_CASE("generated text keeps the space that joins it to its prompt") {
  const auto tok = built(tiny_vocab("tiny_spm"));
  const auto ids = tok->encode("the answer");
  incremental_decoder continuing(tok), fresh(tok, special_text::hide, stream_start::begins_text);
  std::string after_prompt, alone;
  for (const auto id : ids) {
    after_prompt += continuing.push(id);
    alone += fresh.push(id);
  }
  CHECK(after_prompt == " the answer");
  CHECK(alone == "the answer");
}
