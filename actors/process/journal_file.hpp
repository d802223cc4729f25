#pragma once
// Where the journal of a conductor or a worker goes: a file of its own, only for its owner, of bounded size.

#include <cstdint>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/base/worker_role.hpp"
#include "runtime/sched/journal/sink.hpp"

namespace mooncaf {

/// Opens `path` (mode 0600) for a journal. A file that is there already becomes `path.1`: it may show why
/// the process before this one ended.
/// @param limit_bytes  a piece that would pass it is not written: the journal ends there, and the log says
/// so.
/// @returns the sink of the pieces; it closes the file when it goes. @error `ec::io_error` with path and
/// errno.
result<journal::sink> open_journal(const std::string& path, std::uint64_t limit_bytes);

/// That of a process's worker, beside its conductor's: FILE.prefill0, or FILE.NAME.prefill0.
/// @param name  that the process was given; may be empty. @param number  among its workers of this role.
std::string worker_journal_path(const std::string& journal, const std::string& name, worker_role role,
                                std::uint32_t number);

}  // namespace mooncaf
