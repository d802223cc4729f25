#pragma once
// How long the answers of a conversation have been: a prompt that continues another one is its next turn.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/hash.hpp"

namespace mooncaf {

/// The latest answer's length by the key of the last full block of the prompt that it answered. The next turn
/// repeats that prompt, so its keys contain this one; prompts that end with the same shared text (one
/// application's instructions) are taken for one conversation: its latest answer says something, too. A table
/// of fixed size: an entry that collides is forgotten.
/// @thread  Owned by the conductor; not synchronised.
class session_answers {
 public:
  /// Tokens of the answer to the longest earlier prompt that this one continues; 0 if none is remembered.
  /// @cost  a look-up per block, up to the first that is known.
  std::uint32_t earlier(std::span<const block_key> keys) const noexcept {
    if (table_.empty()) return 0;
    for (auto i = keys.size(); i-- > 0;) {
      if (const auto& e = table_[place_of(keys[i])]; e.tokens > 0 && e.key == keys[i]) return e.tokens;
    }
    return 0;
  }
  /// @param key  of the prompt's last full block. @param tokens  0 is not remembered.
  void remember(const block_key& key, std::uint32_t tokens) {
    if (tokens == 0) return;
    if (table_.empty()) table_.resize(places);
    table_[place_of(key)] = {key, tokens};
  }

 private:
  static constexpr std::size_t places = std::size_t{1} << 16;
  static std::size_t place_of(const block_key& key) noexcept {
    return std::hash<block_key>{}(key) & (places - 1);
  }
  struct entry {
    block_key key;
    std::uint32_t tokens = 0;
  };
  std::vector<entry> table_;
};

}  // namespace mooncaf
