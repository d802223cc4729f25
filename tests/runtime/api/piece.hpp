#pragma once
// A part of an answer, as a gateway gives it to the formats.

#include <string>
#include <utility>

#include "runtime/api/openai.hpp"

namespace mooncaf::test {

inline choice_text piece(std::string text, std::string reason = {}) {
  choice_text c;
  c.text = std::move(text);
  c.finish_reason = std::move(reason);
  return c;
}

}  // namespace mooncaf::test
