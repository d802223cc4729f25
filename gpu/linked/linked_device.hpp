#pragma once
// The processor as a device that is far away: it behaves as a graphics card does to the rest of the system.

#include <memory>

#include "gpu/host/host_device.hpp"
#include "gpu/linked/timed_link.hpp"

namespace mooncaf {

struct linked_device_options {
  host_device_options host;   ///< of the device that computes
  link_speed link;            ///< between the host's memory and the device's
  unsigned copy_engines = 2;  ///< copies under way at once; >= 1. Of two one goes in, one out
};

/// The host device's arithmetic, bit by bit, in memory of its own: KV blocks and activations can be reached
/// through queues alone, calls return before their work is done, and copies take the time of the link while
/// computing goes on. Weights are not counted as its memory, although only its queues read them.
/// @error as `try_make_host_device`; `ec::out_of_space`.
result<std::unique_ptr<device>> make_linked_device(const linked_device_options& options);

}  // namespace mooncaf
