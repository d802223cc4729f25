#pragma once
// Makes the decisions of a worker's journal again, and tells what the worker did with a request.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/sched/journal/replay.hpp"

namespace mooncaf::journal {

/// What a worker did with a try, in words.
struct worker_line {
  request_id one_try;
  std::string text;
};

/// @param name  of the file, for error texts. @param lines  gets a line for each record; may be null.
/// @returns `requests`: tries that it tells of. @error  As `reader` has them.
result<replay_result> replay_worker(std::string_view bytes, const std::string& name,
                                    std::vector<worker_line>* lines = nullptr);

}  // namespace mooncaf::journal
