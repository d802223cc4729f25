#include "runtime/model/stop_matcher.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/utf8.hpp"

namespace mooncaf {

stop_matcher::stop_matcher(std::span<const std::string> stops, bool keeps) : keeps_(keeps) {
  for (const auto& s : stops)
    if (!s.empty()) stops_.push_back(s);
}

/// Length of the shortest tail of `text` that must wait: the longest that begins a stop string, or an open
/// character.
std::size_t stop_matcher::held_bytes(std::string_view text) const noexcept {
  std::size_t held = utf8::incomplete_tail(text);
  for (const auto& stop : stops_) {
    const auto longest = std::min(stop.size() - 1, text.size());
    for (std::size_t n = longest; n > held; --n)
      if (text.substr(text.size() - n) == std::string_view(stop).substr(0, n)) held = n;
  }
  return held;
}

std::string stop_matcher::feed(std::string_view piece, bool may_stop) {
  if (stopped()) return {};
  if (!may_stop) {
    // Nothing seen so far may take part in a stop string; only an open character has to wait.
    std::string out = std::exchange(held_, {});
    out += piece;
    const auto open = utf8::incomplete_tail(out);
    held_ = out.substr(out.size() - open);
    out.resize(out.size() - open);
    return out;
  }
  held_ += piece;
  std::size_t best_end = std::string::npos, best_begin = 0;
  for (const auto& stop : stops_) {
    const auto begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const auto end = begin + stop.size();
    if (end > best_end || (end == best_end && begin >= best_begin)) continue;
    best_end = end, best_begin = begin, matched_ = stop;
  }
  if (best_end != std::string::npos) {
    stopped_ = true;
    held_.resize(keeps_ ? best_end : best_begin);
    return std::exchange(held_, {});
  }
  const auto wait = held_bytes(held_);
  std::string out = held_.substr(0, held_.size() - wait);
  held_.erase(0, out.size());
  return out;
}

std::string stop_matcher::finish() { return std::exchange(held_, {}); }

}  // namespace mooncaf
