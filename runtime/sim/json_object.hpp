#pragma once
// JSON that commands print.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace mooncaf::sim {

/// A JSON number with nine digits; NaN and infinity are null, since JSON has no word for them.
inline std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

inline std::string json_text(std::string_view value) {
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + "\"";
}

/// [a,b,…] of texts that are JSON already.
inline std::string json_list(const std::vector<std::string>& values) {
  std::string out = "[";
  for (const auto& v : values) out += (out.size() > 1 ? "," : "") + v;
  return out + "]";
}

/// Members in the order in which they are given. Keys need no escapes.
class json_object {
 public:
  json_object& number(std::string_view key, double value) { return raw(key, json_number(value)); }
  json_object& count(std::string_view key, std::uint64_t value) { return raw(key, std::to_string(value)); }
  json_object& text(std::string_view key, std::string_view value) { return raw(key, json_text(value)); }
  json_object& flag(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
  json_object& raw(std::string_view key, std::string_view value) {
    out_ += (out_.empty() ? "\"" : ",\"") + std::string{key} + "\":" + std::string{value};
    return *this;
  }
  std::string done() const { return "{" + out_ + "}"; }

 private:
  std::string out_;
};

}  // namespace mooncaf::sim
