#pragma once
// One of several texts, as a grammar.

#include <string>
#include <vector>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// @returns a grammar of the texts. @error `ec::invalid_argument`: there is none, one is empty or not UTF-8,
/// or together they are beyond grammar_limits.
result<std::string> grammar_of_choice(const std::vector<std::string>& texts);

}  // namespace mooncaf
