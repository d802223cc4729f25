#pragma once
// Grammars of answers that models think about first.

#include <string>

#include "runtime/reasoning/reasoning_form.hpp"

namespace mooncaf {

/// `grammar` (GBNF) behind free reasoning: up to the mark that closes it anything may come, then white space,
/// then an answer of the grammar. Where the model decides (`may_open`), the reasoning may be left out. Of
/// `harmony` it is: the answer begins with the grammar's own first character.
std::string thought_first(std::string grammar, reasoning_form form, thought_state state);

}  // namespace mooncaf
