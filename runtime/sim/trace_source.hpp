#pragma once
// Where the requests of a simulation come from: a file, standard input, or memory, one at a time.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/sched/trace_reader.hpp"

namespace mooncaf::sim {

/// A request of the workload. Hash ids name blocks of the trace.
using workload_record = trace_record;

class trace_source {
 public:
  virtual ~trace_source() = default;
  /// Puts the next request into `out`, whose memory is reused. @returns false at the end.
  /// @error  what the reader says: `name:line: reason`.
  virtual result<bool> next(workload_record& out) = 0;
};

/// Replays records that somebody holds, `copies` times one after the other, with fresh block ids per copy.
/// @param records  outlives the source.
std::unique_ptr<trace_source> replay_of(const std::vector<workload_record>& records,
                                        std::uint32_t copies = 1);

/// Reads as it goes: memory holds what one piece of the file contains.
/// @param path  "-" is standard input.
/// @error `ec::io_error` if it cannot be opened.
result<std::unique_ptr<trace_source>> open_trace(const std::string& path, trace_options options);

/// All of it. @error as above.
result<std::vector<workload_record>> load_trace(const std::string& path, const trace_options& options);

}  // namespace mooncaf::sim
