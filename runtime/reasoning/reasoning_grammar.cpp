#include "runtime/reasoning/reasoning_grammar.hpp"

#include "runtime/grammar/gbnf.hpp"

namespace mooncaf {

namespace {

std::string none_of(char first, char next) {
  const auto code = [](char c) { return char_range{static_cast<char32_t>(c), static_cast<char32_t>(c)}; };
  return gbnf_class(complement_of(normalised({code(first), code(next)})));
}

/// Text that ends with `mark` and holds it nowhere before. As the first character of a mark comes in it once,
/// a beginning of the mark is followed by another beginning, or by a character that cannot go on with it.
std::string text_up_to(std::string_view mark) {
  std::string begun, broken;
  for (std::size_t n = 1; n < mark.size(); ++n) {
    const auto part = gbnf_literal(mark.substr(0, n));
    begun += (n > 1 ? " | " : "") + part;
    broken += (n > 1 ? " | " : "") + part + " " + none_of(mark[0], mark[n]);
  }
  begun = "(" + begun + ")*";
  const auto other = none_of(mark[0], mark[0]);
  return "(" + other + " | " + begun + " (" + broken + "))* " + begun + " " + gbnf_literal(mark);
}

}  // namespace

std::string thought_first(std::string grammar, reasoning_form form, thought_state state) {
  // An answer in channels (`harmony`) needs no thought first: its first token is of the form already.
  if (state == thought_state::over || form == reasoning_form::harmony) return grammar;
  const auto marks = marks_of(form);
  const std::string space = "[ \\n\\r\\t]*";
  auto thought = text_up_to(marks.close) + " " + space;
  if (state == thought_state::may_open)
    thought = "(" + space + " " + gbnf_literal(marks.open) + " " + thought + ")?";
  grammar += "\n" + std::string{gbnf_outer_root} + " ::= " + thought + " root\n";
  return grammar;
}

}  // namespace mooncaf
