#pragma once
// Cuts text into the words that BPE merges within.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// The rules by which byte-level vocabularies cut. Each was defined by a regular expression over Unicode
/// categories; a hand-made scanner over ICU's character data does the same ten times as fast, and the tests
/// hold it against ICU's regex engine running the same expressions.
enum class pretokenizer_kind : std::uint8_t {
  gpt2,    ///< GPT-2's expression; runs of digits stay together.
  smollm,  ///< Every number character alone, then GPT-2's expression on the text between.
  llama3,  ///< Llama 3's: contractions in any case, up to 3 digits, line ends with the marks or space before.
  qwen2,   ///< As Llama 3's with single digits, on text normalised to NFC.
  gpt4o,   ///< GPT-4o's: words also end where capitals begin, contractions stay with their word.
  tekken,  ///< Mistral's: as GPT-4o's without contractions, and with single digits.
};

/// @param name  value of GGUF's `tokenizer.ggml.pre`.
/// @error `ec::unsupported`, naming the known ones.
result<pretokenizer_kind> pretokenizer_by_name(std::string_view name);

/// End of the word that starts at `pos`.
/// @param text  well-formed UTF-8; `pos` < text.size() is the start of a character and of a word: words lie
/// end to end.
/// @cost O(length of the word and of the white space around it).
std::size_t word_end(pretokenizer_kind kind, std::string_view text, std::size_t pos) noexcept;

/// True for kinds with a vocabulary made from text in NFC.
bool wants_nfc(pretokenizer_kind kind) noexcept;
/// `text` (well-formed) in Unicode normalisation form C. @cost cheap if it is so already.
std::string to_nfc(std::string_view text);

}  // namespace mooncaf
