#pragma once
// Reads the fields of a parsed body, with one complaint for the first that is wrong. For the sources of this
// folder.

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/api/json_body.hpp"
#include "runtime/base/error.hpp"

namespace mooncaf {

class body_reader {
 public:
  using json = body_json;

  explicit body_reader(const json& body) : body_(body) {}

  /// The field, or null if it is absent or null.
  const json* find(const char* name) const {
    const auto i = body_.find(name);
    return i == body_.end() || i->is_null() ? nullptr : &*i;
  }

  void complain(const std::string& field, const std::string& what) {
    if (problem_.empty()) problem_ = field + ": " + what;
  }

  /// Takes over another reader's complaint, if it has one.
  void complain(const body_reader& other) {
    if (problem_.empty()) problem_ = other.problem_;
  }

  template <class T>
  void number(const char* name, T& out, double low, double high) {
    const auto* v = find(name);
    if (!v) return;
    const bool whole = std::is_integral_v<T>;
    if (!v->is_number() ||
        (whole && !v->is_number_integer() && v->get<double>() != std::floor(v->get<double>()))) {
      return complain(name, whole ? "must be an integer" : "must be a number");
    }
    const auto value = v->get<double>();
    if (!(value >= low && value <= high)) {
      return complain(name, "must lie in [" + text(low) + ", " + text(high) + "], got " + v->dump());
    }
    out = static_cast<T>(value);
  }

  void boolean(const char* name, bool& out) {
    const auto* v = find(name);
    if (!v) return;
    if (!v->is_boolean()) return complain(name, "must be true or false");
    out = v->get<bool>();
  }

  void boolean(const char* name, std::optional<bool>& out) {
    bool value = false;
    boolean(name, value);
    if (find(name)) out = value;
  }

  void string(const char* name, std::string& out) {
    const auto* v = find(name);
    if (!v) return;
    if (!v->is_string()) return complain(name, "must be a string");
    out = v->get<std::string>();
  }

  std::optional<error> problem() const {
    if (problem_.empty()) return std::nullopt;
    return error{ec::invalid_argument, problem_};
  }

 private:
  static std::string text(double v) {
    return v == std::floor(v) && std::abs(v) < 1e15 ? std::to_string(static_cast<long long>(v))
                                                    : json(v).dump();
  }

  const json& body_;
  std::string problem_;
};

/// Whether `v` is a number that could be a token's id.
inline bool is_token(const body_json& v) {
  return v.is_number_integer() && v.get<std::int64_t>() >= 0 &&
         v.get<std::int64_t>() <= std::numeric_limits<std::int32_t>::max();
}

/// The ids of a list; nothing if one is none.
inline std::optional<std::vector<std::int32_t>> token_list(const body_json& v) {
  std::vector<std::int32_t> out;
  for (const auto& e : v) {
    if (!is_token(e)) return std::nullopt;
    out.push_back(e.get<std::int32_t>());
  }
  return out;
}

}  // namespace mooncaf
