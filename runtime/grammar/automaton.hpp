#pragma once
// A grammar as automata: one deterministic automaton over bytes of UTF-8 for each rule; its places may also
// call other rules.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/grammar/gbnf.hpp"

namespace mooncaf {

/// @thread Immutable after `compile`; shareable.
class automaton {
 public:
  /// On a byte in [low, high] to place `to`. The edges of one place do not overlap.
  struct edge {
    std::uint8_t low, high;
    std::uint32_t to;
  };
  /// Through the whole of a rule, which begins at `start`, then to place `to` of this one.
  struct call {
    std::uint32_t start, to;
  };

  /// @error `ec::invalid_argument`: the grammar calls a rule again before a byte has come (left recursion,
  /// named), has no answer at all, or is beyond grammar_limits.
  static result<automaton> compile(const gbnf_grammar& grammar);

  std::uint32_t root() const noexcept { return root_; }
  std::size_t place_count() const noexcept { return places_.size(); }
  std::span<const edge> edges(std::uint32_t place) const noexcept {
    return std::span{edges_}.subspan(places_[place].edge_begin, places_[place].edge_count);
  }
  std::span<const call> calls(std::uint32_t place) const noexcept {
    return std::span{calls_}.subspan(places_[place].call_begin, places_[place].call_count);
  }
  /// Whether the rule may end here.
  bool ends(std::uint32_t place) const noexcept { return places_[place].may_end; }
  /// Whether anything else can happen here than the rule's end.
  bool goes_on(std::uint32_t place) const noexcept {
    return places_[place].edge_count + places_[place].call_count > 0;
  }

 private:
  friend class automaton_builder;
  struct entry {
    std::uint32_t edge_begin = 0, edge_count = 0, call_begin = 0, call_count = 0;
    bool may_end = false;
  };
  std::vector<entry> places_;
  std::vector<edge> edges_;
  std::vector<call> calls_;
  std::uint32_t root_ = 0;
};

}  // namespace mooncaf
