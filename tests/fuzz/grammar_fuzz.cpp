// Grammars, regular expressions and JSON schemas from anybody: each ends in an error with a reason, or in a
// grammar that compiles or says why not; and whatever the tokens, an answer is never left without one that
// may come. The first byte picks the parser, the second the tokens.

#include <cstdlib>
#include <string>

#include "runtime/grammar/automaton.hpp"
#include "runtime/grammar/choice.hpp"
#include "runtime/grammar/grammar_cache.hpp"
#include "runtime/grammar/json_schema.hpp"
#include "runtime/grammar/regex.hpp"
#include "runtime/text/byte_alphabet.hpp"

using namespace mooncaf;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::shared_ptr<const tokenizer> bytes_and_pairs() {
  tokenizer_vocab vocab;
  for (unsigned b = 0; b < 256; ++b)
    vocab.tokens.push_back(byte_alphabet::text(static_cast<std::uint8_t>(b)));
  for (const auto* pair : {"ab", "\"}", "\",", "{\"", "]}", "00", "1.", "--"})
    vocab.tokens.emplace_back(pair);
  vocab.tokens.emplace_back("<|end|>");
  vocab.types.assign(vocab.tokens.size(), token_type::normal);
  vocab.types.back() = token_type::control;
  vocab.eos = static_cast<std::int32_t>(vocab.tokens.size() - 1);
  return *tokenizer::from_vocab(std::move(vocab));
}

/// Walks an answer; `draw` picks among what may come.
void follow(const std::string& grammar, unsigned draw) {
  static const auto text = bytes_and_pairs();
  grammar_cache cache{text};
  auto at = cache.start(grammar);
  if (!at) return require(at.error().code == ec::invalid_argument && !at.error().detail.empty());
  for (int tokens = 0; tokens < 24; ++tokens) {
    std::vector<std::int32_t> may;
    const auto mask = (*at)->allowed();
    for (std::int32_t id = 0; id < text->vocab_size(); ++id) {
      if (mask[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) may.push_back(id);
    }
    require(!may.empty());
    const auto id = may[(draw = draw * 1664525u + 1013904223u) % may.size()];
    if (id == text->eog_ids().front()) return;
    (*at)->accept(id);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string input(reinterpret_cast<const char*>(data) + 2, size - 2);
  auto grammar = data[0] % 4 == 0   ? result<std::string>{input}
                 : data[0] % 4 == 1 ? grammar_of_regex(input)
                 : data[0] % 4 == 2 ? grammar_of_schema(input)
                                    : grammar_of_choice({input});
  if (!grammar) {
    require(grammar.error().code == ec::invalid_argument && !grammar.error().detail.empty());
    return 0;
  }
  // What we wrote ourselves is well-formed: only its size or its meaning may be refused.
  if (data[0] % 4 != 0) {
    const auto parsed = parse_gbnf(*grammar);
    require(parsed || parsed.error().detail.find("more than") != std::string::npos ||
            parsed.error().detail.find("bytes, at most") != std::string::npos ||
            parsed.error().detail.find("deeper") != std::string::npos ||
            parsed.error().detail.find("most is less") != std::string::npos);
  }
  follow(*grammar, data[1]);
  return 0;
}
