#include "runtime/reasoning/reasoning_reader.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

namespace {

constexpr std::string_view space = " \n\r\t";

/// Bytes at the end of `text` that may be the beginning of `mark`.
std::size_t begun_mark(std::string_view text, std::string_view mark) {
  for (auto n = std::min(text.size(), mark.size() - 1); n > 0; --n) {
    if (text.ends_with(mark.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

reasoning_reader::reasoning_reader(reasoning_form form, thought_state state)
    : marks_(marks_of(form)),
      place_(state == thought_state::open   ? place::inside
             : state == thought_state::over ? place::answer
                                            : place::start) {}

/// Reasoning that is certain; white space at its ends may not be part of it.
void reasoning_reader::think(thought_parts& out, std::string_view text) {
  const auto last = text.find_last_not_of(space);
  if (last == text.npos) {
    if (begun_) space_ += text;
    return;
  }
  if (!begun_) text.remove_prefix(text.find_first_not_of(space));
  begun_ = true;
  const auto end = text.find_last_not_of(space) + 1;
  out.reasoning += std::exchange(space_, {});
  out.reasoning += text.substr(0, end);
  space_ = text.substr(end);
}

/// Takes from `held_`; false if it needs more text.
bool reasoning_reader::step(thought_parts& out) {
  if (place_ == place::start || place_ == place::behind) {
    const auto n = std::min(held_.find_first_not_of(space), held_.size());
    if (place_ == place::start) space_ += held_.substr(0, n);
    held_.erase(0, n);
    if (held_.empty()) return false;
  }
  switch (place_) {
    case place::start:
      if (held_.starts_with(marks_.open)) {
        held_.erase(0, marks_.open.size());
        space_.clear();
        place_ = place::inside;
        return true;
      }
      if (!marks_.direct.empty() && held_.starts_with(marks_.direct)) {
        held_.erase(0, marks_.direct.size());
        space_.clear();
        place_ = place::answer;
        return true;
      }
      if (marks_.open.starts_with(held_) || marks_.direct.starts_with(held_)) return false;
      out.rest += std::exchange(space_, {});
      place_ = place::answer;
      return true;
    case place::inside: {
      auto end = held_.find(marks_.close), closes = marks_.close.size();
      auto begun = begun_mark(held_, marks_.close);
      for (const auto aside : marks_.aside) {
        if (aside.empty()) continue;
        begun = std::max(begun, begun_mark(held_, aside));
        if (const auto at = held_.find(aside); at < end) end = at, closes = marks_.aside_closes;
      }
      const auto sure = end == held_.npos ? held_.size() - begun : end;
      think(out, std::string_view{held_}.substr(0, sure));
      held_.erase(0, end == held_.npos ? sure : end + closes);
      if (end == held_.npos) return false;
      space_.clear();
      place_ = place::behind;
      return true;
    }
    case place::behind:
      place_ = place::answer;
      return true;
    case place::answer:
      out.rest += std::exchange(held_, {});
      return false;
  }
  return false;
}

thought_parts reasoning_reader::feed(std::string_view text) {
  thought_parts out;
  held_ += text;
  while (!held_.empty() && step(out)) {
  }
  return out;
}

thought_parts reasoning_reader::finish() {
  thought_parts out;
  if (place_ == place::inside) think(out, held_);
  else if (place_ != place::behind) out.rest = space_ + held_;
  held_.clear();
  space_.clear();
  return out;
}

}  // namespace mooncaf
