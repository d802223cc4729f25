#include "runtime/text/pretokenizer.hpp"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <string>

#include "runtime/base/utf8.hpp"

namespace mooncaf {

namespace {

enum class char_class : std::uint8_t { letter, number, space, newline, other, end };

constexpr char_class ascii_class(unsigned char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return char_class::letter;
  if (c >= '0' && c <= '9') return char_class::number;
  if (c == '\r' || c == '\n') return char_class::newline;
  if (c == ' ' || c == '\t' || c == '\v' || c == '\f') return char_class::space;
  return char_class::other;
}

constexpr auto ascii_classes = [] {
  std::array<char_class, 128> table{};
  for (std::size_t c = 0; c < table.size(); ++c) table[c] = ascii_class(static_cast<unsigned char>(c));
  return table;
}();

char_class class_of(char32_t c) noexcept {
  if (c < 128) return ascii_classes[c];
  const std::uint32_t category = U_MASK(u_charType(static_cast<UChar32>(c)));
  if (category & U_GC_L_MASK) return char_class::letter;
  if (category & U_GC_N_MASK) return char_class::number;
  // Outside ASCII, Unicode's White_Space is the separators and NEXT LINE.
  if ((category & U_GC_Z_MASK) || c == 0x85) return char_class::space;
  return char_class::other;
}

bool is_white(char_class c) noexcept { return c == char_class::space || c == char_class::newline; }

/// A place in the text and the class of the character there.
class cursor {
 public:
  /// @param number_ends  a number character counts as the end of the text (smollm).
  cursor(std::string_view text, std::size_t pos, bool number_ends) noexcept
      : text_(text), pos_(pos), next_(pos), number_ends_(number_ends) {
    read();
  }
  char_class kind() const noexcept { return kind_; }
  std::size_t pos() const noexcept { return pos_; }
  bool is_byte(char c) const noexcept { return pos_ < text_.size() && text_[pos_] == c; }
  void step() noexcept {
    pos_ = next_;
    read();
  }
  void skip(char_class kind) noexcept {
    while (kind_ == kind) step();
  }

 private:
  void read() noexcept {
    if (pos_ >= text_.size()) {
      kind_ = char_class::end;
      return;
    }
    next_ = pos_;
    kind_ = class_of(utf8::next(text_, next_));
    if (number_ends_ && kind_ == char_class::number) kind_ = char_class::end;
  }

  std::string_view text_;
  std::size_t pos_;
  std::size_t next_;
  bool number_ends_;
  char_class kind_ = char_class::end;
};

/// Length of an English contraction's end at `pos` ('s 't 're 've 'm 'll 'd), or 0. With `any_case` also in
/// capitals, and with the long s, which folds to s.
std::size_t contraction(std::string_view text, std::size_t pos, bool any_case) noexcept {
  const std::string_view rest = text.substr(pos + 1, 2);
  if (rest.empty()) return 0;
  const auto fold = [any_case](char c) {
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = fold(rest[0]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (rest.size() < 2) return 0;
  const char second = fold(rest[1]);
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  if (any_case && rest == "\xC5\xBF") return 3;
  return 0;
}

/// White space from `at` on, after everything else was ruled out. All of it if nothing follows, else all but
/// its last character, which may open the next word; a single one stands alone.
std::size_t white_run(cursor at) noexcept {
  const std::size_t start = at.pos();
  std::size_t last = start;
  while (is_white(at.kind())) {
    last = at.pos();
    at.step();
  }
  return at.kind() == char_class::end || last == start ? at.pos() : last;
}

std::size_t gpt2_word_end(std::string_view text, std::size_t pos, bool number_ends) noexcept {
  cursor at(text, pos, number_ends);
  if (at.is_byte('\'')) {
    if (const std::size_t n = contraction(text, pos, false)) return pos + n;
  }
  cursor body = at;
  if (at.is_byte(' ')) body.step();
  if (is_white(body.kind()) || body.kind() == char_class::end) return white_run(at);
  body.skip(body.kind());
  return body.pos();
}

/// End of white space that holds a line end: behind the last one. 0 if there is none.
std::size_t line_end_run(cursor at) noexcept {
  std::size_t end = 0;
  while (is_white(at.kind())) {
    const bool newline = at.kind() == char_class::newline;
    at.step();
    if (newline) end = at.pos();
  }
  return end;
}

std::size_t llama3_word_end(std::string_view text, std::size_t pos, std::size_t digits_max) noexcept {
  cursor at(text, pos, false);
  if (at.is_byte('\'')) {
    if (const std::size_t n = contraction(text, pos, true)) return pos + n;
  }
  if (at.kind() == char_class::number) {
    for (std::size_t n = 0; n < digits_max && at.kind() == char_class::number; ++n) at.step();
    return at.pos();
  }
  cursor body = at;
  if (at.kind() == char_class::space || at.kind() == char_class::other) body.step();
  if (body.kind() == char_class::letter) {
    body.skip(char_class::letter);
    return body.pos();
  }
  if (at.kind() == char_class::other || (at.is_byte(' ') && body.kind() == char_class::other)) {
    body.skip(char_class::other);
    body.skip(char_class::newline);
    return body.pos();
  }
  if (const std::size_t end = line_end_run(at)) return end;
  return white_run(at);
}

/// Letters that may be capitals, and letters that may be small: many scripts have no case, and their letters
/// and marks are both.
struct casing {
  bool upper = false, lower = false;
};
casing casing_of(char32_t c) noexcept {
  if (c < 128) return {c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z'};
  const std::uint32_t category = U_MASK(u_charType(static_cast<UChar32>(c)));
  const bool both = (category & (U_GC_LM_MASK | U_GC_LO_MASK | U_GC_M_MASK)) != 0;
  return {both || (category & (U_GC_LU_MASK | U_GC_LT_MASK)) != 0, both || (category & U_GC_LL_MASK) != 0};
}

/// Where a word of capitals and then small letters ends that begins at `pos`: of [upper]*[lower]+, or where
/// there is no such word, of [upper]+. 0: neither.
struct cased_ends {
  std::size_t with_lower = 0, upper_alone = 0;
};
cased_ends cased_word(std::string_view text, std::size_t pos) noexcept {
  cased_ends found;
  for (std::size_t next = pos; pos < text.size(); pos = next) {
    const auto c = casing_of(utf8::next(text, next));
    if (!c.upper) {
      if (!c.lower) return found;
      break;  // small for certain: the word goes on as long as letters may be small
    }
    found.upper_alone = next;
    if (c.lower) found.with_lower = next;  // where the capitals may end so that one small letter is left
  }
  for (std::size_t next = pos; pos < text.size(); pos = next) {
    if (!casing_of(utf8::next(text, next)).lower) break;
    found.with_lower = next;
  }
  return found;
}

/// A word also ends where its letters change from small to capital. @param contractions  belong to their
/// word.
std::size_t cased_word_end(std::string_view text, std::size_t pos, std::size_t digits_max,
                           bool contractions) noexcept {
  cursor at(text, pos, false);
  // One character that is neither letter, number nor line end may open a word.
  const bool opens = at.kind() == char_class::space || at.kind() == char_class::other;
  cursor body = at;
  body.step();
  const auto opened = opens ? cased_word(text, body.pos()) : cased_ends{}, bare = cased_word(text, pos);
  for (const auto end : {opened.with_lower, bare.with_lower, opened.upper_alone, bare.upper_alone}) {
    if (end == 0) continue;
    const bool quote = contractions && end < text.size() && text[end] == '\'';
    return end + (quote ? contraction(text, end, true) : 0);
  }
  if (at.kind() == char_class::number) {
    for (std::size_t n = 0; n < digits_max && at.kind() == char_class::number; ++n) at.step();
    return at.pos();
  }
  if (at.kind() == char_class::other || (at.is_byte(' ') && body.kind() == char_class::other)) {
    body.skip(char_class::other);
    while (body.kind() == char_class::newline || body.is_byte('/')) body.step();
    return body.pos();
  }
  if (const std::size_t end = line_end_run(at)) return end;
  return white_run(at);
}

struct named_kind {
  std::string_view name;
  pretokenizer_kind kind;
};
/// Names by model; some share a rule. Old files say "default": they hold GPT-2-like vocabularies.
constexpr named_kind names[] = {
    {"default", pretokenizer_kind::gpt2},  {"gpt-2", pretokenizer_kind::gpt2},
    {"gpt2", pretokenizer_kind::gpt2},     {"phi-2", pretokenizer_kind::gpt2},
    {"mpt", pretokenizer_kind::gpt2},      {"olmo", pretokenizer_kind::gpt2},
    {"smollm", pretokenizer_kind::smollm}, {"starcoder", pretokenizer_kind::smollm},
    {"refact", pretokenizer_kind::smollm}, {"llama-bpe", pretokenizer_kind::llama3},
    {"llama3", pretokenizer_kind::llama3}, {"llama-v3", pretokenizer_kind::llama3},
    {"qwen2", pretokenizer_kind::qwen2},   {"deepseek-r1-qwen", pretokenizer_kind::qwen2},
    {"gpt-4o", pretokenizer_kind::gpt4o},  {"tekken", pretokenizer_kind::tekken},
};

}  // namespace

result<pretokenizer_kind> pretokenizer_by_name(std::string_view name) {
  if (name.empty()) name = "default";
  const auto* found =
      std::find_if(std::begin(names), std::end(names), [&](auto& n) { return n.name == name; });
  if (found != std::end(names)) return found->kind;
  std::string known;
  for (const auto& n : names) known += (known.empty() ? "" : ", ") + std::string{n.name};
  return fail(ec::unsupported,
              "pre-tokenizer \"" + std::string{name} + "\" (tokenizer.ggml.pre) is not one of " + known);
}

std::size_t word_end(pretokenizer_kind kind, std::string_view text, std::size_t pos) noexcept {
  switch (kind) {
    case pretokenizer_kind::gpt2:
      return gpt2_word_end(text, pos, false);
    case pretokenizer_kind::smollm: {
      std::size_t next = pos;
      if (class_of(utf8::next(text, next)) == char_class::number) return next;
      return gpt2_word_end(text, pos, true);
    }
    case pretokenizer_kind::llama3:
      return llama3_word_end(text, pos, 3);
    case pretokenizer_kind::qwen2:
      return llama3_word_end(text, pos, 1);
    case pretokenizer_kind::gpt4o:
      return cased_word_end(text, pos, 3, true);
    case pretokenizer_kind::tekken:
      return cased_word_end(text, pos, 1, false);
  }
  return text.size();
}

bool wants_nfc(pretokenizer_kind kind) noexcept { return kind == pretokenizer_kind::qwen2; }

std::string to_nfc(std::string_view text) {
  std::string out;
  if (utf8::ascii_prefix(text) == text.size()) return out = text;
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  if (U_FAILURE(status)) return out = text;  // ICU's own data is part of its library; it cannot be missing
  out.reserve(text.size());
  icu::StringByteSink<std::string> sink(&out);
  nfc->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())), sink, nullptr,
                     status);
  return U_FAILURE(status) ? std::string{text} : out;
}

}  // namespace mooncaf
