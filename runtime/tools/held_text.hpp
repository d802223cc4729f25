#pragma once
// Text that waits to be understood. For the sources of `tool_call_reader`.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace mooncaf::held_text {

inline constexpr std::string_view space = " \n\r\t";
inline constexpr std::size_t longest_name = 200;

/// Takes the white space at the front of `held`.
inline std::string take_space(std::string& held) {
  const auto n = std::min(held.find_first_not_of(space), held.size());
  auto taken = held.substr(0, n);
  held.erase(0, n);
  return taken;
}

/// Whether `held` could become `mark`, with more text.
inline bool may_become(std::string_view held, std::string_view mark) {
  return held.size() < mark.size() && mark.starts_with(held);
}

}  // namespace mooncaf::held_text
