#pragma once
// JSON files that come with a model: parsed with bounds, and read with errors that name file and key.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// Parses an object. Values nested more than 32 deep are left out, so that a hostile text costs a small
/// multiple of its size.
/// @param name  path or label for error texts.
/// @error `ec::corrupt` naming the byte at which the text stops being JSON.
result<nlohmann::json> parse_json_object(std::string_view text, std::string_view name);

/// Reads the fields of one object; the first error sticks, so that reads can be listed one after another. A
/// null counts as absent.
class json_reader {
 public:
  /// @param object  must outlive the reader; anything but an object has no fields.
  /// @param label   before the name of a field in error texts, such as "config.json: ".
  json_reader(const nlohmann::json& object, std::string label) : object_(object), label_(std::move(label)) {}

  bool has(const char* key) const { return find(key) != nullptr; }
  /// Null if absent.
  const nlohmann::json* find(const char* key) const;

  // For an absent field `fallback` holds; without one it is an error. Values outside [low, high] are errors.
  std::uint32_t integer(const char* key, std::uint64_t low, std::uint64_t high,
                        std::optional<std::uint64_t> fallback = {});
  double number(const char* key, double low, double high, std::optional<double> fallback = {});
  bool boolean(const char* key, bool fallback);
  std::string text(const char* key, std::string_view fallback);

  void require(bool condition, ec code, const std::string& what) {
    if (!condition) note({code, label_ + what});
  }
  void note(error e) {
    if (!error_) error_ = std::move(e);
  }
  std::optional<error>& first_error() noexcept { return error_; }

 private:
  void wrong(const char* key, const nlohmann::json& value, const std::string& wanted);

  const nlohmann::json& object_;
  std::string label_;
  std::optional<error> error_;
};

}  // namespace mooncaf
