#pragma once
// Sets of texts that can be joined, cut with one another and turned round: deterministic automata over
// characters. Sets that a regular expression of GBNF cannot say (both of two patterns, none of these names)
// are worked out here first.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/grammar/gbnf.hpp"

namespace mooncaf {

/// @thread Immutable; shareable. @cost of each operation bounded by `most_states`.
class char_language {
 public:
  static constexpr std::size_t most_states = 3000;

  /// Texts that match somewhere within, as JSON schema says. @error as `regex_expression`, or that it is too
  /// large.
  static result<char_language> of_pattern(std::string_view pattern);
  /// These texts alone; well-formed UTF-8.
  static char_language of_texts(std::span<const std::string> texts);
  /// Texts of so many characters. @param most  `unbounded`: without end. @error `ec::invalid_argument`: more
  /// than `most_states`.
  static result<char_language> of_length(std::uint32_t least, std::uint32_t most);
  static char_language all();

  /// The texts that are in both. @error `ec::invalid_argument`: it would take more than `most_states`.
  result<char_language> both(const char_language& other) const;
  /// The texts that are not in this one.
  char_language others() const;
  bool contains(std::string_view text) const;
  bool empty() const;

  /// An expression of GBNF for the content of a JSON string, quotes not included. Not for an empty one.
  /// @param prefix  of the names of the rules that it adds to `rules`.
  std::string expression(const std::string& prefix, std::string& rules) const;

 private:
  struct edge {
    char32_t low, high;
    std::uint32_t to;
  };
  /// Its edges cover every character.
  struct state {
    std::vector<edge> edges;
    bool ends = false;
  };

  std::vector<bool> living() const;  ///< states from which a text can still come to its end

  std::vector<state> states_;  ///< the first is where texts begin
};

}  // namespace mooncaf
