#include "runtime/grammar/vocab_trie.hpp"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

namespace mooncaf {

vocab_trie::vocab_trie(const tokenizer& text) : vocab_size_(static_cast<std::size_t>(text.vocab_size())) {
  std::vector<std::pair<std::string_view, std::int32_t>> pieces;
  for (std::int32_t id = 0; id < text.vocab_size(); ++id) {
    const auto piece = text.piece(id);
    const bool ends = std::ranges::binary_search(text.eog_ids(), id);
    if (!piece.empty() && piece.size() < std::numeric_limits<std::uint16_t>::max() && !ends &&
        !text.is_special(id))
      pieces.emplace_back(piece, id);
  }
  std::ranges::sort(pieces);
  std::vector<std::uint32_t> path;  // nodes of the last piece's bytes
  std::string_view last;
  const auto close = [&](std::size_t kept) {
    for (; path.size() > kept; path.pop_back())
      nodes_[path.back()].below_end = static_cast<std::uint32_t>(nodes_.size());
  };
  for (const auto& [piece, id] : pieces) {
    const auto common = static_cast<std::size_t>(std::ranges::mismatch(piece, last).in1 - piece.begin());
    if (piece != last) {
      close(common);
      for (auto i = common; i < piece.size(); ++i) {
        path.push_back(static_cast<std::uint32_t>(nodes_.size()));
        const auto tokens = static_cast<std::uint32_t>(tokens_.size());
        nodes_.push_back(
            {0, tokens, tokens, static_cast<std::uint16_t>(i), static_cast<std::uint8_t>(piece[i])});
      }
    }
    tokens_.push_back(id);
    nodes_[path.back()].token_end = static_cast<std::uint32_t>(tokens_.size());
    depth_ = std::max(depth_, piece.size());
    last = piece;
  }
  close(0);
}

}  // namespace mooncaf
