#pragma once
// What a conductor keeps of the last minutes, so that they can be played again (`shadow_core`).

#include <cstdint>

#include "runtime/sched/request_history.hpp"

namespace mooncaf {

struct past_minutes {
  request_history requests;       ///< none unless admission is `adaptive`, or the options say so
  std::uint64_t node_blocks = 0;  ///< in a node's memory, as the latest one told; 0: none did
};

}  // namespace mooncaf
