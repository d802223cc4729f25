#pragma once
// Block keys are the bulk of a journal, and most of them were in it before, in the same order: a prompt that
// comes again, blocks that a shard announces after they were scheduled. Both sides of a journal keep the same
// tables of keys seen lately.

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/base/hash.hpp"

namespace mooncaf::journal {

/// Takes 3 MB from the first key on. @thread  One.
class seen_keys {
 public:
  static constexpr std::uint32_t slots = 1 << 16;
  static constexpr std::uint32_t nowhere = slots;

  /// The key that followed this one the last time; nothing known: zero.
  block_key after(const block_key& key) const noexcept {
    if (follows_.empty()) return {};
    const auto& f = follows_[slot_of(key)];
    return f.first == key ? f.second : block_key{};
  }
  void learn(const block_key& key, const block_key& next) {
    follows_.resize(slots);
    follows_[slot_of(key)] = {key, next};
  }

  /// Where the key is remembered, or `nowhere`.
  std::uint32_t find(const block_key& key) const noexcept {
    return !recent_.empty() && recent_[slot_of(key)] == key ? slot_of(key) : nowhere;
  }
  block_key at(std::uint32_t slot) const noexcept { return recent_.empty() ? block_key{} : recent_[slot]; }
  void remember(const block_key& key) {
    recent_.resize(slots);
    recent_[slot_of(key)] = key;
  }

  block_key latest{};  ///< of the previous list

 private:
  static std::uint32_t slot_of(const block_key& key) noexcept {
    return static_cast<std::uint32_t>(key.low) & (slots - 1);
  }
  std::vector<block_key> recent_;
  std::vector<std::pair<block_key, block_key>> follows_;
};

}  // namespace mooncaf::journal
