#pragma once
// Whole messages over a non-blocking socket, for threads that have nothing else to do.

#include <cstddef>
#include <span>

#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// @error `ec::timed_out`, `ec::peer_lost`
result<void> send_whole(int fd, std::span<const std::byte> bytes, time_point until);
result<void> receive_whole(int fd, std::span<std::byte> into, time_point until);

}  // namespace mooncaf
