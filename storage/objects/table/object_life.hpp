#pragma once
// The life of one object, in all the books that know of it: it appears, is leased, lies in memory, on SSD or
// in both, and leaves. The classes above decide whether it should.

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/objects/table/stored_parts.hpp"
#include "storage/objects/table/tenant_quotas.hpp"
#include "storage/objects/terms/object_terms.hpp"

namespace mooncaf {

struct object_books;
struct stored_object;

/// Invariant: a published object may go (it stands as `plain` or `soft` in the order) exactly if it lies in
/// memory, no lease, pin or group holds it, and no SSD works on it.
/// @thread  not synchronised.
class object_life {
 public:
  /// How an object came into memory, and whether it has earned its place there.
  class slot {
   public:
    /// Uses that were counted; of an object on SSD: since it left a lasting place in memory.
    std::uint32_t hits() const noexcept { return hits_; }
    bool transient() const noexcept {
      return transient_;
    }                                                       ///< the object stays in memory only as long as
                                                            ///< its lease
    bool revocable() const noexcept { return revocable_; }  ///< its lease ends when a load needs the room
    bool alone() const noexcept { return alone_; }          ///< published, on SSD and not in memory

   private:
    friend class object_life;
    std::uint32_t hits_ = 0;
    bool transient_ = false, revocable_ = false, alone_ = false;
  };

  explicit object_life(object_books& books) : b_(books) {}

  // ---- appears and leaves
  /// The object is published: it counts, its times run, and it may go unless something holds it.
  void show(stored_object& o, time_point now);
  /// Forgets the object. Its memory is free at `free_at`, because a client may read or write it until then.
  /// @param evicted  to make room, so that it may come back.
  void erase(stored_object& o, time_point free_at, time_point now, bool evicted = false);

  // ---- is protected
  void lease(stored_object& o, time_point now);
  /// Cut short.
  void end_lease(stored_object& o, time_point now);
  /// Until when a client of any shard may read the object.
  static time_point protected_until(const stored_object& o);
  /// Whether its group holds it.
  bool holds_with_group(stored_object& o, time_point now);
  /// Nothing protects it any more, unless it is pinned hard, or an SSD works on it.
  void offer(stored_object& o, time_point now);
  /// Ends leases, soft pins, and holds of groups when their time is over.
  void settle(time_point now);

  // ---- is used
  void use(stored_object& o, bool counts);
  /// An object that was read from SSD stays in memory once it is used often enough.
  void promote(stored_object& o);
  /// The object was loaded into these parts. It stays there as long as its lease, which ends early when room
  /// is wanted.
  void came_from_disk(stored_object& o, std::span<const memory_part> parts, time_point now);

  // ---- memory
  /// @pre no client reads the object in memory, and it is on SSD.
  void leave_memory(stored_object& o, time_point now);
  /// Gives up the replica of the first part that is one of these, but never the last. @returns whether it
  /// did.
  bool drop_replica(stored_object& o, const std::function<bool(const memory_part&)>& of_these,
                    time_point now);
  /// The segment is going, and with it each replica of which a part lies there. The other parts of such a
  /// replica rest, because a client may read or write them.
  void lose_memory(stored_object& o, std::uint32_t segment, time_point now);
  /// A tenant's object that lies on SSD alone takes up nothing of a quota that bounds memory. To be called
  /// when that may have changed.
  void count_alone(stored_object& o);

  // ---- SSD
  void put_on_disk(stored_object& o, std::span<const disk_part> replica);
  /// The replica alone: others stay.
  void drop_from_disk(stored_object& o, std::uint64_t replica);
  /// An object that is not on SSD any more stays in memory like any other.
  void settle_in_memory(stored_object& o);
  /// SSDs work on it no more, or in vain.
  void end_work(stored_object& o, bool given_up, time_point now);

  // ---- is told of
  segment_record record_of(const stored_object& o, const memory_part& part, time_point now) const;
  segment_record record_on_disk(const stored_object& o, const disk_part& part, time_point now) const;
  /// The key's former value counts no more.
  void changed(std::string_view key);

  /// Recounts each tenant's use; nothing if an object contradicts a book. For tests. @cost O(objects)
  bool consistent(std::vector<tenant_use>& uses) const;

 private:
  void end_protection(stored_object& o, time_point now);
  bool sound(const stored_object& o) const;

  object_books& b_;
};

}  // namespace mooncaf
