#pragma once
// The common data of one directory's shards, and their messages: how much each tenant has of all of them,
// which groups have members in several, which objects have children elsewhere. And a box of messages for
// each.
//
//   table of shard 0 ──┐  takes of a quota, leases or gives up a group,      ┌── table of shard 1
//                      ├─► counts a child: a few atomics, or a lock that is ◄┤
//   box of shard 0 ◄───┘  held for one look into a map                       └──► box of shard 1

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/units.hpp"
#include "storage/objects/terms/key_shard.hpp"
#include "storage/objects/terms/object_terms.hpp"

namespace mooncaf {

/// A use that counts against a tenant's quota, or is asked of it.
struct quota_use {
  std::uint64_t bytes = 0, objects = 0, disk_bytes = 0;
  /// The part of it that leaves by itself, or was let in beside the quota.
  std::uint64_t passing_bytes = 0, passing_objects = 0;
  friend bool operator==(const quota_use&, const quota_use&) = default;
};

struct shard_message {
  enum class kind : std::uint8_t {
    group_left,  ///< a shard has given up its members of `group`: the others' go, too
    childless,   ///< no other shard has a child of the object with this `hash` any more
    make_room,   ///< of the tenant `owner`, so that `room` fits into its quota
    room_made,   ///< the answer
  };
  kind what{};
  std::uint32_t from = 0;
  std::uint32_t owner = 0;
  std::uint64_t hash = 0;
  quota_use room{};
  bool lossy = false;  ///< although it is not on SSD yet
  bool some = false;   ///< something went, or will when it is saved
  std::string group{};
};

/// A group with members in several shards. One word says until when it is leased and how often it was given
/// up: of a lease and an eviction in two shards one comes first, and the other shard learns of it.
class shared_group {
 public:
  /// How often all of it went that was not pinned softly, and how often that went, too.
  struct times_left {
    std::uint16_t plain = 0, soft = 0;
    friend bool operator==(const times_left&, const times_left&) = default;
  };
  times_left left() const noexcept { return left_in(word_.load()); }
  /// Rounded up by up to 1.1 ms.
  time_point leased_until() const noexcept { return until_in(word_.load()); }
  /// @returns false, and leases nothing, where `known` is out of date.
  bool lease(time_point until, times_left known) noexcept;
  enum class outcome : std::uint8_t { given_up, leased, known_too_little };
  /// @param soft  objects pinned softly go as well. @param known  becomes the new count, if it goes.
  outcome give_up(bool soft, times_left& known, time_point now) noexcept;
  /// A bit for each shard that has a member.
  std::uint32_t shards() const noexcept { return shards_.load(); }

 private:
  friend class shard_commons;
  // 40 bits of time, in units of 2^20 ns: 36 years; 12 of each count.
  static constexpr unsigned count_bits = 12, unit_bits = 20;
  static constexpr std::uint64_t count_mask = (std::uint64_t{1} << count_bits) - 1;
  static times_left left_in(std::uint64_t word) noexcept {
    return {static_cast<std::uint16_t>(word >> count_bits & count_mask),
            static_cast<std::uint16_t>(word & count_mask)};
  }
  static time_point until_in(std::uint64_t word) noexcept {
    return time_point{duration{static_cast<duration::rep>(word >> (2 * count_bits) << unit_bits)}};
  }
  static std::uint64_t word_of(std::uint64_t units, times_left l) noexcept {
    return units << (2 * count_bits) | std::uint64_t{l.plain} << count_bits | l.soft;
  }

  std::atomic<std::uint64_t> word_{0};
  std::atomic<std::uint32_t> shards_{0};
};

/// @thread  Any function from any thread. A shard calls with its own number only.
class shard_commons {
 public:
  /// @param limits  of the tenants that have one, by their number (`object_table::owner`) less one.
  shard_commons(std::uint32_t count, std::vector<tenant_limit> limits);

  std::uint32_t count() const noexcept { return count_; }

  // ---- messages
  void post(std::uint32_t to, shard_message message);
  std::vector<shard_message> take_messages(std::uint32_t shard);
  /// @param wake  called, on any thread, when the first message comes into a box that was empty; null: none.
  void wake_by(std::uint32_t shard, std::function<void()> wake);

  // ---- tenants
  /// Whether the tenant has a quota that the shards have in common.
  bool bounds(std::uint32_t owner) const noexcept { return owner > 0 && owner <= tenants_.size(); }
  /// @pre `bounds(owner)`, as of the others.
  quota_use used(std::uint32_t owner) const noexcept;
  /// Takes all of it if the tenant has no more than its quota then; else nothing.
  bool take(std::uint32_t owner, const quota_use& more) noexcept;
  /// One shard's use has changed; the quota is not asked.
  void change(std::uint32_t owner, const quota_use& was, const quota_use& is) noexcept;
  /// When the tenant's next victim in the shard was used last; `never`: there is none.
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  void say_coldest(std::uint32_t owner, std::uint32_t shard, std::int64_t used_at) noexcept;
  std::int64_t coldest(std::uint32_t owner, std::uint32_t shard) const noexcept;
  /// Bytes that a shard has, mounted to it.
  void note_capacity(std::uint32_t shard, std::uint64_t memory, std::uint64_t disks) noexcept;
  std::uint64_t memory_bytes() const noexcept;
  std::uint64_t disk_bytes() const noexcept;

  // ---- groups
  /// The shard has its first member of the group. @returns the group, which is there until `leave`.
  shared_group& join(std::string_view group, std::uint32_t shard);
  void leave(std::string_view group, std::uint32_t shard);
  std::size_t groups() const;

  // ---- chains; objects by the hashes of their keys
  /// @returns how many objects there are before it in its chain, as far as that is known; zero: nothing is.
  std::uint32_t depth(std::uint64_t object) const;
  /// An object that has a parent. @param elsewhere  the parent is another shard's.
  void enter(std::uint64_t object, std::uint32_t depth, std::uint64_t parent, bool elsewhere);
  /// @returns whether the parent's shard is to hear that this was the last.
  bool leave_chain(std::uint64_t object, std::uint64_t parent, bool elsewhere);
  /// Whether other shards have a child of it; then the last to go is to be told.
  bool is_followed(std::uint64_t object);
  std::size_t links() const;

 private:
  static constexpr std::size_t stripes = 64;
  struct box {
    std::mutex mutex;
    std::vector<shard_message> messages;
    std::function<void()> wake;
  };
  struct tenant {
    tenant_limit limit;
    std::atomic<std::uint64_t> bytes{0}, objects{0}, disk_bytes{0}, passing_bytes{0}, passing_objects{0};
    std::array<std::atomic<std::int64_t>, shards_max> coldest;
  };
  struct text_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return XXH3_64bits(text.data(), text.size());
    }
  };
  struct group_stripe {
    mutable std::mutex mutex;
    std::unordered_map<std::string, std::unique_ptr<shared_group>, text_hash, std::equal_to<>> all;
  };
  struct link {
    std::uint32_t depth = 0, followers = 0;  ///< children in other shards
    std::uint32_t here = 0;                  ///< objects of this hash that have a parent
    bool watched = false;
    bool of_no_use() const noexcept { return followers == 0 && here == 0; }
  };
  struct link_stripe {
    mutable std::mutex mutex;
    std::unordered_map<std::uint64_t, link> all;
  };
  // By the upper half, since the lower chooses a place in the map.
  static std::size_t stripe_of(std::uint64_t hash) noexcept { return hash >> 40 & (stripes - 1); }
  tenant& of(std::uint32_t owner) const noexcept { return *tenants_[owner - 1]; }

  std::uint32_t count_;
  std::array<box, shards_max> boxes_;
  std::vector<std::unique_ptr<tenant>> tenants_;
  std::array<std::atomic<std::uint64_t>, shards_max> memory_{}, disks_{};
  std::array<group_stripe, stripes> groups_;
  std::array<link_stripe, stripes> links_;
};

}  // namespace mooncaf
