#include "runtime/model/stop_matcher.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

namespace {

/// Bytes at the end of `text` that begin a UTF-8 character without completing it.
std::size_t open_character_bytes(std::string_view text) noexcept {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // continuation: look further left for its lead
    const std::size_t needs = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return needs > back ? back : 0;
  }
  return 0;
}

}  // namespace

stop_matcher::stop_matcher(std::span<const std::string> stops) {
  for (const auto& s : stops)
    if (!s.empty()) stops_.push_back(s);
}

/// Length of the shortest tail of `text` that must wait: the longest that begins a stop string, or an open
/// character.
std::size_t stop_matcher::held_bytes(std::string_view text) const noexcept {
  std::size_t held = open_character_bytes(text);
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
    const auto open = open_character_bytes(out);
    held_ = out.substr(out.size() - open);
    out.resize(out.size() - open);
    return out;
  }
  held_ += piece;
  std::size_t best_end = std::string::npos, best_begin = 0;
  const std::string* best = nullptr;
  for (const auto& stop : stops_) {
    const auto begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const auto end = begin + stop.size();
    if (end > best_end || (end == best_end && begin >= best_begin)) continue;
    best_end = end, best_begin = begin, best = &stop;
  }
  if (best != nullptr) {
    stopped_ = true;
    held_.resize(best_begin);
    return std::exchange(held_, {});
  }
  const auto wait = held_bytes(held_);
  std::string out = held_.substr(0, held_.size() - wait);
  held_.erase(0, out.size());
  return out;
}

std::string stop_matcher::finish() { return std::exchange(held_, {}); }

}  // namespace mooncaf
