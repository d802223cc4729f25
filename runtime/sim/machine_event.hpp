#pragma once
// Events of one machine at moments that were known before.

#include <cstdint>

namespace mooncaf::sim {

/// The kind of an `event_kind::machine`: the low bits of its stamp; the bits above are a line of the
/// disturbances.
enum class machine_event : std::uint32_t {
  dies,     ///< at random, as a disturbance says
  noticed,  ///< the conductor hears that it is dead
  returns,  ///< it was dead
  serves,   ///< it has started
  drains,   ///< whether it is done is looked at
};
inline constexpr std::uint32_t machine_event_bits = 3;

constexpr std::uint32_t stamp_of(machine_event what, std::uint32_t line = 0) noexcept {
  return line << machine_event_bits | static_cast<std::uint32_t>(what);
}
constexpr machine_event event_in(std::uint32_t stamp) noexcept {
  return static_cast<machine_event>(stamp & ((1u << machine_event_bits) - 1));
}
constexpr std::uint32_t line_in(std::uint32_t stamp) noexcept { return stamp >> machine_event_bits; }

}  // namespace mooncaf::sim
