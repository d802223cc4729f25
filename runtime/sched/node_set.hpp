#pragma once
// A set of small node numbers as a bitmap: the holders of a block that most nodes hold.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mooncaf {

/// Dense number of a node, given out by the prefix index; below `prefix_index::max_nodes`.
using node_index = std::uint16_t;

/// Bitmap over node numbers. Words that are missing count as zero, so sets of different widths mix.
/// @cost  One bit operation per member; set operations one per 64 node numbers.
class node_set {
 public:
  bool test(node_index n) const noexcept {
    const auto w = std::size_t{n} / 64;
    return w < words_.size() && (words_[w] >> (n % 64) & 1) != 0;
  }
  void insert(node_index n) {
    if (std::size_t{n} / 64 >= words_.size()) words_.resize(std::size_t{n} / 64 + 1);
    words_[n / 64] |= std::uint64_t{1} << (n % 64);
  }
  void erase(node_index n) noexcept {
    if (std::size_t{n} / 64 < words_.size()) words_[n / 64] &= ~(std::uint64_t{1} << (n % 64));
  }
  /// Empties the set and keeps its memory.
  void clear() noexcept { words_.assign(words_.size(), 0); }

  bool empty() const noexcept {
    for (const auto w : words_) {
      if (w != 0) return false;
    }
    return true;
  }
  std::size_t size() const noexcept {
    std::size_t n = 0;
    for (const auto w : words_) n += static_cast<std::size_t>(std::popcount(w));
    return n;
  }

  node_set& operator|=(const node_set& other) {
    if (words_.size() < other.words_.size()) words_.resize(other.words_.size());
    for (std::size_t w = 0; w < other.words_.size(); ++w) words_[w] |= other.words_[w];
    return *this;
  }
  node_set& operator&=(const node_set& other) noexcept {
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] &= other.word(w);
    return *this;
  }
  node_set& operator-=(const node_set& other) noexcept {
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] &= ~other.word(w);
    return *this;
  }

  /// Members of both sets.
  static std::size_t count_common(const node_set& a, const node_set& b) noexcept {
    std::size_t n = 0;
    for (std::size_t w = 0; w < a.words_.size(); ++w) {
      n += static_cast<std::size_t>(std::popcount(a.words_[w] & b.word(w)));
    }
    return n;
  }
  /// Members of `a` that are not in `b`.
  static std::size_t count_without(const node_set& a, const node_set& b) noexcept {
    std::size_t n = 0;
    for (std::size_t w = 0; w < a.words_.size(); ++w) {
      n += static_cast<std::size_t>(std::popcount(a.words_[w] & ~b.word(w)));
    }
    return n;
  }

  /// Calls `visit(node)` for every member, ascending.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t w = 0; w < words_.size(); ++w) for_each_bit(w, words_[w], visit);
  }
  /// … for every member of both.
  template <class Visit>
  static void for_each_common(const node_set& a, const node_set& b, Visit&& visit) {
    for (std::size_t w = 0; w < a.words_.size(); ++w) for_each_bit(w, a.words_[w] & b.word(w), visit);
  }
  /// … for every member of `a` that is not in `b`.
  template <class Visit>
  static void for_each_without(const node_set& a, const node_set& b, Visit&& visit) {
    for (std::size_t w = 0; w < a.words_.size(); ++w) for_each_bit(w, a.words_[w] & ~b.word(w), visit);
  }

  std::size_t memory_bytes() const noexcept { return words_.capacity() * sizeof(std::uint64_t); }

  friend bool operator==(const node_set& a, const node_set& b) noexcept {
    const auto n = std::max(a.words_.size(), b.words_.size());
    for (std::size_t w = 0; w < n; ++w) {
      if (a.word(w) != b.word(w)) return false;
    }
    return true;
  }

 private:
  template <class Visit>
  static void for_each_bit(std::size_t word, std::uint64_t bits, Visit&& visit) {
    for (; bits != 0; bits &= bits - 1) {
      visit(static_cast<node_index>(word * 64 + static_cast<std::size_t>(std::countr_zero(bits))));
    }
  }
  std::uint64_t word(std::size_t w) const noexcept { return w < words_.size() ? words_[w] : 0; }
  std::vector<std::uint64_t> words_;
};

}  // namespace mooncaf
