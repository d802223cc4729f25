#include "tests/runtime/grammar/grammar_fixture.hpp"

#include <doctest/doctest.h>

#include "runtime/text/byte_alphabet.hpp"
#include "tests/runtime/text/vocab_fixture.hpp"

namespace mooncaf::testing {

std::shared_ptr<const tokenizer> text_of(const std::vector<std::string>& longer) {
  tokenizer_vocab vocab;
  const auto written = [](std::string_view bytes) {
    std::string out;
    for (const char c : bytes) out += byte_alphabet::text(static_cast<std::uint8_t>(c));
    return out;
  };
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocab.tokens.push_back(written({&c, 1}));
  }
  for (const auto& token : longer) vocab.tokens.push_back(written(token));
  vocab.types.assign(vocab.tokens.size(), token_type::normal);
  vocab.tokens.emplace_back("<|end|>");
  vocab.types.push_back(token_type::control);
  vocab.eos = static_cast<std::int32_t>(vocab.tokens.size() - 1);
  return built(std::move(vocab));
}

std::set<std::int32_t> allowed_in(std::span<const std::uint64_t> mask) {
  std::set<std::int32_t> out;
  for (std::size_t i = 0; i < mask.size() * 64; ++i)
    if (mask[i / 64] >> (i % 64) & 1) out.insert(static_cast<std::int32_t>(i));
  return out;
}

bool accepts(const std::string& grammar, std::string_view answer) {
  static const auto text = text_of();
  grammar_cache cache{text};
  auto at = cache.start(grammar);
  REQUIRE_MESSAGE(at.has_value(), problem_of(at) << "\n" << grammar);
  const auto may = [&](std::int32_t id) {
    return ((*at)->allowed()[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
  };
  for (const char c : answer) {
    const auto id = static_cast<std::int32_t>(static_cast<unsigned char>(c));
    if (!may(id)) return false;
    (*at)->accept(id);
  }
  return may(text->eog_ids().front());
}

}  // namespace mooncaf::testing
