#pragma once
// Protections of an object for a time: leases, pins, times to live.

#include <cstddef>
#include <set>
#include <utility>

#include "runtime/base/units.hpp"

namespace mooncaf {

struct stored_object;

/// Says when a protection ends; the caller then decides on the object.
///
/// Invariant: objects with a lease hang in one list, in the order in which their leases end, because all
/// leases are of one length and time never goes back. A lease that has ended protects until `lease_ended` has
/// said so.
/// @thread  not synchronised.  @cost of a lease O(1), of a pin or a time to live O(log n)
class object_protection {
 public:
  /// The protection of one object.
  class slot {
   public:
    bool leased() const noexcept { return leased_; }
    time_point lease_end() const noexcept { return lease_end_; }
    bool hard() const noexcept { return hard_; }  ///< leaves only by `remove` with force
    time_point soft_end() const noexcept { return soft_end_; }
    time_point ttl_end() const noexcept { return ttl_end_; }
    bool expired(time_point now) const noexcept { return ttl_end_ <= now; }
    bool has_ttl() const noexcept { return ttl_end_ != time_point::max(); }

   private:
    friend class object_protection;
    time_point lease_end_{}, soft_end_{}, ttl_end_ = time_point::max();
    bool hard_ = false, leased_ = false;
    stored_object *older_ = nullptr, *newer_ = nullptr;  ///< leases
  };

  // ---- leases
  /// @param until  not before the end of any other lease.
  void lease(stored_object& o, time_point until);
  void unlease(stored_object& o);
  /// Sets an end without a lease in the list: of a lease that an earlier directory granted, or that is cut
  /// short.
  void set_lease_end(stored_object& o, time_point end);
  /// The next object with an ended lease; it is taken off the list. Null: none.
  stored_object* lease_ended(time_point now);
  stored_object* oldest_lease() const noexcept { return oldest_; }
  static stored_object* next_lease(const stored_object& o);

  // ---- pins and times to live
  /// @param ttl  zero: no limit.
  static void pin(stored_object& o, bool hard, time_point soft_end, duration ttl, time_point now);
  /// The same pins and time to live as another value, or place, of it.
  static void pin_like(stored_object& o, const stored_object& other);
  /// The object is published: from now on `expired` and `soft_pin_ended` report it when its times have come.
  void watch(stored_object& o, time_point now);
  void forget(stored_object& o);  ///< with its lease
  /// The next object with an ended soft pin; each once. Null: none.
  stored_object* soft_pin_ended(time_point now);
  /// An object past its time to live, as long as it is watched. Null: none.
  stored_object* expired(time_point now) const;

  std::size_t leases() const noexcept { return leases_; }
  /// Walks the list. For tests.
  bool consistent() const;

 private:
  stored_object *oldest_ = nullptr, *newest_ = nullptr;
  std::size_t leases_ = 0;
  std::set<std::pair<time_point, stored_object*>> by_ttl_, by_soft_end_;
};

}  // namespace mooncaf
