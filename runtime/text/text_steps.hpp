#pragma once
// The changes to a text before a Unigram vocabulary reads it: the normalizer and pre-tokenizer of a
// tokenizer.json, as values, and the class that does as they say.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace mooncaf {

inline constexpr std::string_view space_mark = "\xE2\x96\x81";  ///< U+2581, how pieces write a space

enum class text_step_kind : std::uint8_t {
  charsmap,     ///< SentencePiece's compiled table of replacements (`Precompiled`); `from` holds its bytes.
  replace,      ///< Every `from` becomes `to`.
  join_spaces,  ///< Every run of two or more spaces becomes `to`.
  prepend,      ///< `to` is put before a text that is not empty.
  strip,        ///< White space at the ends is dropped: `left`, `right`.
  nfc,
  nfkc,
};

struct text_step {
  text_step_kind kind = text_step_kind::replace;
  std::string from, to;
  bool left = false, right = false;
};

/// How a normalised text becomes the words that are read one by one.
struct word_rule {
  enum class mark : std::uint8_t { never, first, always };

  bool at_white_space = false;  ///< White space parts words and is dropped (`WhitespaceSplit`).
  bool marks_spaces = false;    ///< Spaces are written as U+2581 (`Metaspace`) …
  bool splits = false;          ///< … and each begins a word.
  mark prefix = mark::never;    ///< A word gets a mark before it: none, the first of a text, every one.
};

/// The steps of one tokenizer.
/// @thread Immutable after `make`.
class text_steps {
 public:
  /// @error `ec::corrupt` names the defect of a table of replacements.
  static result<std::unique_ptr<const text_steps>> make(const std::vector<text_step>& steps,
                                                        const word_rule& words);
  ~text_steps();

  /// Hands `take` the words of `text` in order.
  /// @param text   well-formed; one stretch between markers.
  /// @param first  nothing stands before it.
  /// @cost O(text) per step.
  void each_word(std::string_view text, bool first, const std::function<void(std::string_view)>& take) const;

 private:
  class charsmap;
  text_steps();
  /// @param first  made false where the text's first character is gone: the rest begins no text.
  std::string normalised(std::string_view text, bool& first) const;

  std::vector<text_step> steps_;
  std::vector<std::unique_ptr<const charsmap>> maps_;  ///< one per step; null where that is no table
  word_rule words_;
};

}  // namespace mooncaf
