#pragma once
// How important an event is that is logged.

#include <cstdint>

#include "runtime/base/words.hpp"

namespace mooncaf {

/// From the least important on; `off`, as a threshold, lets none through.
enum class log_level : std::uint8_t { trace, debug, info, warn, error, off };

constexpr auto words_of(log_level) noexcept {
  using enum log_level;
  return words<log_level, 6>{
      {{trace, "trace"}, {debug, "debug"}, {info, "info"}, {warn, "warn"}, {error, "error"}, {off, "off"}}};
}

}  // namespace mooncaf
