#pragma once
// Which object goes next: `eviction_order`'s numbers, and the objects that they stand for. Chains between
// shards are counted in `shard_commons`; whether an object has children elsewhere is looked up when it is
// about to be given up.

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/objects/table/eviction_order.hpp"
#include "storage/objects/table/shard_commons.hpp"
#include "storage/objects/terms/key_shard.hpp"

namespace mooncaf {

struct stored_object;
class object_index;

/// Which objects are to go, and from where.
struct victim_wish {
  std::optional<std::uint32_t> owner = {};  ///< nothing: every tenant's
  std::uint32_t in = 0;                     ///< segment where room is wanted; zero: any
  /// Where no other object is left, also one that has children in other shards.
  bool at_last = false;
};

/// Invariant: each object from `enter` to `leave` has one handle, and each handle in use one object. An
/// object is entered held: it goes only once it stands as `plain` or `soft`.
/// @thread  not synchronised.
class object_order {
 public:
  using standing = eviction_order::standing;
  class slot {
   public:
    std::uint64_t parent() const noexcept { return parent_; }  ///< hash of its key; zero: none
    time_point counted() const noexcept { return counted_; }   ///< use that was counted last
    time_point used() const noexcept { return used_; }         ///< last, or published

   private:
    friend class object_order;
    eviction_order::handle place_ = eviction_order::none;
    std::uint64_t parent_ = 0;
    time_point counted_{}, used_{};
  };

  /// @param one_use  uses that lie no farther apart are one. @param commons  may be null; must outlive this.
  object_order(eviction_policy rule, duration one_use, shard_place shard, shard_commons* commons)
      : order_(rule), one_use_(one_use), shard_(shard), commons_(commons) {}

  // ---- coming and going
  /// @param parent  the object that it is useless without, where that is in this table; null: it is not.
  /// @param named  hash of the parent's key; zero: none. @param cost  of making it again.
  void enter(stored_object& o, const stored_object* parent, std::uint64_t named, double cost);
  /// An object that an earlier directory knew; its parent may come later (`link_parents`).
  /// @param worth  of a byte. @param depth  objects before it in its chain.
  void enter_again(stored_object& o, std::uint64_t parent, double worth, std::uint32_t depth);
  /// Finds the parents of objects that were entered again, if there are new ones.
  void link_parents(const object_index& all);
  /// @param evicted  to make room for others, so that it may come back.
  void leave(stored_object& o, bool evicted);
  /// `is` takes over the children of `was`, and its place in its chain.
  void hand_over(stored_object& was, stored_object& is);
  void used_like(stored_object& o, const stored_object& other);

  // ---- use
  /// @returns whether it counts, and is not one with the use before.
  bool use(stored_object& o, time_point now);
  void use_beside(stored_object& o);  ///< with another of its group
  void renew(stored_object& o);       ///< the object has another value
  void set_used(stored_object& o, time_point now);

  // ---- leaving
  void stand(stored_object& o, standing s) { order_.stand(place(o), s); }
  standing standing_of(const stored_object& o) const { return order_.standing_of(place(o)); }
  /// The next object of one tenant, or of all; null if all are held or have children.
  stored_object* next(std::optional<std::uint32_t> owner);
  /// Among objects with all their children in other shards the one used longest ago. @cost O(all such
  /// objects)
  stored_object* next_followed(const victim_wish& from) const;
  /// No other shard has a child of it any more.
  void childless(stored_object& o);

  std::uint32_t depth(const stored_object& o) const { return order_.depth(place(o)); }
  double worth(const stored_object& o) const { return order_.worth(place(o)); }
  std::uint64_t regretted() const noexcept { return order_.regretted(); }
  bool consistent() const { return order_.consistent(); }

 private:
  static eviction_order::handle place(const stored_object& o);
  void place_at(stored_object& o, eviction_order::handle h);
  bool is_elsewhere(std::uint64_t key) const;
  bool has_children_elsewhere(eviction_order::handle h);
  void tell_chain(const stored_object& o);
  void leave_chain(const stored_object& o);

  eviction_order order_;
  std::vector<stored_object*> placed_;  ///< by their handle
  bool to_link_ = false;                ///< objects were entered again, and their parents not found yet
  duration one_use_;
  shard_place shard_;
  shard_commons* commons_;                     ///< null: this is the only shard
  std::set<eviction_order::handle> followed_;  ///< held because they have children in other shards
};

}  // namespace mooncaf
