#pragma once
// How commands that read a journal report its end, and gaps in it.

#include <optional>
#include <ostream>
#include <string>

#include "runtime/sched/journal/frames.hpp"
#include "runtime/sim/cli/commands.hpp"

namespace mooncaf::sim {

/// Exit status: the journal was read as far as it goes, and a part of it is missing.
inline constexpr int part_is_missing = 3;

/// Prints which part is missing. @returns whether none is, as far as the journal tells.
inline bool tell_state(const console& io, const std::string& name, const std::optional<journal::gap>& missing,
                       journal::ending end) {
  if (missing) {
    io.err << name << ": " << to_string(*missing) << '\n';
  } else if (end == journal::ending::full) {
    io.err << name
           << ": it ends at --journal-limit; what the conductor was told and decided later is not in it\n";
  } else if (end == journal::ending::failed) {
    io.err << name << ": it ends where it could not be written any more; what came later is not in it\n";
  } else {
    return true;
  }
  return false;
}

}  // namespace mooncaf::sim
