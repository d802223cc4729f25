#pragma once
// Grammars as text: the GBNF notation of llama.cpp.
//
//   root   ::= "yes" | "no" | number        a rule's alternatives; `root` is the whole answer
//   number ::= [0-9]+ ("." [0-9]{1,4})?     classes, groups, repetition: ? * + {n} {m,} {m,n}
//   other  ::= [^"\\\x00-\x1F] . "\n"       negated class, any character, escapes: \n \r \t \\ \" \[ \] \- \^
//   \x \u \U # a comment
//
// Alternatives may go on in the next line after '|' and inside parentheses.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// A range of Unicode code points, both ends included.
using char_range = std::pair<char32_t, char32_t>;

/// Part of a rule's right side; children are indices into `gbnf_grammar::nodes`.
struct gbnf_node {
  enum class kind : std::uint8_t { chars, rule, sequence, alternatives, repeat };
  kind what = kind::sequence;
  std::vector<char_range> ranges;       ///< chars: ascending, apart from one another
  std::uint32_t rule = 0;               ///< rule: its index
  std::vector<std::uint32_t> children;  ///< sequence, alternatives; repeat: one
  std::uint32_t least = 0, most = 0;    ///< repeat
};
/// `gbnf_node::most` of a repetition without end.
inline constexpr std::uint32_t unbounded = 0xFFFFFFFF;

/// A rule of this name is the whole answer in place of `root`, which it is put around.
inline constexpr std::string_view gbnf_outer_root = "around-root";

struct gbnf_grammar {
  struct rule {
    std::string name;
    std::uint32_t body = 0;  ///< a node
  };
  std::vector<gbnf_node> nodes;
  std::vector<rule> rules;
  std::uint32_t root = 0;
};

/// @error `ec::invalid_argument`: the mistake, with line and column; a rule that is used and not there, or
/// given twice; beyond grammar_limits. @cost O(bytes), and the sorting of classes.
result<gbnf_grammar> parse_gbnf(std::string_view text);

/// `text`, well-formed UTF-8, as a literal: in quotes, and escaped as GBNF needs.
std::string gbnf_literal(std::string_view text);
/// `ranges` as a class; a class of nothing is written "[]", which `parse_gbnf` reads as one that never comes.
std::string gbnf_class(const std::vector<char_range>& ranges);
/// Sorts and joins; cuts off code points that are no character (surrogates, beyond U+10FFFF).
std::vector<char_range> normalised(std::vector<char_range> ranges);
/// All characters that are not in `ranges`, which are normalised.
std::vector<char_range> complement_of(const std::vector<char_range>& ranges);

}  // namespace mooncaf
