#pragma once
// Names KV blocks: key[i] = H(key[i-1], tokens of block i), so equal keys mean equal prefixes.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/kv_layout.hpp"

namespace mooncaf {

/// Parent of every first block: what must agree before two prompts may share KV at all.
/// @param model       `model::fingerprint()`.
/// @param cache_salt  tenant's own; different salts never share. Empty: shared by all that give none.
hash128 root_key(hash128 model, const kv_layout& layout, std::string_view cache_salt = {});

/// Key of one full block of `tokens` behind `parent`.
block_key next_key(const block_key& parent, std::span<const std::int32_t> tokens) noexcept;

/// Keys of the full blocks of a prompt, prompt order; a rest that fills no block has none.
/// @param block_tokens  at least 1.
/// @cost one pass: about 0.1 µs per block of 512 tokens.
std::vector<block_key> block_keys(std::span<const std::int32_t> tokens, std::uint32_t block_tokens,
                                  const block_key& root);

/// Names blocks while their tokens come in one by one, as decode does.
class block_hasher {
 public:
  /// @param parent  key of the block before the first token, or the root. @param block_tokens  at least 1.
  block_hasher(const block_key& parent, std::uint32_t block_tokens);

  /// @returns the key of the block that `token` fills, if it fills one.
  std::optional<block_key> push(std::int32_t token);
  /// Key of the last full block, or the parent that was given.
  const block_key& last() const noexcept { return last_; }
  /// Tokens behind the last full block, fewer than a block.
  std::span<const std::int32_t> open_tokens() const noexcept { return open_; }

 private:
  block_key last_;
  std::uint32_t block_tokens_;
  std::vector<std::int32_t> open_;
};

}  // namespace mooncaf
