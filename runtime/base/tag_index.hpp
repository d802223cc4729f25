#pragma once
// Hash table from a block key to a dense number, for an owner that keeps the keys itself.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "runtime/base/hash.hpp"
#include "runtime/base/prefetch.hpp"

namespace mooncaf {

/// Eight cells share a bucket, which is a cache line; a cell holds 32 bits of the hash and the number, and is
/// compared with its seven neighbours at once. A full bucket spills into the next one; a deletion brings
/// spilled cells back, so that a table that churns for weeks stays as fast as a fresh one. The caller of a
/// look-up tells where the key of a number is, and is asked once, seldom twice.
/// @thread not synchronised.  @cost 8 bytes a cell, at most 5/8 full.
class tag_index {
 public:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;

  /// 32 bits of the hash. Mixing both words spreads even small consecutive numbers, as traces have them.
  static std::uint32_t tag_of(const block_key& k) noexcept {
    return static_cast<std::uint32_t>(((k.low ^ (k.high * 0x9E3779B97F4A7C15ull)) * 0xD6E8FEB86659FD93ull) >>
                                      32);
  }

  /// @param key_of  gives the key that was inserted with a value.
  /// @returns the value stored for `key`, or `none`.
  template <class KeyOf>
  std::uint32_t find(const block_key& key, KeyOf&& key_of) const noexcept {
    if (buckets_.empty()) return none;
    const auto tag = tag_of(key);
    for (std::size_t at = home(tag);; at = next(at)) {
      const auto value = buckets_[at].find(tag, [&](std::uint32_t v) { return key_of(v) == key; });
      if (value != none || !buckets_[at].is_full()) return value;
    }
  }

  /// The number that `find` would compare first, or `none`: enough to bring its key near.
  std::uint32_t guess(const block_key& key) const noexcept {
    return find(key, [&](std::uint32_t) -> const block_key& { return key; });
  }
  /// Brings the place of a key near, for another call soon after.
  void prefetch(std::uint32_t tag) const noexcept {
    if (!buckets_.empty()) mooncaf::prefetch(&buckets_[home(tag)]);
  }

  /// @param make  gives the value for a key that is not there, from its tag; not `none`. It must not touch
  /// the index.
  /// @returns the value stored for `key`, now at the latest.
  template <class KeyOf, class Make>
  std::uint32_t find_or_insert(const block_key& key, KeyOf&& key_of, Make&& make) {
    if ((size_ + 1) * 8 > buckets_.size() * width * 5) grow();
    const auto tag = tag_of(key);
    for (std::size_t at = home(tag);; at = next(at)) {
      auto& b = buckets_[at];
      if (const auto value = b.find(tag, [&](std::uint32_t v) { return key_of(v) == key; }); value != none)
        return value;
      if (b.is_full()) continue;
      const auto value = make(tag);
      b.add(tag, value);
      ++size_;
      return value;
    }
  }

  /// Removes a key that is there with this value.
  void erase(std::uint32_t tag, std::uint32_t value) noexcept {
    auto at = home(tag);
    unsigned here = 0;
    while ((here = equal(buckets_[at].values, value)) == 0) at = next(at);
    const bool may_have_spilled = buckets_[at].is_full();
    buckets_[at].remove(std::countr_zero(here));
    --size_;
    if (may_have_spilled) refill(at);
  }

  /// Forgets all, and keeps the memory.
  void clear() noexcept {
    std::ranges::fill(buckets_, bucket{});
    size_ = 0;
  }

  std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t width = 8;

  /// @returns a bit for each cell that is `what`.
  static unsigned equal(const std::uint32_t (&cells)[width], std::uint32_t what) noexcept {
#ifdef __SSE2__
    const auto* in = reinterpret_cast<const __m128i*>(cells);
    const auto wanted = _mm_set1_epi32(static_cast<int>(what));
    const auto low = _mm_castsi128_ps(_mm_cmpeq_epi32(_mm_load_si128(in), wanted));
    const auto high = _mm_castsi128_ps(_mm_cmpeq_epi32(_mm_load_si128(in + 1), wanted));
    return static_cast<unsigned>(_mm_movemask_ps(low) | _mm_movemask_ps(high) << 4);
#else
    unsigned bits = 0;
    for (unsigned i = 0; i < width; ++i) bits |= static_cast<unsigned>(cells[i] == what) << i;
    return bits;
#endif
  }

  // The cells that are used come first.
  struct alignas(64) bucket {
    std::uint32_t tags[width] = {};
    std::uint32_t values[width] = {none, none, none, none, none, none, none, none};

    bool is_full() const noexcept { return values[width - 1] != none; }
    int used() const noexcept { return std::countr_zero(equal(values, none) | 1u << width); }

    template <class IsIt>
    std::uint32_t find(std::uint32_t tag, IsIt&& is_it) const noexcept {
      for (auto same = equal(tags, tag); same != 0; same &= same - 1) {
        const auto value = values[std::countr_zero(same)];
        if (value != none && is_it(value)) return value;
      }
      return none;
    }
    void add(std::uint32_t tag, std::uint32_t value) noexcept {
      const auto i = used();
      tags[i] = tag;
      values[i] = value;
    }
    void remove(int i) noexcept {
      const auto last = used() - 1;
      tags[i] = tags[last];
      values[i] = values[last];
      values[last] = none;
    }
  };
  static_assert(sizeof(bucket) == 64);

  std::size_t home(std::uint32_t tag) const noexcept { return tag >> shift_; }
  std::size_t next(std::size_t at) const noexcept { return (at + 1) & (buckets_.size() - 1); }
  std::size_t distance(std::size_t from, std::size_t to) const noexcept {
    return (to - from) & (buckets_.size() - 1);
  }

  /// Brings back cells that spilled over bucket `hole`, which was full until now.
  void refill(std::size_t hole) noexcept {
    for (auto at = next(hole);; at = next(at)) {
      auto& b = buckets_[at];
      const bool was_full = b.is_full();
      for (int i = 0, n = b.used(); i < n; ++i) {
        // It may move back only if its home does not lie behind the hole.
        if (distance(home(b.tags[i]), at) < distance(hole, at)) continue;
        buckets_[hole].add(b.tags[i], b.values[i]);
        b.remove(i);
        hole = at;
        break;
      }
      if (!was_full) return;
    }
  }
  void grow() {
    const auto old = std::exchange(buckets_, std::vector<bucket>(buckets_.empty() ? 2 : buckets_.size() * 2));
    --shift_;
    for (const auto& b : old) {
      for (int i = 0; i < b.used(); ++i) {
        auto at = home(b.tags[i]);
        while (buckets_[at].is_full()) at = next(at);
        buckets_[at].add(b.tags[i], b.values[i]);
      }
    }
  }

  std::vector<bucket> buckets_;  // a power of two, at least two
  unsigned shift_ = 32;
  std::size_t size_ = 0;
};

}  // namespace mooncaf
