#pragma once
// Byte-level BPE: the bytes of one word to tokens, by repeatedly joining the neighbours with the best merge
// rank.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/text/string_index.hpp"
#include "runtime/text/tokenizer_vocab.hpp"

namespace mooncaf {

/// Immutable after `make`; holds views into the vocabulary and pieces that it was made from.
class bpe_model {
 public:
  struct parts {
    const tokenizer_vocab& vocab;
    const string_index& names;            ///< of `vocab.tokens`
    std::span<const std::string> pieces;  ///< bytes of each token
    /// Llama 3: a word that is a token is taken whole, even where merges would end elsewhere.
    bool ignore_merges = false;
  };
  /// @error `ec::corrupt` naming the merge, or the byte without which no text could be encoded.
  static result<std::unique_ptr<const bpe_model>> make(const parts& from);

  /// Appends the tokens of `word`. Bytes that have no token are left out before merging. Every vocabulary
  /// entry that merging yields from its own bytes was found at construction, so most words cost a single
  /// lookup: the vocabulary is the word cache, and needs no lock.
  /// @cost O(1) for such words, else O(n log n).
  void encode_word(std::string_view word, std::vector<std::int32_t>& out) const;

 private:
  struct merge {
    std::uint64_t pair = ~std::uint64_t{0};  ///< left id in the high word; all ones: a free slot
    std::uint32_t rank = 0;
    std::int32_t id = -1;
  };

  explicit bpe_model(const parts& from);
  result<void> load_bytes(const parts& from);
  result<void> load_merges(const parts& from);
  void load_words(const parts& from);
  std::size_t probe(std::uint64_t pair) const noexcept;
  const merge* find(std::int32_t left, std::int32_t right) const noexcept;
  void merge_bytes(std::string_view word, std::vector<std::int32_t>& out) const;
  std::size_t merge_short(std::span<std::int32_t> ids) const noexcept;
  void merge_long(std::span<const std::int32_t> ids, std::vector<std::int32_t>& out) const;

  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<merge> merges_;
  string_index words_;
};

}  // namespace mooncaf
