#pragma once
// Prompts, keys and block contents that can be recognised: the bytes of a block follow from its key.

#include <cstring>
#include <span>
#include <vector>

#include "runtime/base/block_name.hpp"
#include "runtime/base/hash.hpp"
#include "storage/arena.hpp"
#include "storage/block_allocator.hpp"

namespace mooncaf::test {

/// Key of block `depth` of the prompt that branches off at every given choice, so that prompts share
/// prefixes.
inline block_key key_of(const std::vector<int>& choices, std::size_t depth) {
  block_key key{1, 1};
  for (std::size_t i = 0; i <= depth; ++i) {
    const std::uint64_t step[3] = {key.high, key.low, static_cast<std::uint64_t>(choices[i])};
    key = hash_bytes128(std::as_bytes(std::span{step}));
  }
  return key;
}

/// Names of all blocks of a prompt.
inline std::vector<block_name> prompt(const std::vector<int>& choices) {
  std::vector<block_name> names;
  for (std::size_t d = 0; d < choices.size(); ++d) {
    names.push_back(
        {key_of(choices, d), d == 0 ? block_key{7, 7} : names.back().key, static_cast<std::uint32_t>(d)});
  }
  return names;
}

inline std::vector<block_key> keys_of(const std::vector<block_name>& names) {
  std::vector<block_key> keys;
  for (const auto& n : names) keys.push_back(n.key);
  return keys;
}

inline void fill(std::span<std::byte> bytes, const block_key& key) {
  std::uint64_t x = key.low | 1;
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    std::memcpy(bytes.data() + i, &x, 8);
  }
  for (std::size_t i = bytes.size() / 8 * 8; i < bytes.size(); ++i) bytes[i] = std::byte(key.high);
}

inline std::vector<std::byte> bytes_of(const block_key& key, std::size_t size) {
  std::vector<std::byte> bytes(size);
  fill(bytes, key);
  return bytes;
}

/// An arena cut into `slots` slots.
struct pool {
  arena memory;
  block_allocator slots;

  /// As many slots as asked for, or as fill the last group of blocks in pieces.
  static pool make(std::size_t slots, const block_pieces& shape) {
    const auto bytes = shape.bytes_for(slots);
    auto memory = arena::create("test", bytes).value();
    auto cut = block_allocator::create(memory.bytes().first(bytes), shape).value();
    return {std::move(memory), std::move(cut)};
  }
};

}  // namespace mooncaf::test
