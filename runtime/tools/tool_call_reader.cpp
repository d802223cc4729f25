#include "runtime/tools/tool_call_reader.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/tools/held_text.hpp"

namespace mooncaf {

using namespace held_text;

namespace {

constexpr std::string_view hermes_open = "<tool_call>", hermes_close = "</tool_call>";
constexpr std::string_view python_tag = "<|python_tag|>";
constexpr std::string_view mistral_open = "[TOOL_CALLS]", mistral_id = "[CALL_ID]",
                           mistral_arguments = "[ARGS]";
constexpr std::string_view deepseek_open = "<｜tool▁call▁begin｜>", deepseek_arguments = "<｜tool▁sep｜>";
constexpr std::string_view code_fence = "```";
constexpr std::string_view harmony_recipient = "to=functions.", harmony_body = "<|message|>",
                           harmony_close = "<|call|>";

/// The marks that open a call, or a list of calls. DeepSeek's others are brackets around calls, which are not
/// passed on.
constexpr std::string_view hermes_opens[] = {hermes_open}, mistral_opens[] = {mistral_open},
                           granite_opens[] = {"<|tool_call|>", hermes_open}, phi4_opens[] = {"functools["},
                           deepseek_opens[] = {deepseek_open, "<｜tool▁calls▁begin｜>", "<｜tool▁call▁end｜>",
                                               "<｜tool▁calls▁end｜>"},
                           coder_opens[] = {hermes_open, "<function="},
                           harmony_opens[] = {"<|end|><|start|>assistant", "<|start|>assistant",
                                              "<|channel|>"};

std::span<const std::string_view> opens_of(tool_format format) {
  switch (format) {
    case tool_format::hermes:
      return hermes_opens;
    case tool_format::mistral:
      return mistral_opens;
    case tool_format::granite:
      return granite_opens;
    case tool_format::phi4:
      return phi4_opens;
    case tool_format::deepseek:
      return deepseek_opens;
    case tool_format::qwen3_coder:
      return coder_opens;
    case tool_format::gpt_oss:
      return harmony_opens;
    case tool_format::llama3:
    case tool_format::pythonic:
      break;
  }
  return {};
}

/// Bytes at the end of `text` that may be the beginning of `mark`.
std::size_t begun_mark(std::string_view text, std::string_view mark) {
  for (auto n = std::min(text.size(), mark.size() - 1); n > 0; --n) {
    if (text.ends_with(mark.substr(0, n))) return n;
  }
  return 0;
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

const tool_function* tool_call_reader::offered(std::string_view name) const {
  const auto found = std::ranges::find(offered_, name, &tool_function::name);
  return found == offered_.end() ? nullptr : &*found;
}

bool tool_call_reader::read_text(answer_parts& out) {
  if (format_ == tool_format::pythonic) return read_python_start(out);
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
    if (begun_ && opening_ == python_tag && !take_space(held_).empty()) return true;
    if (held_[0] == '{') {
      open_call(std::exchange(opening_, {}));
      return true;
    }
    place_ = place::plain;
    say(out, std::exchange(opening_, {}));
    return true;
  }
  if (format_ == tool_format::gpt_oss && !begun_) {
    // The prompt ends with the head's beginning, so the recipient may come first.
    const auto behind =
        std::string_view{held_}.substr(std::min(held_.find_first_not_of(space), held_.size()));
    if (may_become(behind, harmony_recipient)) return false;
    begun_ = true;
    if (behind.starts_with(harmony_recipient)) return open_head({});
  }
  std::size_t at = std::string::npos, begun = 0;
  std::string_view mark;
  for (const auto one : opens_of(format_)) {
    begun = std::max(begun, begun_mark(held_, one));
    if (const auto found = held_.find(one); found < at) at = found, mark = one;
  }
  if (at != std::string::npos) {
    say(out, held_.substr(0, at));
    held_.erase(0, at + mark.size());
    if (format_ == tool_format::hermes) return open_call(std::string{mark}), true;
    if (format_ == tool_format::gpt_oss) {
      if (mark.starts_with("<|end|>")) space_ += "\n\n";
      return open_head(std::string{mark});
    }
    if (format_ == tool_format::deepseek && mark != deepseek_open) return true;
    if (format_ == tool_format::phi4) {
      in_list_ = true;
      return open_call(std::string{mark}), true;
    }
    opening_ = mark;
    if (format_ == tool_format::qwen3_coder) place_ = mark == hermes_open ? place::tag : place::name;
    else place_ = format_ == tool_format::deepseek ? place::name : place::list;
    return true;
  }
  const auto ready = held_.size() - begun;
  say(out, held_.substr(0, ready));
  held_.erase(0, ready);
  return false;
}

bool tool_call_reader::open_head(std::string opening) {
  opening_ = std::move(opening);
  place_ = place::name;
  return true;
}

/// A message's head names its channel and its recipient; its body is a call's arguments, or content.
bool tool_call_reader::read_head(answer_parts& out) {
  const auto head = std::string_view{held_}.substr(0, longest_name);
  const auto end = head.find(harmony_body);
  if (end == head.npos) {
    if (held_.size() < longest_name) return false;
    place_ = place::text;
    say(out, std::exchange(opening_, {}) + held_.substr(0, longest_name));
    held_.erase(0, longest_name);
    return true;
  }
  const std::string said{head.substr(0, end)};
  held_.erase(0, end + harmony_body.size());
  if (const auto to = said.find(harmony_recipient); to != said.npos) {
    auto name = said.substr(to + harmony_recipient.size());
    name.resize(std::min(name.find_first_of(" \n\r\t<"), name.size()));
    opening_ += said + std::string{harmony_body};
    if (name.empty()) return give_up(out);
    scanner_.begin(std::move(name));
    place_ = place::call;
    return true;
  }
  const bool heard = said.find("analysis") == said.npos && said.find("to=") == said.npos;
  if (!heard) say(out, opening_ + said + std::string{harmony_body});
  opening_.clear();
  place_ = place::text;
  return true;
}

bool tool_call_reader::read_list(answer_parts& out) {
  opening_ += take_space(held_);
  if (held_.empty()) return false;
  if (held_[0] == '[') {
    in_list_ = true;
    held_.erase(0, 1);
    open_call(std::exchange(opening_, {}) + "[");
  } else if (held_[0] == '{') {
    open_call(std::exchange(opening_, {}));
  } else if (format_ == tool_format::mistral) {
    place_ = place::name;
  } else {
    place_ = place::text;
    say(out, std::exchange(opening_, {}));
  }
  return true;
}

/// DeepSeek writes name, separator, arguments; before V3.1 it was "function", separator, name, and the
/// arguments as code.
std::string tool_call_reader::deepseek_name(std::string_view head) {
  const auto trimmed = [](std::string_view s) {
    const auto first = s.find_first_not_of(space);
    return first == s.npos ? std::string_view{} : s.substr(first, s.find_last_not_of(space) - first + 1);
  };
  const auto at = head.find(deepseek_arguments);
  if (at == head.npos) return {};
  const auto behind = trimmed(head.substr(at + deepseek_arguments.size()));
  if (behind.empty()) return std::string{trimmed(head.substr(0, at))};
  return std::string{trimmed(behind.substr(0, behind.find('\n')))};
}

bool tool_call_reader::read_name(answer_parts& out) {
  if (format_ == tool_format::qwen3_coder) return read_function(out);
  if (format_ == tool_format::gpt_oss) return read_head(out);
  const bool deepseek = format_ == tool_format::deepseek;
  // The bound on a name is the same however the text was cut.
  const auto head = std::string_view{held_}.substr(0, longest_name);
  const auto end = std::min(head.find('{'), deepseek ? head.npos : head.find(mistral_arguments));
  if (end == head.npos) {
    if (held_.size() < longest_name) return false;
    place_ = place::plain;
    say(out, std::exchange(opening_, {}));
    return true;
  }
  auto name = deepseek ? deepseek_name(head.substr(0, end))
                       : std::string{head.substr(0, std::min(end, head.find(mistral_id)))};
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
  // No byte behind the name is taken before it is known whether the function was offered.
  while (used < held_.size() && state == call_scanner::state::open && scanner_.known() == was_known)
    state = scanner_.take(held_[used++]);
  held_.erase(0, used);
  bool offered = true;
  if (scanner_.known()) {
    if (!was_known) offered = this->offered(scanner_.name()) != nullptr;
    if (!was_known && offered) {
      space_.clear();
      out.calls.push_back({calls_++, scanner_.name(), {}});
    }
    if (auto more = scanner_.take_arguments(); offered && !more.empty()) {
      if (out.calls.empty()) out.calls.push_back({calls_ - 1, {}, {}});
      out.calls.back().arguments += more;
    }
  }
  if (state == call_scanner::state::open && offered) return scanner_.known() != was_known;
  if (state == call_scanner::state::closed && offered) {
    ++ended_;
    place_ = place::after;
    return true;
  }
  // A call stays one once its name was passed on; else its text is content.
  if (!scanner_.known() || !offered) say(out, opening_ + scanner_.raw());
  const bool more_may_come =
      format_ == tool_format::hermes || format_ == tool_format::deepseek || format_ == tool_format::gpt_oss;
  place_ = more_may_come ? place::text : place::plain;
  return true;
}

/// The mark that closes a call is dropped where it comes; a missing one costs nothing, as models forget it.
bool tool_call_reader::read_after() {
  take_space(held_);
  if (held_.empty()) return false;
  if (format_ == tool_format::hermes || (format_ == tool_format::qwen3_coder && !in_list_)) {
    if (may_become(held_, hermes_close)) return false;
    if (held_.starts_with(hermes_close)) held_.erase(0, hermes_close.size());
    place_ = place::text;
    return true;
  }
  if ((format_ == tool_format::deepseek || format_ == tool_format::gpt_oss) && !in_list_) {
    const auto close = format_ == tool_format::deepseek ? code_fence : harmony_close;
    if (may_become(held_, close)) return false;
    if (held_.starts_with(close)) held_.erase(0, close.size());
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
  if (format_ == tool_format::pythonic && !in_list_) {
    const char mark = held_[0];
    if (mark == ',' || mark == ']') held_.erase(0, 1);
    python_.begin();
    if (mark != ']') place_ = mark == ',' ? place::python : place::plain;
    return true;
  }
  if (in_list_ && held_[0] == ']') {
    held_.erase(0, 1);
    in_list_ = false;
    return true;
  }
  place_ = place::text;
  return true;
}

/// Readers run until one wants more text, so the parts do not depend on how the text was cut.
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
      case place::tag:
        more = read_tag(out);
        break;
      case place::member:
        more = read_member(out);
        break;
      case place::python:
        more = read_python(out);
        break;
      case place::after:
        more = read_after();
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
  // An answer that is held to calls has no content: the rest is the beginning of a call that was cut.
  if (complete() || forced_) return out;
  const bool in_head = place_ == place::name || (place_ == place::call && !scanner_.known());
  if (format_ == tool_format::gpt_oss && in_head && opening_.starts_with("<|")) return out;
  const bool in_call = place_ == place::call && !scanner_.known();
  if (in_call) say(out, opening_ + scanner_.raw());
  else if (place_ == place::list || place_ == place::name || place_ == place::tag) say(out, opening_);
  else if (place_ == place::python) say(out, opening_);
  else if (place_ == place::text && opens_of(format_).empty()) say(out, opening_);
  if (place_ == place::member) held_.clear();  // a parameter that was cut
  say(out, std::exchange(held_, {}));
  if (calls_ == 0) out.content += std::exchange(space_, {});
  return out;
}

}  // namespace mooncaf
