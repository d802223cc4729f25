#pragma once
// Where on a node KV blocks and objects of the store may lie.

#include <cstdint>

#include "runtime/base/words.hpp"

namespace mooncaf {

/// The node's memory (L2), its SSD (L3), the memory of its device (L1). The values travel between nodes.
enum class storage_tier : std::uint8_t { dram = 1, ssd = 2, device = 3 };

constexpr auto words_of(storage_tier) noexcept {
  using enum storage_tier;
  return words<storage_tier, 3>{{{dram, "dram"}, {ssd, "ssd"}, {device, "device"}}};
}

}  // namespace mooncaf
