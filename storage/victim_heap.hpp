#pragma once
// Priority queue of the blocks that may be given up, in which every member can be found. Depends on
// runtime/base alone.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/base/prefetch.hpp"

namespace mooncaf {

/// How soon a block goes: the smallest first.
struct victim_rank {
  std::uint64_t high = 0, low = 0;
  friend bool operator<(const victim_rank& a, const victim_rank& b) noexcept { return a.whole() < b.whole(); }
  friend bool operator==(const victim_rank&, const victim_rank&) = default;

 private:
  __extension__ using whole_rank = unsigned __int128;
  // One number for both halves: comparing them needs no branch, which the processor could not foresee.
  whole_rank whole() const noexcept { return whole_rank{high} << 64 | low; }
};

/// Heap over small numbers. Four children per entry: half the levels of a binary heap; ranks lie in it, so
/// that comparing touches nothing else.
/// @thread not synchronised.  @cost O(log n) per change, 24 bytes a member and 4 per number.
class victim_heap {
 public:
  using member = std::uint32_t;

  bool empty() const noexcept { return entries_.empty(); }
  std::size_t size() const noexcept { return entries_.size(); }
  member front() const noexcept { return entries_.front().who; }
  bool contains(member m) const noexcept { return places_[m] != nowhere; }

  /// Brings near where a member is.
  void prefetch(member m) const noexcept { mooncaf::prefetch(&places_[m]); }
  /// Makes room for members below `count`; members that are in the heap are below it.
  void bound(std::size_t count) { places_.resize(count, nowhere); }
  /// Adds one that is not there.
  void push(member m, victim_rank rank) {
    entries_.emplace_back();
    sift_up(entries_.size() - 1, {rank, m});
  }
  /// Takes one out that is there.
  void remove(member m) noexcept {
    const std::size_t at = take_place(m);
    const entry last = entries_.back();
    entries_.pop_back();
    if (at < entries_.size()) settle(at, last);
  }
  /// `in`, which is not there, comes where `out` was: near in rank, it hardly moves.
  void replace(member out, member in, victim_rank rank) noexcept { settle(take_place(out), {rank, in}); }
  /// A member of the heap goes later than before.
  void raise(member m, victim_rank rank) noexcept { sift_down(places_[m], {rank, m}); }

  /// For tests. @returns whether `rank_of` each member is still as added, and all are in order.
  template <class RankOf>
  bool consistent(RankOf&& rank_of) const {
    std::size_t placed = 0;
    for (const auto p : places_) placed += p != nowhere;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const auto& e = entries_[i];
      if (places_[e.who] != i || !(e.rank == rank_of(e.who))) return false;
      if (i > 0 && e.rank < entries_[(i - 1) / 4].rank) return false;
    }
    return placed == entries_.size();
  }

 private:
  static constexpr std::uint32_t nowhere = 0xFFFFFFFFu;
  struct entry {
    victim_rank rank;
    member who = 0;
  };

  static const entry* smaller(const entry* a, const entry* b) noexcept { return b->rank < a->rank ? b : a; }
  std::size_t take_place(member m) noexcept { return std::exchange(places_[m], nowhere); }
  void put(std::size_t at, const entry& e) noexcept {
    entries_[at] = e;
    places_[e.who] = static_cast<std::uint32_t>(at);
  }
  void settle(std::size_t at, const entry& e) noexcept {
    if (at > 0 && e.rank < entries_[(at - 1) / 4].rank) {
      sift_up(at, e);
    } else {
      sift_down(at, e);
    }
  }
  void sift_up(std::size_t at, const entry& e) noexcept {
    while (at > 0) {
      const auto above = (at - 1) / 4;
      if (!(e.rank < entries_[above].rank)) break;
      put(at, entries_[above]);
      at = above;
    }
    put(at, e);
  }
  void sift_down(std::size_t at, const entry& e) noexcept {
    for (const auto count = entries_.size();;) {
      const auto first = at * 4 + 1;
      if (first >= count) break;
      const entry* const c = &entries_[first];
      const entry* best = c;
      if (first + 4 <= count) {
        best = smaller(smaller(c, c + 1), smaller(c + 2, c + 3));
      } else {
        for (std::size_t i = 1; i < count - first; ++i) best = smaller(best, c + i);
      }
      if (!(best->rank < e.rank)) break;
      put(at, *best);
      at = static_cast<std::size_t>(best - entries_.data());
    }
    put(at, e);
  }

  std::vector<entry> entries_;
  std::vector<std::uint32_t> places_;  // by member
};

}  // namespace mooncaf
