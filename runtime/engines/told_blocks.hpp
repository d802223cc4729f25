#pragma once
// The blocks that an engine says it holds, under the names that prompts are placed by.

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/engines/held_blocks.hpp"
#include "runtime/engines/kv_news.hpp"

namespace mooncaf {

/// Goes along the chains of an engine's blocks, whose size may be any: a block of ours counts as held from the engine's
/// block that completes it until that one goes. Engines let go of a chain from its end.
/// Blocks that follow one which was never heard of, or hold more than text, have no name here and are left out.
/// @thread  Owned by the engine's worker; not synchronised.
class told_blocks {
 public:
  /// @param root          parent of every first block without a salt (`root_key`).
  /// @param block_tokens  > 0: of our blocks.
  told_blocks(block_key root, std::uint32_t block_tokens) : root_(root), block_tokens_(block_tokens) {}

  /// @param held  is brought up to date.
  void apply(const kv_news& news, held_blocks& held);
  /// The engine began anew, or news of it were lost: its blocks are not known any more.
  void forget(held_blocks& held);

  std::size_t size() const noexcept { return chain_.size(); }

  /// The `cache_salt` that a salted prompt is sent with, so that the engine keeps its blocks apart as we do; `root` comes back in its news.
  static std::string salt_of(const block_key& root) { return to_string(root); }

 private:
  struct link {
    block_key last;                  ///< our key that ends in it or before it, or the root
    std::uint32_t depth = 0;         ///< our full blocks up to its end
    std::vector<block_name> ours;    ///< that it completes
    std::vector<std::int32_t> rest;  ///< tokens behind the last full block of ours
    std::vector<std::string> media;  ///< that hold it
  };

  void store(const kv_news& news, held_blocks& held);
  void remove(const hash128& block, const std::string& medium, held_blocks& held);
  link after(const link& before, std::span<const std::int32_t> tokens) const;

  block_key root_;
  std::uint32_t block_tokens_;
  std::unordered_map<hash128, link> chain_;
};

}  // namespace mooncaf
