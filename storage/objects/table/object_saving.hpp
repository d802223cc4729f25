#pragma once
// Which objects go from memory to SSD, and which make room for them there.
//
//   in memory ──── saved: by the write policy of the SSD beside it ────► in both
//       ▲                                                         room is wanted │ ▲ loaded: for a reader
//       it └─────────── the SSD makes room for others ───────────── on SSD alone ◄──┘ │
//                                                                     └────────────┘

#include <cstdint>
#include <functional>
#include <map>
#include <span>

#include "runtime/base/units.hpp"
#include "storage/objects/table/disk_space.hpp"
#include "storage/objects/table/object_journal.hpp"
#include "storage/objects/table/stored_parts.hpp"

namespace mooncaf {

struct object_books;
class object_life;
class object_writers;
class disk_work;
class lone_parts;
class object_order;
class segment_space;

/// An SSD's holder works when it is told (`object_journal`), in the order in which it is told. An object that
/// SSDs work on stays in memory meanwhile.
/// @thread  not synchronised.
class object_saving {
 public:
  object_saving(object_books& books, object_life& life);

  /// By the policy of the SSD beside it.
  void save_by_policy(stored_object& o, time_point now);
  /// @param leaving  it leaves memory when it is saved. @returns whether it is on its way.
  bool save(stored_object& o, bool leaving, time_point now);
  /// Whether an object that leaves memory is to be saved first, as far as the SSDs beside a replica can say;
  /// `late` while they save other objects.
  enum class parting { lost, saved, late };
  parting save_to_leave(stored_object& o, time_point now);
  /// All parts of the save have been reported. @param good  all are on SSD.
  void end_save(stored_object& o, bool good, time_point now);
  /// A tenant's objects leave SSDs, lone parts first, until there is enough room.
  void make_way(std::uint32_t owner, const std::function<bool()>& enough, time_point now);
  /// An SSD has so many bytes from now on, or as many more as it holds and may not lose.
  void fit(std::uint32_t disk, std::uint64_t bytes, time_point now);

 private:
  using bytes_by_disk = std::map<std::uint32_t, std::uint64_t>;
  static bytes_by_disk by_disk(std::span<const disk_run> parts);
  std::vector<std::vector<disk_run>> runs(const stored_object& o) const;
  bool take_room(std::uint32_t owner, const bytes_by_disk& bytes, time_point now);
  bool make_room(std::uint32_t disk, std::uint32_t owner, std::uint64_t bytes, time_point now);
  void give_up(disk_space::walk from, const std::function<bool()>& enough, time_point now);

  object_life& life_;
  object_order& order_;
  segment_space& space_;
  disk_space& disks_;
  disk_work& work_;
  lone_parts& lone_;
  object_writers& writers_;
  tenant_quotas& quotas_;
  object_journal* journal_;
};

}  // namespace mooncaf
