#pragma once
// Which shard of a directory knows an object. A part of the protocol: clients use it to choose the shard that
// they ask.

#include <cstdint>
#include <string_view>

#include "runtime/base/hash.hpp"

namespace mooncaf {

/// More would cut a process's mount into pieces too small to be of use.
inline constexpr std::uint32_t shards_max = 16;

/// The number of a shard, and how many shards its directory has.
struct shard_place {
  std::uint32_t index = 0, count = 1;
  /// This shard's part of something that all of them have together.
  constexpr std::uint64_t part_of(std::uint64_t whole) const noexcept {
    return whole / count + (index < whole % count ? 1 : 0);
  }
  friend bool operator==(const shard_place&, const shard_place&) = default;
};

/// @param hash  xxh3-64 of the object's name inside the store (`key_scope`). @returns less than `count`.
/// By the upper half, because tables of the directory are indexed by the lower.
constexpr std::uint32_t shard_of(std::uint64_t hash, std::uint32_t count) noexcept {
  return static_cast<std::uint32_t>((hash >> 32) * count >> 32);
}
inline std::uint32_t shard_of(std::string_view name, std::uint32_t count) noexcept {
  return count == 1 ? 0 : shard_of(XXH3_64bits(name.data(), name.size()), count);
}

}  // namespace mooncaf
