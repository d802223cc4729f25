#include "runtime/log/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <nlohmann/json.hpp>

namespace mooncaf {

namespace {

struct log_state {
  std::shared_ptr<spdlog::logger> logger = spdlog::stderr_logger_mt("mooncaf");
  bool json = false;
  std::string node;
};

log_state& state() {
  static log_state instance;
  return instance;
}

spdlog::level::level_enum as_spdlog(log_level level) {
  switch (level) {
    case log_level::trace:
      return spdlog::level::trace;
    case log_level::debug:
      return spdlog::level::debug;
    case log_level::info:
      return spdlog::level::info;
    case log_level::warn:
      return spdlog::level::warn;
    case log_level::error:
      return spdlog::level::err;
    case log_level::off:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

/// Quotes a value that would not read back as one word.
std::string quoted(std::string_view value) {
  const bool plain = !value.empty() && value.find_first_of(" \"=\n\t\\") == std::string_view::npos;
  return plain ? std::string{value}
               : nlohmann::json(std::string{value})
                     .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void configure_log(log_level threshold, bool json, std::string_view node_name) {
  auto& s = state();
  s.json = json;
  s.node = node_name;
  s.logger->set_level(as_spdlog(threshold));
  s.logger->set_pattern(json ? "%v" : "%Y-%m-%dT%H:%M:%S.%e %L %v");
}

void log_event(log_level level, std::string_view event, log_fields fields) {
  auto& s = state();
  const auto at = as_spdlog(level);
  if (!s.logger->should_log(at)) return;
  if (s.json) {
    nlohmann::ordered_json line;
    line["time_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
    line["level"] = std::string{spdlog::level::to_string_view(at).data()};
    line["node"] = s.node;
    line["event"] = std::string{event};
    for (const auto& [key, value] : fields) line[std::string{key}] = std::string{value};
    s.logger->log(at, "{}", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  std::string line = s.node.empty() ? std::string{event} : s.node + " " + std::string{event};
  for (const auto& [key, value] : fields) line += " " + std::string{key} + "=" + quoted(value);
  s.logger->log(at, "{}", line);
}

}  // namespace mooncaf
