#include "runtime/grammar/choice.hpp"

#include "runtime/base/utf8.hpp"
#include "runtime/grammar/gbnf.hpp"
#include "runtime/grammar/limits.hpp"

namespace mooncaf {

result<std::string> grammar_of_choice(const std::vector<std::string>& texts) {
  if (texts.empty()) return fail(ec::invalid_argument, "needs at least one text");
  std::string out = "root ::= ";
  for (const auto& text : texts) {
    if (text.empty()) return fail(ec::invalid_argument, "an empty text cannot be chosen");
    if (!utf8::is_well_formed(text)) return fail(ec::invalid_argument, "a text is not UTF-8");
    if (&text != &texts.front()) out += " | ";
    out += gbnf_literal(text);
    if (out.size() > grammar_limits::max_source_bytes) {
      return fail(ec::invalid_argument,
                  "takes at most " + std::to_string(grammar_limits::max_source_bytes) + " bytes in all");
    }
  }
  return out + "\n";
}

}  // namespace mooncaf
