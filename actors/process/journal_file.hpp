#pragma once
// Where the conductor's journal goes: a file of its own, only for its owner, of bounded size.

#include <cstdint>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/sched/journal/encoder.hpp"

namespace mooncaf {

/// Opens `path` (mode 0600) for a journal. A file that is there already becomes `path.old`: it may show why
/// the process before this one ended.
/// @param limit_bytes  a piece that would pass it is not written: the journal ends there, and the log says
/// so.
/// @returns the sink of the pieces; it closes the file when it goes. @error `ec::io_error` with path and
/// errno.
result<journal::sink> open_journal(const std::string& path, std::uint64_t limit_bytes);

}  // namespace mooncaf
