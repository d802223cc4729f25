#pragma once
// A seam for tests: acts like a bad link or bad memory, asked once per slice that is about to be moved.

#include <cstddef>
#include <cstdint>

#include "runtime/base/units.hpp"
#include "transport/transfer.hpp"

namespace mooncaf {

struct fault {
  enum class kind : std::uint8_t {
    none,
    delay,    ///< the slice (and its link's queue behind it) waits for `wait`
    drop,     ///< the slice is lost without a trace; only the deadline notices
    corrupt,  ///< one byte of the payload changes after its checksum was computed
    cut,      ///< the link breaks
  };
  kind what = kind::none;
  duration wait{};
};

/// Called on the threads of the transports, concurrently. Null in production.
class fault_injector {
 public:
  virtual ~fault_injector() = default;
  /// @param slice_index  counts the pieces of this transfer after cutting, from 0.
  virtual fault before_slice(transfer_path path, transfer_id id, std::uint32_t slice_index) = 0;
};

}  // namespace mooncaf
