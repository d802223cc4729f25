#include "runtime/text/tokenizer.hpp"

#include <doctest/doctest.h>

#include <random>
#include <thread>

#include "runtime/base/utf8.hpp"
#include "runtime/text/byte_alphabet.hpp"
#include "runtime/text/pretokenizer.hpp"
#include "tests/runtime/text/vocab_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
using ids = std::vector<std::int32_t>;

namespace {

std::string random_utf8(std::mt19937& rng) {
  std::string text;
  for (unsigned n = rng() % 40; n > 0; --n) {
    const unsigned shape = rng() % 6;
    char32_t c = shape < 3    ? rng() % 0x80
                 : shape == 3 ? rng() % 0x800
                 : shape == 4 ? rng() % 0x10000
                              : rng() % 0x110000;
    if (c >= 0xD800 && c < 0xE000) c = U'?';
    utf8::append(text, c);
  }
  return text;
}

void check_refused(tokenizer_vocab vocab, ec code, std::string_view part) {
  const auto made = tokenizer::from_vocab(std::move(vocab));
  REQUIRE(!made);
  CHECK(made.error() == code);
  INFO(made.error().detail);
  CHECK(made.error().detail.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("what is encoded decodes to itself") {
  std::mt19937 rng(11);
  for (const auto& name : {"tiny_gpt2", "tiny_llama3", "tiny_qwen2", "tiny_spm"}) {
    const auto tok = built(tiny_vocab(name));
    for (int round = 0; round < 2000; ++round) {
      std::string text = random_utf8(rng);
      INFO(name, ", seed 11, round ", round, ", text \"", text, "\"");
      const auto encoded = tok->encode(text);
      for (const auto id : encoded) REQUIRE((id >= 0 && id < tok->vocab_size()));
      if (std::string_view{name} == "tiny_qwen2") text = to_nfc(text);
      if (std::string_view{name} ==
          "tiny_spm") {  // SentencePiece writes spaces as U+2581, so that cannot be told apart
        for (std::size_t at; (at = text.find("\u2581")) != std::string::npos;) text.replace(at, 3, " ");
      }
      REQUIRE(tok->decode(encoded, special_text::show) == text);
    }
  }
}

TEST_CASE("any bytes at all encode to tokens of the vocabulary and decode to well-formed text") {
  std::mt19937 rng(12);
  for (const auto& name : {"tiny_llama3", "tiny_spm"}) {
    const auto tok = built(tiny_vocab(name));
    for (int round = 0; round < 2000; ++round) {
      std::string bytes;
      for (unsigned n = rng() % 30; n > 0; --n) bytes.push_back(static_cast<char>(rng()));
      INFO(name, ", seed 12, round ", round);
      REQUIRE(tok->encode(bytes) == tok->encode(utf8::to_well_formed(bytes)));
      ids any;
      for (unsigned n = rng() % 30; n > 0; --n) any.push_back(static_cast<std::int32_t>(rng() % 1000) - 100);
      REQUIRE(utf8::is_well_formed(tok->decode(any)));
    }
  }
}

TEST_CASE("the text of a control token becomes the token only when parsing is asked for") {
  const auto tok = built(tiny_vocab("tiny_qwen2"));
  const auto end = tok->find("<|im_end|>");
  REQUIRE(end.has_value());
  const auto as_text = tok->encode("a<|im_end|>b");
  CHECK(std::find(as_text.begin(), as_text.end(), *end) == as_text.end());
  CHECK(tok->decode(as_text) == "a<|im_end|>b");
  const auto parsed = tok->encode("a<|im_end|>b", special_tokens::parse);
  CHECK(std::count(parsed.begin(), parsed.end(), *end) == 1);
  CHECK(tok->decode(parsed) == "ab");
  CHECK(tok->decode(parsed, special_text::show) == "a<|im_end|>b");
}

TEST_CASE("a user-defined token is found in any text, and the longest of several wins") {
  tokenizer_vocab vocab = byte_vocab();
  vocab.tokens.insert(vocab.tokens.end(), {"<a>", "<a><b>", "<a><b><|c|>"});
  vocab.types.insert(vocab.types.end(),
                     {token_type::user_defined, token_type::user_defined, token_type::control});
  const auto tok = built(vocab);
  CHECK(tok->encode("<a><a><b>") == ids{259, 260});
  CHECK(tok->encode("<a><b><|c|>").front() == 260);
  CHECK(tok->encode("<a><b><|c|>", special_tokens::parse) == ids{261});
  CHECK(tok->decode(ids{259}) == "<a>");
}

TEST_CASE("SentencePiece never merges user text into a control token") {
  const auto tok = built(tiny_vocab("tiny_spm"));
  for (const auto id : tok->encode("<s></s><unk><0x41>")) CHECK(!tok->is_special(id));
}

TEST_CASE("merging takes the best rank first, and leaves out bytes that have no token") {
  tokenizer_vocab vocab = byte_vocab();
  const auto nul = static_cast<std::size_t>(0);
  vocab.tokens[nul] = "(no byte 0)";
  const auto tok = built(vocab);
  CHECK(tok->encode("abcab") == ids{257, 256});
  CHECK(tok->encode(std::string_view{"ab\0c", 4}).size() ==
        2);  // NUL splits the words ab and c, then vanishes
}

TEST_CASE("a prompt gets bos and eos where the vocabulary asks for them, other text never") {
  tokenizer_vocab vocab = byte_vocab();
  vocab.bos = 258;
  vocab.add_bos = vocab.add_eos = true;
  const auto tok = built(vocab);
  CHECK(tok->encode("ab") == ids{256});
  CHECK(tok->encode_prompt("ab") == ids{258, 256, 258});
  CHECK(tok->encode_prompt("") == ids{258, 258});
  // A client that rendered a template wrote the first token itself.
  const std::string first{tok->piece(258)};
  CHECK(tok->encode_prompt(first + "ab", special_tokens::parse) == ids{258, 256, 258});
  CHECK(tok->encode_prompt("ab" + first, special_tokens::parse) == ids{258, 256, 258, 258});
  CHECK(tok->encode_prompt(first + "ab").size() > 4);
}

TEST_CASE("the ends of a generation are eos, eot and the known end markers") {
  tokenizer_vocab vocab = byte_vocab();
  vocab.tokens.insert(vocab.tokens.end(), {"<|eot_id|>", "stop"});
  vocab.types.insert(vocab.types.end(), {token_type::normal, token_type::normal});
  vocab.eot = 260;
  const auto tok = built(vocab);
  CHECK(ids(tok->eog_ids().begin(), tok->eog_ids().end()) == ids{258, 259, 260});
  CHECK(tok->is_special(259));  // though the file calls it normal
}

TEST_CASE("a malformed vocabulary is refused with what and where") {
  tokenizer_vocab v = byte_vocab();
  SUBCASE("empty") { check_refused({}, ec::corrupt, "empty"); }
  SUBCASE("missing byte") {
    v.tokens['a'] = "(gone)";
    v.merges.clear();
    check_refused(v, ec::corrupt, "no token for byte 0x61");
  }
  SUBCASE("merge of an unknown token") {
    v.merges.push_back("a zz");
    check_refused(v, ec::corrupt, "merge 2 (\"a zz\") joins a token");
  }
  SUBCASE("merge that makes nothing") {
    v.merges.push_back("b a");
    check_refused(v, ec::corrupt, "merge 2 (\"b a\") makes a token");
  }
  SUBCASE("repeated merge") {
    v.merges.push_back("a b");
    check_refused(v, ec::corrupt, "repeats merge 0");
  }
  SUBCASE("merge without a space") {
    v.merges.push_back("ab");
    check_refused(v, ec::corrupt, "is not two tokens");
  }
  SUBCASE("repeated token") {
    v.tokens[257] = "ab";
    check_refused(v, ec::corrupt, "token 257 (\"ab\") repeats token 256");
  }
  SUBCASE("id out of range") {
    v.eos = 259;
    check_refused(v, ec::corrupt, "eos id 259 is outside");
  }
  SUBCASE("types of another length") {
    v.types.pop_back();
    check_refused(v, ec::corrupt, "258 types for 259 tokens");
  }
  SUBCASE("unknown type") {
    v.types[5] = static_cast<token_type>(9);
    check_refused(v, ec::corrupt, "token 5 has type 9");
  }
  SUBCASE("unknown pre-tokenizer") {
    v.pre = "nobody";
    check_refused(v, ec::unsupported, "\"nobody\"");
  }
  SUBCASE("scores missing") {
    v = tiny_vocab("tiny_spm");
    v.scores.pop_back();
    check_refused(v, ec::corrupt, "scores for");
  }
  SUBCASE("some fallback bytes missing") {
    v = tiny_vocab("tiny_spm");
    const auto at = std::find(v.tokens.begin(), v.tokens.end(), "<0x41>") - v.tokens.begin();
    v.types[static_cast<std::size_t>(at)] = token_type::normal;
    check_refused(v, ec::corrupt, "255 bytes");
  }
}

TEST_CASE("many threads may share one tokenizer") {
  const auto tok = built(tiny_vocab("tiny_llama3"));
  const auto expected = tok->encode("The cache holds blocks, don't it? 12345");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i)
        wrong[t] += tok->encode("The cache holds blocks, don't it? 12345") != expected;
    });
  for (auto& thread : threads) thread.join();
  for (const int w : wrong) CHECK(w == 0);
}
