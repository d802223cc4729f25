#pragma once
// Parts of objects on SSDs while their other parts are away. They are kept until the other SSDs are back, the
// key has another value, or room is wanted.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/objects/table/disk_space.hpp"
#include "storage/objects/table/object_journal.hpp"
#include "storage/objects/table/stored_parts.hpp"

namespace mooncaf {

struct lone_part {
  disk_part part;
  segment_record record;
  std::uint32_t owner = 0;
  time_point came{};  ///< the record's times count from then on
};

/// Invariant: each is charged to its SSD and its tenant.
/// @thread  not synchronised.
class lone_parts {
 public:
  /// @param journal  hears of parts to erase; may be null. Both must outlive this.
  lone_parts(disk_space& disks, object_journal* journal) : disks_(disks), journal_(journal) {}

  void add(std::string_view key, lone_part&& one);
  /// The parts that are there of a replica, in the order of the object's bytes.
  std::vector<lone_part> of_replica(std::string_view key, std::uint64_t replica) const;
  /// Takes the part out of the book; the caller decides on its bytes.
  void take_out(std::string_view key, const disk_part& part);
  /// Erases the parts of this value and of earlier ones.
  void forget(std::string_view key, std::uint64_t version = ~std::uint64_t{0});
  void forget_if(const std::function<bool(std::string_view)>& matches);
  /// Erases all of one key that has a part on the SSD. @returns false if there is none.
  bool forget_one_on(std::uint32_t disk);
  /// The SSD is gone, and its parts with it.
  void drop_disk(std::uint32_t disk);
  void each(const std::function<void(const lone_part&)>& visit) const;

 private:
  std::map<std::uint32_t, std::map<std::string, std::vector<lone_part>, std::less<>>> all_;  ///< by SSD, key
  disk_space& disks_;
  object_journal* journal_;
};

}  // namespace mooncaf
