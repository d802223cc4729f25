#pragma once
// SentencePiece's BPE: the characters of a whole text to pieces, by repeatedly joining the neighbours that
// make the piece with the highest score; or, where a vocabulary lists merges, that have the best merge rank.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/text/string_index.hpp"
#include "runtime/text/tokenizer_vocab.hpp"

namespace mooncaf {

/// Immutable after `make`; holds views into the vocabulary that it was made from.
class sentencepiece_model {
 public:
  /// @param vocab  must outlive the model.
  /// @error `ec::corrupt` for missing or wrong scores, and for byte fallback tokens of which only some are
  /// there.
  static result<std::unique_ptr<const sentencepiece_model>> make(const tokenizer_vocab& vocab);

  /// Appends the tokens of `text` (well-formed; spaces as such).
  /// @param prefix  as if a space came before it.
  /// Characters without a piece become their bytes' tokens, or `vocab.unknown` once per run of them.
  /// @cost O(n log n)
  void encode(std::string_view text, bool prefix, std::vector<std::int32_t>& out) const;

  /// The bytes that a token of this kind of vocabulary stands for.
  static std::string piece_bytes(std::string_view token, token_type type);

 private:
  explicit sentencepiece_model(const tokenizer_vocab& vocab) : vocab_(vocab), pieces_(vocab.tokens) {}
  result<void> load();
  result<void> load_scores();
  result<void> load_merges();
  std::optional<float> score_of(std::int32_t left, std::int32_t right, std::int32_t both) const;
  void merge(std::string_view text, std::vector<std::int32_t>& out) const;
  void fall_back(std::string_view character, std::vector<std::int32_t>& out) const;

  const tokenizer_vocab& vocab_;
  string_index pieces_;  ///< only pieces that text may become: normal and user_defined
  std::array<std::int32_t, 256> byte_ids_{};
  std::unordered_map<std::uint64_t, std::uint32_t> ranks_;  ///< of merges; left id in the high word
};

}  // namespace mooncaf
