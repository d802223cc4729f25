#pragma once
// What commands that read a journal say of its end, and of what is missing in it.

#include <optional>
#include <ostream>
#include <string>

#include "runtime/sched/journal/frames.hpp"
#include "runtime/sim/cli/commands.hpp"

namespace mooncaf::sim {

/// Exit status: what there is of the journal was read, and a part of it is missing.
inline constexpr int part_is_missing = 3;

/// Says what is missing. @returns whether nothing is, as far as the journal tells.
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
