#pragma once
// One rule as a nondeterministic automaton, from which `automaton` is made.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/grammar/gbnf.hpp"

namespace mooncaf {

/// Thompson's construction, over bytes; a state has byte edges to one place each, calls, and free moves.
class rule_nfa {
 public:
  struct byte_edge {
    std::uint8_t low, high;
    std::uint32_t to;
  };
  struct rule_call {
    std::uint32_t rule, to;
  };
  struct state {
    std::vector<byte_edge> bytes;
    std::vector<rule_call> calls;
    std::vector<std::uint32_t> free;
  };

  /// @param budget  states that may still be made; becomes less. @returns nothing if they are not enough.
  static std::optional<rule_nfa> make(const gbnf_grammar& grammar, std::uint32_t rule, std::size_t& budget);

  std::vector<state> states;
  std::uint32_t start = 0, end = 0;

 private:
  std::uint32_t add();
  void build(const gbnf_grammar& g, std::uint32_t node, std::uint32_t from, std::uint32_t to);
  void repeat(const gbnf_grammar& g, const gbnf_node& node, std::uint32_t from, std::uint32_t to);
  void chars(const std::vector<char_range>& ranges, std::uint32_t from, std::uint32_t to);
  void char_span(char32_t low, char32_t high, std::uint32_t from, std::uint32_t to);

  std::size_t budget_ = 0;
  bool spent_ = false;
};

}  // namespace mooncaf
