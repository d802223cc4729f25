#include "runtime/text/dummy_vocab.hpp"

#include <doctest/doctest.h>

#include "runtime/text/chat_template.hpp"
#include "runtime/text/tokenizer.hpp"

using namespace mooncaf;

TEST_CASE("an untrained model's vocabulary writes any text, a token per byte, and reads every token") {
  const auto text = tokenizer::from_vocab(*dummy_vocab(1000));
  REQUIRE(text);
  const std::string said = "Grüße 42\n\t\xF0\x9F\x8C\x99 end";
  const auto ids = (*text)->encode(said, special_tokens::as_text);
  CHECK(ids.size() == said.size());
  CHECK((*text)->decode(ids) == said);
  CHECK((*text)->vocab_size() == 1000);
  const std::vector<std::int32_t> last{999};
  CHECK((*text)->decode(last) == " w999");
  CHECK(chat_template::recognise(*text, "auto"));
}

TEST_CASE("a vocabulary that cannot write every byte is refused") {
  CHECK(dummy_vocab(smallest_dummy_vocab));
  const auto small = dummy_vocab(258);
  REQUIRE(!small);
  CHECK(small.error().code == ec::invalid_argument);
  CHECK(small.error().detail.find("vocab=259") != std::string::npos);
}
