#include "runtime/tools/tool_call_reader.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

namespace {

constexpr std::string_view space = " \n\r\t";
constexpr std::string_view hermes_open = "<tool_call>", hermes_close = "</tool_call>";
constexpr std::string_view python_tag = "<|python_tag|>";
constexpr std::string_view mistral_open = "[TOOL_CALLS]", mistral_id = "[CALL_ID]",
                           mistral_arguments = "[ARGS]";
constexpr std::size_t longest_name = 200;

/// Bytes at the end of `text` that may be the beginning of `mark`.
std::size_t begun_mark(std::string_view text, std::string_view mark) {
  for (auto n = std::min(text.size(), mark.size() - 1); n > 0; --n) {
    if (text.ends_with(mark.substr(0, n))) return n;
  }
  return 0;
}

/// Takes the white space at the front of `held`.
std::string take_space(std::string& held) {
  const auto n = std::min(held.find_first_not_of(space), held.size());
  auto taken = held.substr(0, n);
  held.erase(0, n);
  return taken;
}

/// Whether `held` could become `mark`, with more text.
bool may_become(std::string_view held, std::string_view mark) {
  return held.size() < mark.size() && mark.starts_with(held);
}

}  // namespace

void tool_call_reader::say(answer_parts& out, std::string_view content) {
  if (content.empty()) return;
  const auto last = content.find_last_not_of(space);
  if (last == std::string_view::npos) {
    space_ += content;
    return;
  }
  out.content += std::exchange(space_, {});
  out.content += content.substr(0, last + 1);
  space_ = content.substr(last + 1);
}

void tool_call_reader::open_call(std::string opening) {
  opening_ = std::move(opening);
  scanner_.begin({});
  place_ = place::call;
}

bool tool_call_reader::read_text(answer_parts& out) {
  if (format_ == tool_format::llama3) {
    // Calls are all of an answer, or none of it.
    if (!begun_) space_ += take_space(held_);
    if (held_.empty() || may_become(held_, python_tag)) return false;
    if (held_.starts_with(python_tag)) {
      begun_ = true;
      opening_ = python_tag;
      held_.erase(0, python_tag.size());
      take_space(held_);
      return true;
    }
    if (begun_ && opening_ == python_tag) take_space(held_);
    if (held_.empty()) return false;
    if (held_[0] == '{') {
      open_call(std::exchange(opening_, {}));
      return true;
    }
    place_ = place::plain;
    say(out, std::exchange(opening_, {}));
    return true;
  }
  const auto mark = format_ == tool_format::hermes ? hermes_open : mistral_open;
  const auto at = held_.find(mark);
  if (at != std::string::npos) {
    say(out, held_.substr(0, at));
    held_.erase(0, at + mark.size());
    if (format_ == tool_format::hermes) open_call(std::string{mark});
    else place_ = place::list;
    return true;
  }
  const auto ready = held_.size() - begun_mark(held_, mark);
  say(out, held_.substr(0, ready));
  held_.erase(0, ready);
  return false;
}

bool tool_call_reader::read_list(answer_parts& out) {
  take_space(held_);
  if (held_.empty()) return false;
  (void)out;
  opening_ = mistral_open;
  if (held_[0] == '[') {
    in_list_ = true;
    held_.erase(0, 1);
    open_call(std::string{mistral_open} + "[");
  } else if (held_[0] == '{') {
    open_call(std::string{mistral_open});
  } else {
    place_ = place::name;
  }
  return true;
}

bool tool_call_reader::read_name(answer_parts& out) {
  const auto end = std::min(held_.find('{'), held_.find(mistral_arguments));
  if (end == std::string::npos) {
    if (held_.size() < longest_name) return false;
    place_ = place::plain;
    say(out, std::exchange(opening_, {}));
    return true;
  }
  auto name = held_.substr(0, std::min(end, held_.find(mistral_id)));
  while (!name.empty() && space.find(name.back()) != std::string_view::npos) name.pop_back();
  opening_ += held_.substr(0, end);
  held_.erase(0, end);
  if (held_.starts_with(mistral_arguments)) {
    opening_ += mistral_arguments;
    held_.erase(0, mistral_arguments.size());
  }
  if (name.empty()) {
    place_ = place::plain;
    say(out, std::exchange(opening_, {}));
    return true;
  }
  scanner_.begin(std::move(name));
  place_ = place::call;
  return true;
}

bool tool_call_reader::read_call(answer_parts& out) {
  std::size_t used = 0;
  auto state = call_scanner::state::open;
  const bool was_known = scanner_.known();
  while (used < held_.size() && state == call_scanner::state::open) state = scanner_.take(held_[used++]);
  held_.erase(0, used);
  bool offered = true;
  if (scanner_.known()) {
    if (!was_known) offered = std::ranges::find(names_, scanner_.name()) != names_.end();
    if (!was_known && offered) {
      space_.clear();
      out.calls.push_back({calls_++, scanner_.name(), {}});
    }
    if (auto more = scanner_.take_arguments(); offered && !more.empty()) {
      if (out.calls.empty()) out.calls.push_back({calls_ - 1, {}, {}});
      out.calls.back().arguments += more;
    }
  }
  if (state == call_scanner::state::open && offered) return false;
  if (state == call_scanner::state::closed && offered) {
    ++ended_;
    place_ = place::after;
    return true;
  }
  // What was passed on stays a call; the rest is what it is.
  if (!scanner_.known() || !offered) say(out, opening_ + scanner_.raw());
  place_ = format_ == tool_format::hermes ? place::text : place::plain;
  return true;
}

bool tool_call_reader::read_after(answer_parts& out) {
  take_space(held_);
  if (held_.empty()) return false;
  if (format_ == tool_format::hermes) {
    if (may_become(held_, hermes_close)) return false;
    if (held_.starts_with(hermes_close)) held_.erase(0, hermes_close.size());
    place_ = place::text;
    return true;
  }
  if (format_ == tool_format::llama3) {
    if (held_[0] == ';' || held_[0] == ',') {
      held_.erase(0, 1);
      return true;
    }
    if (held_[0] == '{') {
      open_call({});
      return true;
    }
    place_ = place::plain;
    return true;
  }
  if (in_list_ && held_[0] == ',') {
    held_.erase(0, 1);
    open_call({});
    return true;
  }
  if (in_list_ && held_[0] == ']') {
    held_.erase(0, 1);
    in_list_ = false;
    return true;
  }
  place_ = place::text;
  (void)out;
  return true;
}

answer_parts tool_call_reader::feed(std::string_view text) {
  answer_parts out;
  held_ += text;
  bool more = true;
  while (more && !held_.empty() && !complete()) {
    switch (place_) {
      case place::text:
        more = read_text(out);
        break;
      case place::list:
        more = read_list(out);
        break;
      case place::name:
        more = read_name(out);
        break;
      case place::call:
        more = read_call(out);
        break;
      case place::after:
        more = read_after(out);
        break;
      case place::plain:
        say(out, std::exchange(held_, {}));
        break;
    }
  }
  return out;
}

answer_parts tool_call_reader::finish() {
  answer_parts out;
  if (complete()) return out;
  const bool in_call = place_ == place::call && !scanner_.known();
  if (in_call) say(out, opening_ + scanner_.raw());
  else if (place_ == place::list) say(out, mistral_open);
  else if (place_ == place::name) say(out, opening_);
  else if (place_ == place::text && format_ == tool_format::llama3) say(out, opening_);
  say(out, std::exchange(held_, {}));
  if (calls_ == 0) out.content += std::exchange(space_, {});
  return out;
}

}  // namespace mooncaf
