#pragma once
// String to token id: the one table that every word of every prompt is looked up in.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/hash.hpp"

namespace mooncaf {

/// Maps strings, kept elsewhere by id, to that id. Open addressing, at most half full, so that a miss (most
/// lookups of unknown words) ends after one or two probes, nearly always without touching a string.
class string_index {
 public:
  /// @param texts  by id; must outlive the index and not move.
  explicit string_index(std::span<const std::string> texts)
      : texts_(texts), slots_(std::bit_ceil(texts.size() * 2 + 2)) {}

  /// @returns the id that holds the same text already, or -1 after adding.
  std::int32_t add(std::int32_t id) {
    const std::string_view text = texts_[static_cast<std::size_t>(id)];
    const std::uint64_t hash = XXH3_64bits(text.data(), text.size());
    std::size_t at = probe(text, hash);
    if (slots_[at].id >= 0) return slots_[at].id;
    slots_[at] = {static_cast<std::uint32_t>(hash >> 32), id};
    return -1;
  }
  /// @returns the id, or -1.
  std::int32_t find(std::string_view text) const noexcept {
    return slots_[probe(text, XXH3_64bits(text.data(), text.size()))].id;
  }

 private:
  struct slot {
    std::uint32_t tag = 0;
    std::int32_t id = -1;
  };
  std::size_t probe(std::string_view text, std::uint64_t hash) const noexcept {
    const std::size_t mask = slots_.size() - 1;
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    std::size_t at = hash & mask;
    while (slots_[at].id >= 0 &&
           (slots_[at].tag != tag || texts_[static_cast<std::size_t>(slots_[at].id)] != text))
      at = (at + 1) & mask;
    return at;
  }

  std::span<const std::string> texts_;
  std::vector<slot> slots_;
};

}  // namespace mooncaf
