#pragma once
// A vocabulary as a tree of bytes: a beginning that many tokens have in common is looked at once.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/text/tokenizer.hpp"

namespace mooncaf {

/// The tokens that stand for text, in the order of their bytes; nodes are in the order of a walk, so that the
/// part below a node is a range. @thread Immutable; shareable.
class vocab_trie {
 public:
  explicit vocab_trie(const tokenizer& text);

  struct node {
    std::uint32_t below_end = 0;    ///< nodes (own index + 1 … below_end) lie below
    std::uint32_t token_begin = 0;  ///< tokens that end here
    std::uint32_t token_end = 0;
    std::uint16_t depth = 0;  ///< bytes before `byte`
    std::uint8_t byte = 0;
  };
  std::span<const node> nodes() const noexcept { return nodes_; }
  std::span<const std::int32_t> tokens(const node& n) const noexcept {
    return std::span{tokens_}.subspan(n.token_begin, n.token_end - n.token_begin);
  }
  std::size_t depth() const noexcept { return depth_; }  ///< bytes of the longest token
  std::size_t vocab_size() const noexcept { return vocab_size_; }

 private:
  std::vector<node> nodes_;
  std::vector<std::int32_t> tokens_;
  std::size_t depth_ = 0;
  std::size_t vocab_size_ = 0;
};

}  // namespace mooncaf
