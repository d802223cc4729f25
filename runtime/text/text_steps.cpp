#include "runtime/text/text_steps.hpp"

#include <unicode/brkiter.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/base/utf8.hpp"

namespace mooncaf {

namespace {

bool is_white(char32_t c) noexcept { return u_isUWhiteSpace(static_cast<UChar32>(c)); }

std::string with_replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0;;) {
    const auto found = text.find(from, pos);
    out += text.substr(pos, found - pos);
    if (found == std::string_view::npos) return out;
    out += to;
    pos = found + from.size();
  }
}

std::string with_joined_spaces(std::string_view text, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const auto end = std::min(text.find_first_not_of(' ', pos), text.size());
    if (end - pos >= 2) out += to;
    else if (end == pos) out += text[pos];
    else out += ' ';
    pos = std::max(end, pos + 1);
  }
  return out;
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  std::size_t begin = 0, end = 0;  // `end`: behind the last character that stays
  for (std::size_t pos = 0; pos < text.size();) {
    const auto at = pos;
    if (is_white(utf8::next(text, pos))) {
      if (begin == at) begin = pos;
    } else {
      end = pos;
    }
  }
  if (!left) begin = 0;
  if (!right) end = text.size();
  return begin < end ? text.substr(begin, end - begin) : std::string_view{};
}

std::string composed(std::string_view text, bool compatibility) {
  UErrorCode status = U_ZERO_ERROR;
  const auto* form =
      compatibility ? icu::Normalizer2::getNFKCInstance(status) : icu::Normalizer2::getNFCInstance(status);
  std::string out;
  if (U_FAILURE(status)) return out = text;  // ICU's own data is part of its library; it cannot be missing
  icu::StringByteSink<std::string> sink(&out);
  form->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())), sink, nullptr,
                      status);
  return U_FAILURE(status) ? std::string{text} : out;
}

/// Calls `take` with every user-perceived character of `text`.
template <class Take>
void each_cluster(std::string_view text, Take take) {
  UErrorCode status = U_ZERO_ERROR;
  UText* utext = utext_openUTF8(nullptr, text.data(), static_cast<std::int64_t>(text.size()), &status);
  const std::unique_ptr<icu::BreakIterator> cut(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
  if (U_SUCCESS(status)) {
    cut->setText(utext, status);
    for (std::int32_t at = cut->first(), end = cut->next(); end != icu::BreakIterator::DONE;
         at = end, end = cut->next())
      take(text.substr(static_cast<std::size_t>(at), static_cast<std::size_t>(end - at)));
  }
  utext_close(utext);
}

}  // namespace

/// SentencePiece's table: a trie as a double array, over the texts to replace, then their replacements, each
/// ended by a zero.
class text_steps::charsmap {
 public:
  static result<std::unique_ptr<const charsmap>> make(std::string_view bytes) {
    std::uint32_t size = 0;
    if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
    if (size == 0 || size % sizeof(std::uint32_t) != 0 || size > bytes.size() - sizeof size)
      return fail(ec::corrupt, "tokenizer's table of replacements says that its index takes " +
                                   std::to_string(size) + " of " + std::to_string(bytes.size()) + " bytes");
    auto made = std::make_unique<charsmap>();
    made->units_.resize(size / sizeof(std::uint32_t));
    std::memcpy(made->units_.data(), bytes.data() + sizeof size, size);
    made->texts_ = bytes.substr(sizeof size + size);
    if (!utf8::is_well_formed(made->texts_))
      return fail(ec::corrupt, "tokenizer's table of replacements holds ill-formed UTF-8");
    for (std::size_t pos = 0; pos < made->texts_.size();) {
      const auto end = std::min(made->texts_.find('\0', pos), made->texts_.size());
      if (end - pos > replacement_max)
        return fail(ec::corrupt, "tokenizer's table of replacements holds one of " +
                                     std::to_string(end - pos) + " bytes; " +
                                     std::to_string(replacement_max) + " are the most");
      pos = end + 1;
    }
    return std::unique_ptr<const charsmap>(std::move(made));
  }

  /// As Hugging Face's library reads the table, which vocabularies were converted for: whole clusters below
  /// six bytes first, by the shortest text that they begin with, then character by character.
  /// @param first  made false where nothing is left of the text's first character.
  std::string apply(std::string_view text, bool& first) const {
    std::string out;
    out.reserve(text.size());
    bool begins = true;
    const auto put = [&](std::string_view part) {
      out += part;
      if (std::exchange(begins, false)) first &= !part.empty();
    };
    each_cluster(text, [&](std::string_view cluster) {
      if (cluster.size() < 6) {
        if (const auto to = shortest(cluster)) {
          put(*to);
          return;
        }
      }
      for (std::size_t pos = 0; pos < cluster.size();) {
        const auto begin = pos;
        utf8::next(cluster, pos);
        const auto one = cluster.substr(begin, pos - begin);
        put(shortest(one).value_or(one));
      }
    });
    return out;
  }

 private:
  /// Unicode's longest has half as many; without a bound a short text might become one that no memory holds.
  static constexpr std::size_t replacement_max = 64;

  static std::size_t offset(std::uint32_t unit) noexcept { return (unit >> 10) << ((unit & 0x200u) >> 6); }

  /// The replacement of the shortest beginning of `key` that the table has.
  std::optional<std::string_view> shortest(std::string_view key) const noexcept {
    std::size_t at = offset(units_[0]);
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      at ^= byte;
      if (byte == 0 || at >= units_.size()) return std::nullopt;
      const auto unit = units_[at];
      if ((unit & 0x800000FFu) != byte) return std::nullopt;
      at ^= offset(unit);
      if ((unit >> 8 & 1u) == 0) continue;
      if (at >= units_.size()) return std::nullopt;
      const std::string_view texts = texts_;
      const std::size_t begin = units_[at] & 0x7FFFFFFFu;
      if (begin > texts.size()) return std::nullopt;
      // A replacement that begins within a character is a broken table's: it replaces nothing.
      if (begin < texts.size() && (static_cast<unsigned char>(texts[begin]) & 0xC0) == 0x80)
        return std::nullopt;
      return texts.substr(begin, std::min(texts.find('\0', begin), texts.size()) - begin);
    }
    return std::nullopt;
  }

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

text_steps::text_steps() = default;
text_steps::~text_steps() = default;

result<std::unique_ptr<const text_steps>> text_steps::make(const std::vector<text_step>& steps,
                                                           const word_rule& words) {
  std::unique_ptr<text_steps> made{new text_steps};
  made->words_ = words;
  for (const auto& step : steps) {
    made->steps_.push_back(step);
    made->maps_.emplace_back();
    if (step.kind != text_step_kind::charsmap) continue;
    made->steps_.back().from.clear();  // the table made of it keeps its own copy
    auto map = charsmap::make(step.from);
    if (!map) return fail(map.error());
    made->maps_.back() = std::move(*map);
  }
  return std::unique_ptr<const text_steps>(std::move(made));
}

/// Steps run in the order of the file, and each may change whether the text still begins where it began.
std::string text_steps::normalised(std::string_view from, bool& first) const {
  std::string text{from};
  for (std::size_t i = 0; i < steps_.size() && !text.empty(); ++i) {
    const auto& step = steps_[i];
    switch (step.kind) {
      case text_step_kind::charsmap:
        text = maps_[i]->apply(text, first);
        break;
      case text_step_kind::replace:
        first &= !step.to.empty() || !text.starts_with(step.from);
        text = with_replaced(text, step.from, step.to);
        break;
      case text_step_kind::join_spaces:
        first &= !step.to.empty() || !text.starts_with("  ");
        text = with_joined_spaces(text, step.to);
        break;
      case text_step_kind::prepend:
        text.insert(0, step.to);
        break;
      case text_step_kind::strip:
        first &= stripped(text, step.left, false).size() == text.size();
        text = std::string{stripped(text, step.left, step.right)};
        break;
      case text_step_kind::nfc:
        text = composed(text, false);
        break;
      case text_step_kind::nfkc:
        text = composed(text, true);
        break;
    }
  }
  return text;
}

void text_steps::each_word(std::string_view from, bool first,
                           const std::function<void(std::string_view)>& take) const {
  const auto text = normalised(from, first);
  const auto marked = [&](std::string_view word) {
    if (word.empty()) return;
    if (!words_.marks_spaces) return take(word);
    auto spaced = with_replaced(word, " ", space_mark);
    const bool wanted =
        words_.prefix == word_rule::mark::always || (words_.prefix == word_rule::mark::first && first);
    if (wanted && !spaced.starts_with(space_mark)) spaced.insert(0, space_mark);
    if (!words_.splits) return take(spaced);
    for (std::size_t pos = 0; pos < spaced.size();) {
      const auto end = std::min(spaced.find(space_mark, pos + 1), spaced.size());
      take(std::string_view{spaced}.substr(pos, end - pos));
      pos = end;
    }
  };
  if (!words_.at_white_space) return marked(text);
  std::size_t begin = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const auto at = pos;
    if (!is_white(utf8::next(text, pos))) continue;
    marked(std::string_view{text}.substr(begin, at - begin));
    begin = pos;
  }
  marked(std::string_view{text}.substr(begin));
}

}  // namespace mooncaf
