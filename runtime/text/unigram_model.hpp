#pragma once
// SentencePiece's Unigram: of all ways to cut a word into pieces, the one with the highest sum of scores.

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/text/text_steps.hpp"
#include "runtime/text/tokenizer_vocab.hpp"

namespace mooncaf {

/// Immutable after `make`; holds a view of the vocabulary that it was made from.
class unigram_model {
 public:
  /// @param vocab  of kind unigram; must outlive the model.
  /// @error `ec::corrupt` for scores that are missing or no numbers, for fallback tokens of some bytes only,
  /// for no `unknown`, and for a broken table of replacements.
  static result<std::unique_ptr<const unigram_model>> make(const tokenizer_vocab& vocab);

  /// Appends the tokens of `text` (well-formed; one stretch between markers).
  /// @param first  nothing stands before it.
  /// A run of characters without a piece becomes its bytes' tokens, or `vocab.unknown` once.
  /// @cost O(text · longest piece), 16 bytes of scratch per byte of a word.
  void encode(std::string_view text, bool first, std::vector<std::int32_t>& out) const;

 private:
  /// Of the trie over all pieces: its children lie next to one another, by ascending byte.
  struct node {
    std::uint32_t child = 0;
    std::uint16_t children = 0;
    unsigned char byte = 0;
    std::int32_t id = -1;
  };

  explicit unigram_model(const tokenizer_vocab& vocab) : vocab_(vocab) {}
  result<void> load();
  result<void> load_pieces();
  void build(std::vector<std::int32_t> ids);
  const node* step(const node& from, unsigned char byte) const noexcept;
  void encode_word(std::string_view word, std::vector<std::int32_t>& out) const;

  const tokenizer_vocab& vocab_;
  std::unique_ptr<const text_steps> steps_;
  std::vector<node> nodes_;
  std::array<std::int32_t, 256> byte_ids_{};
  bool falls_back_ = false;
  double unknown_score_ = 0;
};

}  // namespace mooncaf
