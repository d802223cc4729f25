#pragma once
// One line per event, with structured fields. Debian's CAF has its own logging compiled out.

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/log_level.hpp"

namespace mooncaf {

using log_fields = std::initializer_list<std::pair<std::string_view, std::string_view>>;

/// Sets where the threshold lies and whether lines are `key=value` text or JSON objects. Call once, before
/// threads.
void configure_log(log_level threshold, bool json, std::string_view node_name);

/// Writes one line to standard error: time, level, node, event, fields. Thread-safe.
void log_event(log_level level, std::string_view event, log_fields fields);

inline void log_debug(std::string_view event, log_fields fields = {}) {
  log_event(log_level::debug, event, fields);
}
inline void log_info(std::string_view event, log_fields fields = {}) {
  log_event(log_level::info, event, fields);
}
inline void log_warn(std::string_view event, log_fields fields = {}) {
  log_event(log_level::warn, event, fields);
}
inline void log_error(std::string_view event, log_fields fields = {}) {
  log_event(log_level::error, event, fields);
}

}  // namespace mooncaf
