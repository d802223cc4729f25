#pragma once
// Hash table from a block key to a dense number. Depends on runtime/base alone.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/prefetch.hpp"

namespace mooncaf {

/// Open addressing with linear probing; deletion shifts followers back, so there are no tombstones and a
/// table that churns for weeks stays as fast as a fresh one. Keys are hashes already and are not hashed
/// again.
/// @thread not synchronised.  @cost 20 bytes a cell, at most 3/4 full; a failed lookup touches one or two
/// lines.
class flat_index {
 public:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;

  /// @returns the value stored for `key`, or `none`.
  std::uint32_t find(const block_key& key) const noexcept {
    if (values_.empty()) return none;
    for (std::size_t i = home(key);; i = (i + 1) & mask_) {
      if (values_[i] == none) return none;
      if (keys_[i] == key) return values_[i];
    }
  }

  /// Brings the place of `key` near, for a `find` or `insert` soon after.
  void prefetch(const block_key& key) const noexcept {
    if (values_.empty()) return;
    mooncaf::prefetch(&keys_[home(key)]);
    mooncaf::prefetch(&values_[home(key)]);
  }

  /// Adds or replaces. `value` must not be `none`.
  void insert(const block_key& key, std::uint32_t value) {
    if ((size_ + 1) * 4 > values_.size() * 3) grow();
    std::size_t i = home(key);
    for (; values_[i] != none; i = (i + 1) & mask_) {
      if (keys_[i] == key) {
        values_[i] = value;
        return;
      }
    }
    keys_[i] = key;
    values_[i] = value;
    ++size_;
  }

  /// @returns whether the key was there.
  bool erase(const block_key& key) noexcept {
    if (values_.empty()) return false;
    std::size_t hole = home(key);
    for (; keys_[hole] != key || values_[hole] == none; hole = (hole + 1) & mask_)
      if (values_[hole] == none) return false;
    for (std::size_t i = (hole + 1) & mask_; values_[i] != none; i = (i + 1) & mask_) {
      // A follower may fill the hole only if its home does not lie behind the hole.
      if (((i - home(keys_[i])) & mask_) < ((i - hole) & mask_)) continue;
      keys_[hole] = keys_[i];
      values_[hole] = values_[i];
      hole = i;
    }
    values_[hole] = none;
    --size_;
    return true;
  }

  std::size_t size() const noexcept { return size_; }

 private:
  // Mixing both words keeps runs short even where keys are small consecutive numbers, as in traces.
  std::size_t home(const block_key& k) const noexcept {
    return static_cast<std::size_t>(((k.low ^ (k.high * 0x9E3779B97F4A7C15ull)) * 0xD6E8FEB86659FD93ull) >>
                                    shift_);
  }

  void grow() {
    auto old_keys = std::move(keys_);
    auto old_values = std::move(values_);
    const std::size_t cells = old_values.empty() ? 16 : old_values.size() * 2;
    keys_.assign(cells, {});
    values_.assign(cells, none);
    mask_ = cells - 1;
    shift_ = 64;
    for (std::size_t c = cells; c > 1; c >>= 1) --shift_;
    size_ = 0;
    for (std::size_t i = 0; i < old_values.size(); ++i)
      if (old_values[i] != none) insert(old_keys[i], old_values[i]);
  }

  std::vector<block_key> keys_;
  std::vector<std::uint32_t> values_;
  std::size_t mask_ = 0;
  unsigned shift_ = 64;
  std::size_t size_ = 0;
};

}  // namespace mooncaf
