#include "runtime/text/special_matcher.hpp"

namespace mooncaf {

void special_matcher::add(std::string_view text, std::int32_t id, bool control) {
  if (text.empty()) return;
  std::uint32_t at = 0;
  for (char c : text) {
    if (const node* next = child(nodes_[at], c)) {
      at = static_cast<std::uint32_t>(next - nodes_.data());
      continue;
    }
    const auto made = static_cast<std::uint32_t>(nodes_.size());
    nodes_[at].children.emplace_back(c, made);
    nodes_.emplace_back();
    at = made;
  }
  nodes_[at].id = id;
  nodes_[at].control = control;
  first_[static_cast<unsigned char>(text.front())] |= control ? 2 : 1;
}

const special_matcher::node* special_matcher::child(const node& at, char c) const noexcept {
  for (const auto& [byte, index] : at.children)
    if (byte == c) return &nodes_[index];
  return nullptr;
}

special_matcher::match special_matcher::longest_at(std::string_view text, std::size_t begin,
                                                   bool control) const noexcept {
  match best;
  const node* at = &nodes_[0];
  for (std::size_t i = begin; i < text.size(); ++i) {
    at = child(*at, text[i]);
    if (!at) break;
    if (at->id >= 0 && (control || !at->control)) best = {begin, i + 1 - begin, at->id};
  }
  return best;
}

special_matcher::match special_matcher::find(std::string_view text, std::size_t from,
                                             bool control) const noexcept {
  const std::uint8_t wanted = control ? 3 : 1;
  for (std::size_t i = from; i < text.size(); ++i) {
    if (!(first_[static_cast<unsigned char>(text[i])] & wanted)) continue;
    if (const match found = longest_at(text, i, control); found.length > 0) return found;
  }
  return {};
}

}  // namespace mooncaf
