#pragma once
// Copies and moves of replicas, which processes that hold the object carry out: which process is told, and
// each task's outcome.
//
//   pending ── a holder of the object is told ──► processing ── it reports ──► success, failed
//      ▲                                              │
//      └──────────── its connection ends ─────────────┘  a few times, then failed

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "storage/objects/directory/directory_session.hpp"
#include "storage/objects/directory/outbox.hpp"
#include "storage/objects/directory/segment_holders.hpp"
#include "storage/objects/table/object_table.hpp"
#include "storage/objects/terms/store_task.hpp"

namespace mooncaf {

/// Invariant: an order names only targets where the object does not lie yet; one that has none left is done.
/// @thread  not synchronised
class directory_tasks {
 public:
  /// @param incarnation  of the directory: the upper half of its tasks' ids. Table, outbox and holders must
  /// outlive the object.
  directory_tasks(std::uint64_t incarnation, object_table& table, outbox& out, const segment_holders& holders)
      : incarnation_(incarnation), table_(table), out_(out), holders_(holders) {}

  /// Questions of a session. @returns false for one that fits nothing.
  bool create(const directory_session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool query(byte_reader& in, time_point now, store_wire::frame& out) const;
  bool end(byte_reader& in, time_point now, store_wire::frame& out);

  /// The session is gone: its unfinished tasks go to other holders.
  void end_session(std::uint64_t session, time_point now);
  /// Ends tasks that take too long, and begins copies of objects read so often that one host is too few.
  void tick(time_point now);

 private:
  struct task {
    task_order order;
    task_status status = task_status::pending;
    time_point created{}, updated{};
    std::uint64_t assigned_to = 0;
    int attempts = 0;
    std::string message;
  };
  store_code check(const task_order& order, time_point now) const;
  task_id begin(task_order order, time_point now);
  void assign(task& t, time_point now);
  void end(task& t, store_code code, time_point now);
  void copy_for_readers(time_point now);

  const std::uint64_t incarnation_;
  object_table& table_;
  outbox& out_;
  const segment_holders& holders_;
  std::map<std::uint64_t, task> tasks_;  // by the lower half of their ids
  std::deque<std::uint64_t> ended_;
  std::size_t open_ = 0;
  std::uint64_t next_ = 1;
};

/// The segment with this name, of memory or of an SSD.
std::optional<segment_view> segment_named(const object_table& table, std::string_view name);

}  // namespace mooncaf
