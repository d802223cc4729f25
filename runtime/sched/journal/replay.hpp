#pragma once
// Makes the calls of a journal again, with the production classes, and compares every answer.

#include <optional>
#include <string>
#include <string_view>

#include "runtime/sched/journal/reader.hpp"

namespace mooncaf::journal {

/// Where a replay came to another answer.
struct difference {
  std::uint64_t record = 0;  ///< its number, from 1
  std::uint64_t offset = 0;  ///< in the file
  std::string call;          ///< "submit of request 17"
  std::string recorded, replayed;
};

struct replay_result {
  std::uint64_t records = 0;
  std::uint64_t requests = 0;   ///< that asked for a place; one that asks again while it waits counts once
  std::uint64_t decisions = 0;  ///< answers that were compared
  std::uint64_t torn_bytes = 0;
  std::uint32_t version = journal_version;  ///< of the journal
  origin from;
  std::optional<gap> missing;  ///< nothing behind it was replayed
  ending end = ending::open;
  std::optional<difference> first;  ///< nothing more was compared after it

  /// Takes over how the reading ended.
  void ends_as(const reader& file) {
    torn_bytes = file.torn_bytes();
    version = file.version();
    from = file.from();
    missing = file.missing();
    end = file.end();
  }
};

/// How a placed request ends.
enum class request_end : std::uint8_t { finished, failed, cancelled, refused_at_decode, withdrawn };

/// Looks on while the calls are made again.
class replay_watcher {
 public:
  virtual ~replay_watcher() = default;
  /// Whether what came is to be remembered (`conductor_core::memory`).
  virtual bool remembers() const { return false; }
  /// A request asks for a place. @param number  from 1
  virtual void asks(std::uint64_t number, const schedule_request& request, time_point now) = 0;
  /// It was not decided about: it waits.
  virtual void waits(const conductor_core& core, const admission_queue& queue, request_id id,
                     time_point now) = 0;
  /// Instances are about to be weighed for a request: `core` is as the decision finds it.
  virtual void weighs(const conductor_core& core, const schedule_request& request, time_point now) = 0;
  virtual void decided(const decision& d, time_point now) = 0;
  virtual void ended(request_id id, request_end how) = 0;
};

/// @param name  of the file, for error texts. @param watcher  may be null. @error  As `reader` has them.
result<replay_result> replay(std::string_view bytes, const std::string& name,
                             replay_watcher* watcher = nullptr);

/// An answer in a line.
std::string describe(const tl::expected<placement, rejection>& answer);

}  // namespace mooncaf::journal
