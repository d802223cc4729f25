#pragma once
// How a directory that has just begun learns which objects there are: which segments' contents count, and
// when it has heard of all.
//
//   waiting ── a segment of an earlier directory comes ──► gathering ── all companions are here, ──► serving
//      │                                                                or it is late                  ▲
//      └──────────────────────────── none comes in time ───────────────────────────────────────────────┘
//
// Segments and figures can be asked for at any time; questions about objects wait for `serving`. So no client
// sees a part of what there is, and no removal is answered that a segment on its way back would undo.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/objects/directory/disk_book.hpp"
#include "storage/objects/directory/segment_holders.hpp"
#include "storage/objects/wire/store_wire.hpp"

namespace mooncaf {

/// How long a directory waits for segments that an earlier one knew. The first of them that comes names the
/// others.
struct recovery_patience {
  time_point first{};   ///< until then one must have come; else the directory begins empty
  time_point others{};  ///< until then all must have; one that comes later begins empty
};

/// @thread  not synchronised
class directory_recovery {
 public:
  /// @param disks  SSDs that an earlier directory knew.
  directory_recovery(recovery_patience until, const std::vector<std::uint64_t>& disks)
      : until_(until), awaited_disks_(disks.begin(), disks.end()) {}

  /// Whether questions about objects can be answered.
  bool serving() const noexcept { return serving_; }

  /// Whether the contents that a segment brings along count. They do not if a directory that served without
  /// it came after the one that it knew, or if the others know that it was given up.
  /// @param give_up  is called for segments that count no more by this one's knowledge.
  bool admit(const store_wire::former_life& former, const std::function<void(std::uint32_t)>& give_up);
  /// A segment that was admitted begins to announce its contents.
  void begin_announcing(const store_wire::former_life& former);
  /// Whether the contents of an SSD count because those of the segment beside it do: it heard of all changes
  /// that this heard of, whichever directory told them.
  bool is_continued(std::uint32_t beside, std::uint64_t disk) const;
  bool is_announcing(std::uint32_t segment) const { return announcing_.count(segment) != 0; }
  void end_announcing(std::uint32_t segment) { announcing_.erase(segment); }

  /// The contents of the segment count no more, not for later directories either.
  /// @returns false if that was known.
  bool fence(std::uint32_t segment);
  /// The segments that were given up last.
  const std::deque<std::uint32_t>& fenced() const noexcept { return fenced_; }

  /// Whether all segments and SSDs are here that will come.
  bool is_over(time_point now, const segment_holders& holders, const disk_book& disks) const;
  /// Ends it: `serving` from now on. @returns segments that did not come, or have not announced all, in time.
  std::vector<std::uint32_t> end(const segment_holders& holders);

 private:
  const recovery_patience until_;
  bool serving_ = false;
  struct life {
    std::uint64_t served_by = 0;  // the directory that it knew
    std::uint64_t disk = 0;       // see `former_life`
  };
  std::map<std::uint32_t, life> came_back_;  // by segment
  std::set<std::uint32_t> announcing_, expected_;
  std::set<std::uint64_t> awaited_disks_;
  std::deque<std::uint32_t> fenced_;
};

}  // namespace mooncaf
