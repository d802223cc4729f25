#pragma once
// Hash table from a block key to a dense number, for an owner that keeps the keys itself. Depends on
// runtime/base alone.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/prefetch.hpp"

namespace mooncaf {

/// As `flat_index`, but a cell holds 32 bits of the hash instead of the key: eight cells share a cache line,
/// and the table of a cache with ten thousand blocks stays in the core's own cache. Whoever looks something
/// up says where the key of a number is; it is asked once per lookup, seldom twice.
/// @thread not synchronised.  @cost 8 bytes a cell, at most 5/8 full.
class tag_index {
 public:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;

  /// 32 bits of the hash. Mixing both words keeps short runs even if somebody feeds it small consecutive
  /// numbers, as traces do.
  static std::uint32_t tag_of(const block_key& k) noexcept {
    return static_cast<std::uint32_t>(((k.low ^ (k.high * 0x9E3779B97F4A7C15ull)) * 0xD6E8FEB86659FD93ull) >>
                                      32);
  }

  /// @param key_of  gives the key that was inserted with a value.
  /// @returns the value stored for `key`, or `none`.
  template <class KeyOf>
  std::uint32_t find(const block_key& key, KeyOf&& key_of) const noexcept {
    if (cells_.empty()) return none;
    const auto tag = tag_of(key);
    for (std::size_t i = home(tag);; i = (i + 1) & mask_) {
      const cell c = cells_[i];
      if (c.value == none || (c.tag == tag && key_of(c.value) == key)) return c.value;
    }
  }

  /// What `find` would ask for the key of first, or `none`: enough to bring it near.
  std::uint32_t guess(const block_key& key) const noexcept {
    return find(key, [&](std::uint32_t) -> const block_key& { return key; });
  }
  /// Brings the place of a key near, for another call soon after.
  void prefetch(std::uint32_t tag) const noexcept {
    if (!cells_.empty()) mooncaf::prefetch(&cells_[home(tag)]);
  }

  /// @param make  gives the value for a key that is not there, from its tag; not `none`. It must not touch
  /// the index.
  /// @returns the value stored for `key`, now at the latest.
  template <class KeyOf, class Make>
  std::uint32_t find_or_insert(const block_key& key, KeyOf&& key_of, Make&& make) {
    if ((size_ + 1) * 8 > cells_.size() * 5) grow();
    const auto tag = tag_of(key);
    for (std::size_t i = home(tag);; i = (i + 1) & mask_) {
      auto& c = cells_[i];
      if (c.value == none) {
        c = {tag, make(tag)};
        ++size_;
        return c.value;
      }
      if (c.tag == tag && key_of(c.value) == key) return c.value;
    }
  }

  /// Removes a key that is there with this value.
  void erase(std::uint32_t tag, std::uint32_t value) noexcept {
    std::size_t hole = home(tag);
    while (cells_[hole].value != value) hole = (hole + 1) & mask_;
    for (std::size_t i = (hole + 1) & mask_; cells_[i].value != none; i = (i + 1) & mask_) {
      // A follower may fill the hole only if its home does not lie behind the hole.
      if (((i - home(cells_[i].tag)) & mask_) < ((i - hole) & mask_)) continue;
      cells_[hole] = cells_[i];
      hole = i;
    }
    cells_[hole].value = none;
    --size_;
  }

  std::size_t size() const noexcept { return size_; }

 private:
  struct cell {
    std::uint32_t tag = 0;
    std::uint32_t value = none;
  };

  std::size_t home(std::uint32_t tag) const noexcept { return tag >> shift_; }

  void put(cell c) noexcept {
    std::size_t i = home(c.tag);
    while (cells_[i].value != none) i = (i + 1) & mask_;
    cells_[i] = c;
  }
  void grow() {
    const auto old = std::move(cells_);
    const std::size_t cells = old.empty() ? 16 : old.size() * 2;
    cells_.assign(cells, {});
    mask_ = cells - 1;
    shift_ = old.empty() ? 28 : shift_ - 1;
    for (const auto& c : old)
      if (c.value != none) put(c);
  }

  std::vector<cell> cells_;
  std::size_t mask_ = 0;
  unsigned shift_ = 28;
  std::size_t size_ = 0;
};

}  // namespace mooncaf
