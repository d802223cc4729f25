#pragma once
// The processor as a device: always built, no library behind it.

#include <memory>
#include <string>

#include "gpu/device.hpp"

namespace mooncaf {

struct host_device_options {
  unsigned threads = 0;  ///< 0: one per core that this process may use
  /// Plain f32 arithmetic on dequantised weights, one simple loop per operation: slow, and the reference that
  /// the fast path is tested against.
  bool exact = false;
  std::string isa;  ///< "avx512-vnni", "avx2", "portable"; empty: the best that the processor has
};

/// Cores that this process may use.
unsigned usable_cores() noexcept;

/// @error `ec::unsupported` if the named instruction set is unknown or the processor lacks it.
result<std::unique_ptr<device>> try_make_host_device(const host_device_options& options);

/// The same for options that cannot be wrong (no `isa`).
std::unique_ptr<device> make_host_device(const host_device_options& options = {});

}  // namespace mooncaf
