#pragma once
// JSON as it goes out. For the sources of this folder.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace mooncaf {

/// Text that is not UTF-8 must not make an answer fail.
inline std::string text_of(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// A server-sent event with a name.
inline std::string named_event(std::string_view name, const nlohmann::ordered_json& value) {
  return "event: " + std::string{name} + "\ndata: " + text_of(value) + "\n\n";
}

}  // namespace mooncaf
