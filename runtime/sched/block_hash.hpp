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

/// Parent of every first block, from all that must agree before two prompts may share KV at all.
/// @param model       `model::fingerprint()`.
/// @param cache_salt  tenant's own; different salts never share. Empty: shared by all that give none.
hash128 root_key(hash128 model, const kv_layout& layout, std::string_view cache_salt = {});

/// The identity of a model with weights changed by an adapter, as `root_key` takes it.
/// @param adapter  zero: none, and the model's own identity stays.
hash128 adapted_root(hash128 model, hash128 adapter);

/// Key of one full block of `tokens` behind `parent`.
block_key next_key(const block_key& parent, std::span<const std::int32_t> tokens) noexcept;

/// Keys of the full blocks of a prompt, prompt order; a rest that fills no block has none.
/// @param block_tokens  at least 1.
/// @cost one pass: about 0.1 µs per block of 512 tokens.
std::vector<block_key> block_keys(std::span<const std::int32_t> tokens, std::uint32_t block_tokens,
                                  const block_key& root);

}  // namespace mooncaf
