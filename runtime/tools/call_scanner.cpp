#include "runtime/tools/call_scanner.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace mooncaf {

namespace {

constexpr int scanned_depth_max = 200;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/// The text that a JSON string stands for; nothing if it is none.
std::optional<std::string> unquoted(const std::string& said) {
  const auto v = nlohmann::json::parse(said, nullptr, false);
  if (!v.is_string()) return std::nullopt;
  return v.get<std::string>();
}

}  // namespace

void call_scanner::begin(std::string name) {
  *this = {};
  only_arguments_ = !name.empty();
  has_name_ = only_arguments_;
  name_ = std::move(name);
  if (only_arguments_) {
    step_ = step::value;
    member_ = member::arguments;
  }
}

std::string call_scanner::take_arguments() { return known_ ? std::exchange(arguments_, {}) : std::string{}; }

call_scanner::state call_scanner::take(char c) {
  raw_ += c;
  return advance(c);
}

call_scanner::state call_scanner::advance(char c) {
  switch (step_) {
    case step::object:
      if (c == '{') step_ = step::key;
      else if (!is_space(c)) return state::broken;
      return state::open;
    case step::key:
      if (c == '"') key_ = "\"", quoted_ = true, escaped_ = false, step_ = step::in_key;
      else if (c == '}') return close();
      else if (!is_space(c)) return state::broken;
      return state::open;
    case step::in_key:
      key_ += c;
      if (escaped_) escaped_ = false;
      else if (c == '\\') escaped_ = true;
      else if (c == '"') step_ = step::colon;
      return state::open;
    case step::colon: {
      if (c != ':') return is_space(c) ? state::open : state::broken;
      const bool about = key_ == "\"arguments\"" || key_ == "\"parameters\"";
      // The first name and the first arguments count: they may have been passed on by now.
      member_ = member::other;
      if (key_ == "\"name\"" && !has_name_) member_ = member::name;
      if (about && !std::exchange(has_arguments_, true)) member_ = member::arguments;
      step_ = step::value;
      return state::open;
    }
    case step::value:
      return is_space(c) ? state::open : begin_value(c);
    case step::in_string:
    case step::nested:
    case step::scalar:
      return in_value(c);
    case step::next:
      if (c == ',') step_ = step::key;
      else if (c == '}') return close();
      else if (!is_space(c)) return state::broken;
      return state::open;
    case step::over:
      break;
  }
  return state::closed;
}

call_scanner::state call_scanner::begin_value(char c) {
  value_.clear();
  quoted_ = c == '"';
  escaped_ = false;
  depth_ = 0;
  if (only_arguments_ && c != '{') return state::broken;
  if (member_ == member::arguments && c == '{') known_ = has_name_;
  step_ = c == '"' ? step::in_string : c == '{' || c == '[' ? step::nested : step::scalar;
  if (step_ == step::scalar && (c == ',' || c == '}' || c == ']' || c == ':')) return state::broken;
  if (step_ == step::nested) return in_value(c);
  value_ = c;
  return state::open;
}

call_scanner::state call_scanner::in_value(char c) {
  if (step_ == step::scalar) {
    if (c != ',' && c != '}' && !is_space(c)) {
      value_ += c;
      return value_.size() > 64 ? state::broken : state::open;
    }
    const auto ended = end_value();
    return ended == state::open ? advance(c) : ended;
  }
  const bool given_out = step_ == step::nested && member_ == member::arguments;
  if (given_out) arguments_ += c;
  else if (member_ != member::other) value_ += c;
  if (quoted_) {
    if (escaped_) escaped_ = false;
    else if (c == '\\') escaped_ = true;
    else if (c == '"' && (quoted_ = false, step_ == step::in_string)) return end_value();
    return state::open;
  }
  if (c == '"') quoted_ = true;
  if (c == '{' || c == '[') {
    if (++depth_ > scanned_depth_max) return state::broken;
  }
  if ((c == '}' || c == ']') && --depth_ == 0) return end_value();
  return state::open;
}

call_scanner::state call_scanner::end_value() {
  if (member_ == member::name) {
    const auto said = unquoted(value_);
    if (!said || said->empty()) return state::broken;
    name_ = *said;
    has_name_ = true;
    if (!arguments_.empty()) known_ = true;
  } else if (member_ == member::arguments && step_ != step::nested) {
    // Some models write the arguments as the text of an object, or as null.
    const auto said = unquoted(value_);
    if (!said && !nlohmann::json::accept(value_)) return state::broken;
    arguments_ = said ? *said : value_ == "null" ? "{}" : value_;
    known_ = has_name_;
  }
  if (only_arguments_) return close();
  step_ = step::next;
  return state::open;
}

call_scanner::state call_scanner::close() {
  step_ = step::over;
  if (!has_name_) return state::broken;
  if (!known_ && arguments_.empty()) arguments_ = "{}";
  known_ = true;
  return state::closed;
}

}  // namespace mooncaf
