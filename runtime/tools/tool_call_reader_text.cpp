#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/tools/held_text.hpp"
#include "runtime/tools/tool_call_reader.hpp"

// Calls that are no JSON: Qwen3-Coder's tags, and Python's.

namespace mooncaf {

using namespace held_text;

namespace {

using json = nlohmann::ordered_json;

constexpr std::string_view function_open = "<function=", function_close = "</function>";
constexpr std::string_view parameter_open = "<parameter=", parameter_close = "</parameter>";
constexpr std::string_view python_marks[] = {"<|python_tag|>", "<|python_start|>"};

/// Whether the schema of a function calls a parameter something else than text.
bool is_no_text(const tool_function& function, const std::string& key) {
  const auto schema = json::parse(function.parameters, nullptr, false);
  const auto members = schema.is_object() ? schema.find("properties") : schema.end();
  if (!schema.is_object() || members == schema.end() || !members->is_object()) return false;
  const auto member = members->find(key);
  if (member == members->end() || !member->is_object()) return false;
  const auto type = member->find("type");
  return type == member->end() ? member->contains("anyOf") || member->contains("$ref") : *type != "string";
}

/// A parameter's text as a value.
std::string value_of(const tool_function& function, const std::string& key, std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (is_no_text(function, key)) {
    if (text == "True" || text == "False") return text == "True" ? "true" : "false";
    if (text == "None") return "null";
    const auto read = json::parse(text, nullptr, false);
    if (!read.is_discarded()) return read.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

/// The text that looked like a call is none.
bool tool_call_reader::give_up(answer_parts& out) {
  say(out, std::exchange(opening_, {}));
  place_ = place::text;
  return true;
}

bool tool_call_reader::read_tag(answer_parts& out) {
  opening_ += take_space(held_);
  if (held_.empty() || may_become(held_, function_open)) return false;
  if (!held_.starts_with(function_open)) return give_up(out);
  opening_ += function_open;
  held_.erase(0, function_open.size());
  place_ = place::name;
  return true;
}

bool tool_call_reader::read_function(answer_parts& out) {
  const auto end = std::string_view{held_}.substr(0, longest_name).find('>');
  if (end == std::string_view::npos) return held_.size() < longest_name ? false : give_up(out);
  const auto name = held_.substr(0, end);
  opening_ += name + ">";
  held_.erase(0, end + 1);
  function_ = offered(name);
  if (function_ == nullptr) return give_up(out);
  opening_.clear();
  space_.clear();
  out.calls.push_back({calls_++, name, {}});
  has_members_ = false;
  looked_at_ = 0;
  place_ = place::member;
  return true;
}

bool tool_call_reader::read_member(answer_parts& out) {
  const auto add = [&](const std::string& more) {
    if (out.calls.empty()) out.calls.push_back({calls_ - 1, {}, {}});
    out.calls.back().arguments += more;
  };
  if (looked_at_ == 0) take_space(held_);
  if (held_.empty() || may_become(held_, parameter_open) || may_become(held_, function_close)) return false;
  if (!held_.starts_with(parameter_open)) {
    // The function's end, or text without a place here; as its name was passed on, it stays a call.
    if (held_.starts_with(function_close)) held_.erase(0, function_close.size());
    add(has_members_ ? "}" : "{}");
    ++ended_;
    place_ = place::after;
    return true;
  }
  const auto close = held_.find(parameter_close, looked_at_);
  if (close == std::string::npos) {
    looked_at_ =
        std::max(parameter_open.size(), held_.size() - std::min(held_.size(), parameter_close.size()));
    return false;
  }
  const auto whole = std::string_view{held_}.substr(parameter_open.size(), close - parameter_open.size());
  const auto end = std::min(whole.find('>'), whole.size());
  const std::string key{whole.substr(0, end)};
  const auto text = whole.substr(std::min(end + 1, whole.size()));
  add((has_members_ ? ", " : "{") + json(key).dump(-1, ' ', false, json::error_handler_t::replace) + ": " +
      value_of(*function_, key, text));
  has_members_ = true;
  held_.erase(0, close + parameter_close.size());
  looked_at_ = 0;
  return true;
}

bool tool_call_reader::read_python_start(answer_parts& out) {
  // Calls are all of an answer, or none of it.
  opening_ += take_space(held_);
  if (held_.empty()) return false;
  for (const auto mark : python_marks) {
    if (may_become(held_, mark)) return false;
    if (!held_.starts_with(mark)) continue;
    opening_ += mark;
    held_.erase(0, mark.size());
    return true;
  }
  if (held_[0] != '[') {
    say(out, std::exchange(opening_, {}));
    place_ = place::plain;
    return true;
  }
  opening_ += '[';
  held_.erase(0, 1);
  python_.begin();
  looked_at_ = 0;
  place_ = place::python;
  return true;
}

bool tool_call_reader::read_python(answer_parts& out) {
  if (looked_at_ == 0) opening_ += take_space(held_);
  auto state = python_scanner::state::open;
  while (looked_at_ < held_.size() && state == python_scanner::state::open)
    state = python_.take(held_[looked_at_++]);
  if (state == python_scanner::state::open) return false;
  const auto size = std::exchange(looked_at_, 0), name = python_.name_size();
  const auto call = held_.substr(0, size);
  held_.erase(0, size);
  const auto* function =
      state == python_scanner::state::closed ? offered(std::string_view{call}.substr(0, name)) : nullptr;
  const auto arguments = function != nullptr
                             ? python_arguments(std::string_view{call}.substr(name + 1, size - name - 2))
                             : std::nullopt;
  if (!arguments) {
    say(out, std::exchange(opening_, {}) + call);
    place_ = place::plain;
    return true;
  }
  opening_.clear();
  space_.clear();
  out.calls.push_back({calls_++, function->name, *arguments});
  ++ended_;
  place_ = place::after;
  return true;
}

}  // namespace mooncaf
