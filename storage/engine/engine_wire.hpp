#pragma once
// The questions of transfer engines as they travel. Pure.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/units.hpp"

namespace mooncaf {

namespace engine_wire {

enum class op : std::uint8_t {
  describe = 1,  ///< answer: address of the data plane, and its regions (`encode(announcement)`)
  notify = 2,    ///< a word to the program behind the engine; answer: empty
};
struct question {
  op what = op::describe;
  std::string name, text;  ///< notify
  friend bool operator==(const question&, const question&) = default;
};
/// Longest question or answer, without its length before it.
inline constexpr std::uint32_t message_bytes_max = 16 * MiB;

/// Length (32 bits), then the question.
std::vector<std::byte> encode(const question& q);
/// @param payload  behind the length. @returns nothing for a payload that `encode` cannot have made.
std::optional<question> parse(std::span<const std::byte> payload);

}  // namespace engine_wire

}  // namespace mooncaf
