#pragma once
// Work that goes on without the client that asked for it: replicas that are copied or moved.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/units.hpp"

namespace mooncaf {

struct task_id {
  std::uint64_t high = 0, low = 0;  ///< the directory's incarnation, and a number of its own
  friend bool operator==(const task_id&, const task_id&) = default;
};

/// Has the numbers that clients of Mooncake Store know.
enum class task_kind : std::uint8_t { copy = 0, move = 1 };
enum class task_status : std::uint8_t { pending = 0, processing = 1, success = 2, failed = 3 };

/// A task of the directory for a process that mounts memory.
struct task_order {
  task_id id;
  task_kind kind = task_kind::copy;
  bool for_readers = false;  ///< the directory's own order, because the object is read so often; the replica
                             ///< goes when it is not
  std::string key;
  std::string source;                ///< a move's: the segment that the object leaves
  std::vector<std::string> targets;  ///< segments; each gets a replica
};

struct task_view {
  task_kind kind = task_kind::copy;
  task_status status = task_status::pending;
  duration created_ago{}, updated_ago{};
  task_id assigned_to;  ///< the process that works on it: the directory's incarnation, and the connection's
                        ///< number
  std::string message;
};

}  // namespace mooncaf
