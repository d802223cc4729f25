#include "runtime/engines/assumed_blocks.hpp"

namespace mooncaf {

void assumed_blocks::used(std::span<const block_key> keys, const block_key& root, held_blocks& held) {
  if (keys.size() > most_) keys = keys.first(most_);
  // From the end on, so that a prompt's first block is the youngest.
  for (std::size_t i = keys.size(); i-- > 0;) {
    const auto known = at_.find(keys[i]);
    if (known != at_.end()) {
      by_age_.splice(by_age_.end(), by_age_, known->second);
      continue;
    }
    held.add({keys[i], i == 0 ? root : keys[i - 1], static_cast<std::uint32_t>(i)});
    at_.emplace(keys[i], by_age_.insert(by_age_.end(), keys[i]));
  }
  for (; by_age_.size() > most_; by_age_.pop_front()) {
    held.drop(by_age_.front());
    at_.erase(by_age_.front());
  }
}

void assumed_blocks::forget(held_blocks& held) {
  by_age_.clear();
  at_.clear();
  held.clear();
}

}  // namespace mooncaf
