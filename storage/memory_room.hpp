#pragma once
// How much memory a process may use: of the machine, or of the container that it runs in.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace mooncaf {

struct memory_room {
  std::uint64_t total_bytes = 0;      ///< all that there is; a process that touches more is killed
  std::uint64_t available_bytes = 0;  ///< the part that can be had now without swapping
  std::string limited_by;             ///< "the machine", or the cgroup's folder
};

/// Reads /proc/meminfo and the memory limits of the process's cgroups (version 2 and 1).
/// @param root  where /proc and /sys lie; for tests.
/// @error `ec::not_found` where the kernel does not say.
result<memory_room> memory_room_now(const std::string& root = "");

/// Whether an arena of this size is worth starting with. Its pages are taken as blocks come, so that one too
/// large ends in the kernel's OOM killer, hours later and under load.
/// @param option  by which it was asked for.
/// @returns nothing, or a warning: more than is available now.
/// @error `ec::out_of_space`: more than there is.
result<std::string> check_arena_fits(std::string_view option, std::uint64_t arena_bytes,
                                     const memory_room& room);

}  // namespace mooncaf
