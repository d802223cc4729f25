#pragma once
// Text to token ids and back, with the ids that Hugging Face's tokenizers give.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/text/tokenizer_vocab.hpp"

namespace mooncaf {

/// Whether the text of a control token ("<|im_start|>") becomes that token when it occurs in a text to
/// encode.
enum class special_tokens : std::uint8_t {
  as_text,  ///< No: it is encoded like any other text. For everything that a user wrote.
  parse,    ///< Yes. For text that the server itself or a trusted client composed.
};

/// Whether control tokens show in decoded text.
enum class special_text : std::uint8_t { hide, show };

/// Encodes and decodes for one vocabulary.
///
/// Text is UTF-8. Every ill-formed sequence in the input (maximal subpart, as the Unicode standard recommends
/// and Python's errors="replace" does) is read as U+FFFD, and decoded text is well-formed in the same way, so
/// it can always go into JSON.
///
/// decode(encode(x)) == x for well-formed x, within the limits of a vocabulary: Qwen's normalises to NFC
/// first, and SmolLM2's has no token for six control characters and for the unassigned planes 4 to 11; such
/// bytes vanish, as they do in Hugging Face's.
///
/// @thread Immutable after construction; any number of threads may share one.
class tokenizer {
 public:
  /// Checks the parts and builds the tables (some tens of milliseconds for 150,000 tokens).
  /// @error `ec::corrupt` names the first defect and its index: a duplicate token, a merge of unknown tokens,
  /// a missing byte that text needs, an id out of range, lengths that differ. `ec::unsupported` names a
  /// pre-tokenizer that is not known, and the known ones.
  static result<std::shared_ptr<const tokenizer>> from_vocab(tokenizer_vocab vocab);
  ~tokenizer();

  /// Token ids of `text` alone: neither `bos` nor `eos` is added. Tokens of type user_defined are found in
  /// either mode, since they are text.
  /// @cost O(n log n) time and some 50 bytes of scratch per byte of a single endless word; O(n) and none for
  /// ordinary text.
  std::vector<std::int32_t> encode(std::string_view text, special_tokens how = special_tokens::as_text) const;

  /// As a plain prompt (/v1/completions): `encode`, with `bos` and `eos` where the vocabulary asks for them.
  /// A text that was read with `parse` and begins with `bos` itself gets no second.
  std::vector<std::int32_t> encode_prompt(std::string_view text,
                                          special_tokens how = special_tokens::as_text) const;

  /// Token ids of a text that we composed around others' text: control tokens are read where they lie wholly
  /// within one of `own`, the parts that are ours. Neither `bos` nor `eos` is added.
  /// @param own  [begin, end) in bytes, ascending, apart from one another.
  std::vector<std::int32_t> encode_composed(std::string_view text,
                                            std::span<const std::pair<std::size_t, std::size_t>> own) const;

  /// Well-formed text of `ids`; ids outside [0, vocab_size()) add nothing. A SentencePiece vocabulary's space
  /// prefix is taken off again.
  std::string decode(std::span<const std::int32_t> ids, special_text how = special_text::hide) const;

  /// The bytes that token `id` stands for, control tokens included; not always whole characters. Empty for
  /// ids out of range. Lives as long as the tokenizer.
  std::string_view piece(std::int32_t id) const noexcept;

  std::int32_t vocab_size() const noexcept;
  std::int32_t bos() const noexcept;  ///< -1: none
  std::int32_t eos() const noexcept;  ///< -1: none
  bool add_bos() const noexcept;      ///< whether a plain prompt starts with `bos`
  bool adds_space_prefix() const noexcept;
  /// The tokens that end a generation, ascending: eos, eot and the usual end markers that the vocabulary has.
  std::span<const std::int32_t> eog_ids() const noexcept;
  /// True for control, unknown and unused entries, which `special_text::hide` leaves out.
  bool is_special(std::int32_t id) const noexcept;
  /// Id of the token written exactly `text` in the vocabulary file, e.g. find("<|im_start|>").
  std::optional<std::int32_t> find(std::string_view text) const;
  /// The Jinja text of the model file; may be empty.
  const std::string& chat_template_text() const noexcept;

  tokenizer(const tokenizer&) = delete;
  tokenizer& operator=(const tokenizer&) = delete;

 private:
  struct impl;
  explicit tokenizer(std::unique_ptr<const impl> parts);
  std::unique_ptr<const impl> impl_;
};

}  // namespace mooncaf
