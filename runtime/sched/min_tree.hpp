#pragma once
// A tournament tree: the least loaded of thousands of instances, kept in order while loads change.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace mooncaf {

/// Keys at positions 0 … size-1, with the smallest at the root.
///
///                 min(0..3)                 a change of one key walks up: log2(n) comparisons
///            min(0,1)    min(2,3)           a search walks down and skips every subtree whose
///            k0    k1    k2    k3           minimum cannot beat what was found already
///
/// @thread  Owned by one thread; not synchronised.
class min_tree {
 public:
  using key = std::int64_t;
  static constexpr key absent = std::numeric_limits<key>::max();  ///< never found
  static constexpr std::size_t npos = ~std::size_t{0};

  std::size_t size() const noexcept { return size_; }
  key at(std::size_t position) const noexcept { return nodes_[leaves_ + position]; }
  key min() const noexcept { return size_ == 0 ? absent : nodes_[1]; }

  /// Makes room for `size` positions; new ones are absent.
  void resize(std::size_t size) {
    const auto leaves = std::bit_ceil(std::max<std::size_t>(size, 1));
    std::vector<key> keys(leaves, absent);
    for (std::size_t i = 0; i < std::min(size, size_); ++i) keys[i] = at(i);
    nodes_.assign(2 * leaves, absent);
    leaves_ = leaves;
    size_ = size;
    std::copy(keys.begin(), keys.end(), nodes_.begin() + static_cast<std::ptrdiff_t>(leaves));
    for (auto n = leaves - 1; n > 0; --n) nodes_[n] = std::min(nodes_[2 * n], nodes_[2 * n + 1]);
  }

  /// @cost log2(size).
  void set(std::size_t position, key value) noexcept {
    auto n = leaves_ + position;
    nodes_[n] = value;
    for (n /= 2; n > 0; n /= 2) {
      const auto least = std::min(nodes_[2 * n], nodes_[2 * n + 1]);
      if (nodes_[n] == least) break;
      nodes_[n] = least;
    }
  }

  /// Position of the smallest key with `wanted(position)`; keys below `floor` count as `floor`; of equal ones
  /// the lowest position; `npos` if there is none. Only keys below `limit` count.
  /// @cost about log2(size) when a fair share of the positions is wanted, at worst 2 x size.
  template <class Wanted>
  std::size_t best(key floor, Wanted&& wanted, key limit = absent) const {
    if (size_ == 0) return npos;
    search<Wanted> s{*this, wanted, floor, limit, npos};
    s.visit(1);
    return s.found;
  }

 private:
  template <class Wanted>
  struct search {
    const min_tree& tree;
    Wanted& wanted;
    key floor;
    key least;  // clamped key of `found`, or the limit
    std::size_t found;

    bool hopeless(std::size_t n) const noexcept {
      const auto k = std::max(tree.nodes_[n], floor);
      return k > least || (k == least && (found == npos || first_leaf(n) > found));
    }
    std::size_t first_leaf(std::size_t n) const noexcept {
      while (n < tree.leaves_) n *= 2;
      return n - tree.leaves_;
    }
    void visit(std::size_t n) {
      if (tree.nodes_[n] == absent || hopeless(n)) return;
      if (n >= tree.leaves_) {
        if (!wanted(n - tree.leaves_)) return;
        found = n - tree.leaves_;
        least = std::max(tree.nodes_[n], floor);
        return;
      }
      // The better side first; of equals the left one, which settles ties without coming back.
      const auto left = std::max(tree.nodes_[2 * n], floor);
      const auto right = std::max(tree.nodes_[2 * n + 1], floor);
      visit(right < left ? 2 * n + 1 : 2 * n);
      visit(right < left ? 2 * n : 2 * n + 1);
    }
  };

  std::vector<key> nodes_;  // 1 is the root; leaves from `leaves_` on
  std::size_t leaves_ = 0;
  std::size_t size_ = 0;
};

}  // namespace mooncaf
