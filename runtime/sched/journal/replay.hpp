#pragma once
// Makes the calls of a journal again, with the production classes, and compares every answer.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/sched/journal/reader.hpp"

namespace mooncaf::journal {

/// Where a replay came to another answer.
struct difference {
  std::uint64_t record = 0;  ///< its number, from 1
  std::uint64_t offset = 0;  ///< in the file
  std::string call;          ///< "schedule of request 17"
  std::string recorded, replayed;
};

struct replay_result {
  std::uint64_t records = 0;
  std::uint64_t requests = 0;   ///< `schedule` calls
  std::uint64_t decisions = 0;  ///< answers that were compared
  std::uint64_t torn_bytes = 0;
  std::optional<difference> first;  ///< nothing more was compared after it
};

/// Called before each `schedule` call, with its number from 1, while the core is as it was then.
using before_schedule =
    std::function<void(std::uint64_t number, const conductor_core& core, const schedule& call)>;
/// Called with what the replay answered.
using after_schedule = std::function<void(std::uint64_t number, const schedule& call,
                                          const tl::expected<placement, rejection>& answer)>;

/// @param name  of the file, for error texts. @error  What `reader` says.
result<replay_result> replay(std::string_view bytes, const std::string& name,
                             const before_schedule& before = {}, const after_schedule& after = {});

/// An answer in a line.
std::string describe(const tl::expected<placement, rejection>& answer);

}  // namespace mooncaf::journal
