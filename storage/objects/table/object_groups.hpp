#pragma once
// Objects that are leased together and leave together. With several shards a group may have members in any of
// them: one word that all shards look at (`shared_group`) says until when it is leased and how often it was
// given up, so both hold in all shards at once; the memory of other shards' members is freed when a message
// has come.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "runtime/base/hash.hpp"
#include "runtime/base/units.hpp"
#include "storage/objects/table/shard_commons.hpp"
#include "storage/objects/terms/key_shard.hpp"

namespace mooncaf {

struct stored_object;

/// Invariant: a group is there for as long as it has a member here, and an object is in one group at most.
/// @thread  not synchronised.
class object_groups {
  struct group;
  struct text_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return XXH3_64bits(text.data(), text.size()); }
  };
  using groups = std::unordered_map<std::string, group, text_hash, std::equal_to<>>;

 public:
  using members = std::unordered_set<stored_object*>;
  class slot {
   public:
    bool any() const noexcept { return in_ != nullptr; }  ///< the object is in a group

   private:
    friend class object_groups;
    groups::value_type* in_ = nullptr;
    time_point held_until_{};  ///< because the group is leased in any shard; zero: it is not held
  };

  /// @param commons  may be null: there is one shard. Must outlive this.
  object_groups(shard_place shard, shard_commons* commons) : shard_(shard), commons_(commons) {}

  void join(stored_object& o, std::string_view name);
  void leave(stored_object& o);
  static std::string_view name(const stored_object& o);  ///< empty: it is in none
  /// @pre it is in one, as of the functions below.
  static const members& with(const stored_object& o);
  /// The group has got a member that nothing has leased yet.
  static void shown(stored_object& o);
  /// A member is used. @returns whether the others are to be leased, too: once for each time.
  static bool first_use_at(stored_object& o, time_point now);

  // ---- other shards
  /// @returns false, and leases nothing, where the shard is to hear the group's news first.
  bool lease(stored_object& o, time_point until);
  /// Until when any shard has leased the group; the start of time if no other shard has members.
  static time_point leased_until(const stored_object& o);
  struct left_elsewhere {
    bool any = false, soft = false;  ///< also objects pinned softly
  };
  /// How much of the group other shards have given up since the last call: members here are to follow.
  static left_elsewhere news(stored_object& o);
  /// Holds an object for as long as its group is leased. @returns whether it is.
  bool holds(stored_object& o, time_point now);
  void end_hold(stored_object& o);
  static bool is_held(const stored_object& o);
  /// An object that is not held any more. Null: none.
  stored_object* hold_ended(time_point now);
  /// The group is to go, in all shards. @param soft  softly pinned members, too. @returns `given_up` also
  /// where no other shard has members.
  shared_group::outcome give_up(stored_object& o, bool soft, time_point now);
  /// A member of the group of this name. Null: there is none here.
  stored_object* any_of(std::string_view name) const;

  std::size_t members_of_all() const;
  std::size_t held() const noexcept { return by_end_.size(); }

 private:
  struct group {
    members all;
    time_point leased_at{};          ///< last lease of all members
    shared_group* shared = nullptr;  ///< with members in other shards
    shared_group::times_left followed{};
  };

  shard_place shard_;
  shard_commons* commons_;
  groups groups_;
  std::set<std::pair<time_point, stored_object*>> by_end_;
};

}  // namespace mooncaf
