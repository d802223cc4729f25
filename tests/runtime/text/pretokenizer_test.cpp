#include "runtime/text/pretokenizer.hpp"

#include <doctest/doctest.h>
#include <unicode/regex.h>
#include <unicode/uchar.h>

#include <map>
#include <memory>
#include <random>

#include "runtime/base/utf8.hpp"

using namespace mooncaf;

namespace {

using words = std::vector<std::string>;

words scanned(pretokenizer_kind kind, std::string_view text) {
  words out;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t end = word_end(kind, text, pos);
    if (end <= pos || end > text.size()) FAIL("word of no length at " << pos);
    out.emplace_back(text.substr(pos, end - pos));
    pos = end;
  }
  return out;
}

void match_all(const icu::RegexPattern& pattern, const icu::UnicodeString& text, words& out) {
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::RegexMatcher> matcher{pattern.matcher(text, status)};
  while (matcher->find()) matcher->group(status).toUTF8String(out.emplace_back());
  if (U_FAILURE(status)) FAIL(u_errorName(status));
}

/// The expression that defines `kind`, in ICU's syntax (for smollm: of what lies between number characters).
std::string_view reference_pattern(pretokenizer_kind kind) noexcept {
  // ICU's \s is not quite Unicode's White_Space, which the models' own engines mean by it.
  switch (kind) {
    case pretokenizer_kind::gpt2:
    case pretokenizer_kind::smollm:
      return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+)"
             R"(|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+)";
    case pretokenizer_kind::llama3:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
             R"(| ?[^\p{White_Space}\p{L}\p{N}]+[\r\n]*|\p{White_Space}*[\r\n]+)"
             R"(|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+)";
    case pretokenizer_kind::qwen2:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
             R"(| ?[^\p{White_Space}\p{L}\p{N}]+[\r\n]*|\p{White_Space}*[\r\n]+)"
             R"(|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+)";
    case pretokenizer_kind::gpt4o:
      return R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
             R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
             R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
             R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
             R"(|\p{N}{1,3}| ?[^\p{White_Space}\p{L}\p{N}]+[\r\n/]*|\p{White_Space}*[\r\n]+)"
             R"(|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+)";
    case pretokenizer_kind::tekken:
      return R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
             R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N})"
             R"(| ?[^\p{White_Space}\p{L}\p{N}]+[\r\n/]*|\p{White_Space}*[\r\n]+)"
             R"(|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+)";
  }
  return {};
}

const icu::RegexPattern& compiled(pretokenizer_kind kind) {
  static std::map<pretokenizer_kind, std::unique_ptr<icu::RegexPattern>> cache;
  auto& pattern = cache[kind];
  if (!pattern) {
    UErrorCode status = U_ZERO_ERROR;
    const auto source = icu::UnicodeString::fromUTF8(std::string{reference_pattern(kind)});
    pattern.reset(icu::RegexPattern::compile(source, 0, status));
    REQUIRE(U_SUCCESS(status));
  }
  return *pattern;
}

/// What ICU's regex engine makes of the expression that defines the kind.
words by_expression(pretokenizer_kind kind, const std::string& text) {
  const icu::RegexPattern& pattern = compiled(kind);
  words out;
  const auto whole = icu::UnicodeString::fromUTF8(text);
  if (kind != pretokenizer_kind::smollm) {
    match_all(pattern, whole, out);
    return out;
  }
  icu::UnicodeString between;
  for (std::int32_t i = 0; i < whole.length(); i = whole.moveIndex32(i, 1)) {
    const UChar32 c = whole.char32At(i);
    if (!(U_MASK(u_charType(c)) & U_GC_N_MASK)) {
      between.append(c);
      continue;
    }
    match_all(pattern, between, out);
    between.remove();
    icu::UnicodeString(c).toUTF8String(out.emplace_back());
  }
  match_all(pattern, between, out);
  return out;
}

std::string random_text(std::mt19937& rng) {
  static const std::vector<std::string> bits = {
      "a",  "B",  "ing", "AB", "ǅ",  "ʰ",       "/",      "'",          "'s",         "'LL",        "'re",
      "s",  " ",  "  ",  "\n", "\r", "\t",      "\v",     "1",          "23",         ".",          "!?",
      "<|", "_",  "é",   "ß",  "ſ",  "e\u0301", "\u00a0", "\u0085",     "\u2028",     "\u3000",     "\u200d",
      "你", "한", "ا",   "א",  "½",  "Ⅷ",       "٣",      "\U0001f600", "\U0001d7d8", "\U00020000", "\u0000"};
  std::string text;
  for (unsigned n = rng() % 24; n > 0; --n) {
    if (rng() % 8 != 0) {
      text += bits[rng() % bits.size()];
      continue;
    }
    char32_t c = rng() % (rng() % 2 ? 0x3000 : 0x110000);
    if (c >= 0xD800 && c < 0xE000) c = U'x';
    utf8::append(text, c);
  }
  return text;
}

constexpr pretokenizer_kind kinds[] = {pretokenizer_kind::gpt2,   pretokenizer_kind::smollm,
                                       pretokenizer_kind::llama3, pretokenizer_kind::qwen2,
                                       pretokenizer_kind::gpt4o,  pretokenizer_kind::tekken};

}  // namespace

TEST_CASE("the scanner cuts as ICU's regex engine does with the defining expression") {
  std::mt19937 rng(7);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(rng);
    for (const auto kind : kinds) {
      INFO("seed 7, round ", round, ", kind ", static_cast<int>(kind), ", text \"", text, "\"");
      REQUIRE(scanned(kind, text) == by_expression(kind, text));
    }
  }
}

TEST_CASE("every character alone and between letters is cut as the expression cuts it") {
  for (char32_t c = 1; c < 0x110000; c += c < 0x3100 ? 1 : 41) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = "a";
    utf8::append(text, c);
    text += "b ";
    utf8::append(text, c);
    for (const auto kind : {pretokenizer_kind::smollm, pretokenizer_kind::llama3, pretokenizer_kind::gpt4o}) {
      INFO("U+", static_cast<unsigned>(c));
      REQUIRE(scanned(kind, text) == by_expression(kind, text));
    }
  }
}

TEST_CASE("the families differ where they are known to") {
  CHECK(scanned(pretokenizer_kind::gpt2, "in 2026  x") == words{"in", " 2026", " ", " x"});
  CHECK(scanned(pretokenizer_kind::smollm, "in 2026  x") == words{"in", " ", "2", "0", "2", "6", " ", " x"});
  CHECK(scanned(pretokenizer_kind::llama3, "in 2026  x") == words{"in", " ", "202", "6", " ", " x"});
  CHECK(scanned(pretokenizer_kind::qwen2, "in 20") == words{"in", " ", "2", "0"});
  CHECK(scanned(pretokenizer_kind::gpt2, "IT'S") == words{"IT", "'", "S"});
  CHECK(scanned(pretokenizer_kind::llama3, "IT'S") == words{"IT", "'S"});
  CHECK(scanned(pretokenizer_kind::gpt4o, "aBc HTTPServer's 1234 !\n/x") ==
        words{"a", "Bc", " HTTPServer's", " ", "123", "4", " !\n/", "x"});
  CHECK(scanned(pretokenizer_kind::tekken, "it's 12") == words{"it", "'s", " ", "1", "2"});
  CHECK(scanned(pretokenizer_kind::llama3, "a!\n\nb") == words{"a", "!\n\n", "b"});
}

TEST_CASE("an unknown pre-tokenizer is refused with the known ones") {
  CHECK(pretokenizer_by_name("smollm") == pretokenizer_kind::smollm);
  CHECK(pretokenizer_by_name("") == pretokenizer_kind::gpt2);
  const auto unknown = pretokenizer_by_name("bloom");
  REQUIRE(!unknown);
  CHECK(unknown.error() == ec::unsupported);
  CHECK(unknown.error().detail.find("\"bloom\"") != std::string::npos);
  CHECK(unknown.error().detail.find("llama-bpe") != std::string::npos);
}
