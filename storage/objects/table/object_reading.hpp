#pragma once
// Looks at objects: a look's effect on its object, and how an object comes back into memory from SSD.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/objects/table/room_maker.hpp"
#include "storage/objects/table/stored_parts.hpp"
#include "storage/objects/terms/store_code.hpp"

namespace mooncaf {

/// @thread  not synchronised.
class object_reading {
 public:
  object_reading(object_books& books, object_life& life, object_saving& saving, room_maker& rooms);

  /// The published object of the key, if its time to live has not ended, and no shard has given up its group.
  stored_object* visible(std::string_view key, time_point now);
  /// The same as a use: the object is leased, with its whole group in all shards.
  stored_object* used(std::string_view key, time_point now);
  /// And read, which may make it one of the hottest. Counts a hit or a miss.
  stored_object* read(std::string_view key, time_point now);
  /// See `object_table::hold`.
  void hold(std::string_view key, time_point now);

  /// Sees to it that the object is in memory. @returns ok if it is, busy while it is on its way or room is
  /// made, not_found, no_space.
  store_code load(std::string_view key, time_point now);
  /// All parts of the load have been reported. @param good  all could be read.
  void end_load(stored_object& o, bool good, time_point now);

 private:
  stored_object* leased_in_all_shards(std::string_view key, time_point now);
  void use(stored_object& o, time_point now);
  std::vector<std::vector<memory_part>> room_to_load(const stored_object& o,
                                                     std::span<const disk_part> replica, bool& coming,
                                                     time_point now);
  std::vector<memory_part> room_beside(const disk_part& part, bool& coming, time_point now);
  bool revoke_one(const victim_wish& from, time_point now);

  object_books& b_;
  object_life& life_;
  object_saving& saving_;
  room_maker& rooms_;
};

}  // namespace mooncaf
