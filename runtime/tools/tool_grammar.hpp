#pragma once
// Answers that are calls and nothing else, as grammars.

#include <span>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/tools/tool_format.hpp"

namespace mooncaf {

/// A function that a model may call.
struct tool_function {
  std::string name;
  std::string parameters;  ///< JSON text of a schema; empty: any object
};

/// A grammar of one call of one of `functions`, or up to 16 with `several`, as the model writes them; where
/// `listed_when_forced`, a list of them without a marker.
/// @error as `grammar_of_schema`, with the function's name.
result<std::string> grammar_of_tools(tool_format format, std::span<const tool_function> functions,
                                     bool several);

}  // namespace mooncaf
