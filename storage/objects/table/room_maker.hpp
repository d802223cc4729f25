#pragma once
// Which objects make way, and when: for a put, a tenant's quota or other shards, where a holder takes memory
// back, and above the high watermark.
//
//   a replica that was made for readers, of an object that is not read just now
//     └► the next victim in order, with the objects of its group that are no better protected
//          ├► on SSD already: it leaves memory at once
//          ├► the SSD beside it takes it: it leaves memory when it is saved
//          └► else it is gone

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/memory_boundary.hpp"
#include "storage/objects/table/object_order.hpp"
#include "storage/objects/table/object_table_options.hpp"
#include "storage/objects/table/shard_commons.hpp"
#include "storage/objects/table/stored_parts.hpp"

namespace mooncaf {

struct object_books;
class object_groups;
class object_life;
class object_saving;
class object_index;
class object_warmth;
class disk_work;
class segment_space;
class tenant_quotas;

/// How an attempt to make room ended.
enum class way : std::uint8_t {
  none,    ///< nothing may go
  made,    ///< there is more room
  coming,  ///< there will be, when it is saved
  late,    ///< the SSD has more to save than it should, or another shard makes room: ask again
};

/// @thread  not synchronised.
class room_maker {
 public:
  room_maker(object_books& books, object_life& life, object_saving& saving);

  /// @param lossy  although it is not on SSD yet.
  way evict_one(time_point now, bool lossy, const victim_wish& from);
  /// Room in the tenant's quota, which is taken at once where it is there; its own objects make way for it.
  /// @returns none if that is not enough; `coming` or `late` while this or another shard makes room.
  way make_way(std::uint32_t owner, std::uint64_t bytes, bool another_object, bool lossy, time_point now);
  /// Down to the low watermark, if there is more than the high one.
  void keep_watermarks(time_point now);
  /// Makes objects of tenants go that have more than they may.
  void keep_quotas(time_point now);
  /// Replicas that were made for readers, of objects that are hardly read any more.
  void cool_down(time_point now);
  /// See `object_table::withhold`. @pre the segment is one of memory
  boundary_report withhold(std::uint32_t segment, std::uint64_t bytes, time_point now);

  // ---- other shards
  void make_room_for_others(const shard_message& asked, time_point now);
  /// The others hear when the next victims here were used last.
  void say_coldest();
  /// Other shards have given up its group: so does this one. @returns false if there was nothing to follow.
  /// The object may be gone.
  bool follow_group(stored_object& o, time_point now);

 private:
  stored_object* victim(const victim_wish& from, time_point now);
  bool give_up_group(stored_object& o, bool soft, time_point now);
  way let_go(stored_object& o, time_point now, bool lossy);
  std::int64_t coldest_of(std::uint32_t owner);
  std::size_t drop_made_replicas(const std::function<bool(const stored_object&)>& goes, std::size_t looks,
                                 std::size_t most, time_point now);
  double bytes_at_work() const;

  const object_table_options& options_;
  object_life& life_;
  object_saving& saving_;
  object_index& index_;
  object_groups& groups_;
  object_order& order_;
  object_warmth& warmth_;
  segment_space& space_;
  disk_work& work_;
  tenant_quotas& quotas_;
};

}  // namespace mooncaf
