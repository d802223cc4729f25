#pragma once
// The text of an answer, as it comes, taken apart into the model's thoughts and its words.

#include <string>
#include <string_view>

#include "runtime/reasoning/reasoning_form.hpp"

namespace mooncaf {

struct thought_parts {
  std::string reasoning;
  std::string rest;
};

/// Reads one answer. The parts together do not depend on how the text was cut into pieces. White space around
/// the reasoning belongs to neither part; without reasoning the text goes through as it is.
/// @thread Not synchronised.   @cost O(bytes).
class reasoning_reader {
 public:
  reasoning_reader(reasoning_form form, thought_state state);

  thought_parts feed(std::string_view text);
  /// The rest of an answer that is over.
  thought_parts finish();

  /// Whether the text goes on, or might, within the reasoning.
  bool thinking() const noexcept { return place_ != place::behind && place_ != place::answer; }

 private:
  enum class place : std::uint8_t {
    start,   ///< nothing but white space has come
    inside,  ///< the reasoning
    behind,  ///< white space behind it
    answer   ///< all the rest
  };
  bool step(thought_parts& out);
  void think(thought_parts& out, std::string_view text);

  const reasoning_marks marks_;
  place place_;
  bool begun_ = false;  ///< some reasoning has come that is not white space
  std::string held_;    ///< not yet understood
  std::string space_;   ///< white space that may yet belong to a part
};

}  // namespace mooncaf
