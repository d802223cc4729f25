#pragma once
// Which objects there are, where their bytes lie, and which of them give way: the whole mind of the object
// store.
//
//            reserve                     publish                       remove, eviction, TTL
//   absent ───────────► reserved (nobody sees it) ───────► published ──────────────────────► absent
//                          │ revoke, or its writer is lost                 │ nobody may read or write its
//                          bytes └──► absent, its bytes in quarantine ──►  free  ◄┘ any more: at once, else
//                          at a set time
//
// Of a published object, replicas in memory and on the SSD of a lender come and go (object_tiers.cpp):
//
//   in memory ──── saved: by the write policy of the SSD beside it ────► in both
//       ▲                                                         room is wanted │ ▲ loaded: somebody reads
//       it └─────────── the SSD makes room for others ───────────── on SSD alone ◄──┘ │
//                                                                     └────────────┘

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/units.hpp"
#include "storage/memory_boundary.hpp"
#include "storage/objects/decayed_rate.hpp"
#include "storage/objects/eviction_order.hpp"
#include "storage/objects/key_scope.hpp"
#include "storage/objects/object_journal.hpp"
#include "storage/objects/object_table_options.hpp"
#include "storage/objects/object_terms.hpp"
#include "storage/objects/offset_allocator.hpp"
#include "storage/objects/shard_commons.hpp"

namespace mooncaf {

/// @thread  Not synchronised: one thread owns it. Time comes in and never goes back.
class object_table {
 public:
  using session_id = std::uint64_t;
  static constexpr std::size_t key_bytes_max = 64 * KiB;
  static constexpr std::uint32_t replicas_max = 16;
  /// Of a replica for which no segment has a run that is long enough. None but the last is shorter than that.
  static constexpr std::uint32_t stripes_max = 64;
  static constexpr std::uint64_t stripe_bytes_min = 64 * KiB;
  static constexpr std::size_t hottest_max = 64;

  /// @param journal  may be null; must outlive the table.
  explicit object_table(object_table_options options, object_journal* journal = nullptr);

  /// Memory to place objects in. @returns its id, never used twice, or zero if the name is taken.
  /// @param host  see host_place.hpp: what segments have in common of it one accident takes away together.
  std::uint32_t mount(std::string name, std::string host, std::uint64_t bytes);
  /// The same for memory that an earlier directory gave this number. What lies in it comes by `recover`;
  /// not before the first `reserve`. @returns false if number or name are taken.
  bool remount(std::uint32_t id, std::string name, std::string host, std::uint64_t bytes);
  /// In the order of their offsets. Of two values of a key the later one stays, the other is freed.
  /// @returns false for one that lies over another or outside, or contradicts its replica.
  bool recover(std::uint32_t segment, segment_record&& record, time_point now);
  /// The SSD of the process that lends `beside`, a segment of memory; nothing is saved there before
  /// `disk_open`. @returns its id, or zero if the name is taken or `beside` not there, or has one.
  std::uint32_t mount_disk(std::string name, std::string host, std::uint64_t bytes, std::uint32_t beside,
                           const disk_policy& policy);
  /// An object that was found on the SSD, or a part of one: that is seen when all others have come.
  /// @param stale  somebody removed or replaced it while the SSD was away. @returns false if it is to be
  /// erased there: it is stale, or there is a later one, or no room.
  bool recover_on_disk(std::uint32_t disk, segment_record&& record, bool stale, time_point now);
  void disk_open(std::uint32_t disk);
  bool segment_gone(std::uint32_t id) const { return segments_.count(id) == 0; }
  /// What the lender did of `save` and `load`. Unknown ones are ignored: the object is gone meanwhile.
  void disk_done(std::uint32_t disk, std::uint64_t ticket, bool good, time_point now);
  /// Sees to it that the object is in memory. @returns ok if it is, busy while it is on its way or room is
  /// made, not_found, no_space.
  store_code load(std::string_view key, time_point now);
  /// A lease on what is in memory. What was loaded and not found since may lose it to another load: its
  /// reader has to look whether what he read is right, and else ask again.
  void hold(std::string_view key, time_point now);
  /// All has come that will: stripes of which others are missing are given up.
  void end_recovery(time_point now);
  /// The memory is gone, and with it all objects that have no whole replica elsewhere. @cost O(objects)
  void unmount(std::uint32_t segment, time_point now);
  /// @param owner  whose bytes are counted as taken; zero: everybody's.
  std::vector<segment_view> segments(std::uint32_t owner = 0) const;
  /// Whether objects are placed in the segment. @returns false if there is none of this name.
  bool drain(std::string_view name, bool draining);

  /// Sees to it that no object lies in so much of the segment, as far as it can now: free runs are taken, and
  /// objects of the segment leave by the usual order (object_boundary.cpp). What is withheld beyond it is
  /// given back. Nothing of it is given to an object before it is given back. Not before all is recovered.
  /// @param bytes  in whole pages of 4 KiB. @returns what there is of it, and the order's state; nothing for
  /// an SSD, or where there is no such segment. The watermarks are of what is not withheld.
  std::optional<boundary_report> withhold(std::uint32_t segment, std::uint64_t bytes, time_point now);
  /// What was withheld since the last call, and is still: whole pages, whose bytes nobody wants any more.
  std::vector<withheld_run> take_withheld(std::uint32_t segment);

  /// Room for an object that `publish` will show. Evicts where there is no room.
  /// @param host  of the writer; segments there are taken first, then the nearest.
  /// @param ties  what replaces an object and names no group stays in that one's; it keeps its place in its
  /// chain, and a parent that is not there, or is being written for longer than this one, is none.
  /// @param size  ignored for a move.
  /// @error invalid_key, invalid_parameters (no bytes; what only a move may ask for), already_exists (written
  /// or being written; with `policy.replace` or `policy.move` only the latter), no_space, not_found (nothing
  /// to move), quota_exceeded: a tenant's own objects make way before that. Copies beyond the first are not
  /// made where they would not fit into the quota; what is moved does not count against it. busy: what makes
  /// way is being saved to SSD; ask again.
  reservation reserve(session_id writer, std::string_view key, std::uint64_t size, const put_policy& policy,
                      std::string_view host, time_point now, const object_ties& ties = {});
  /// Room for an object whose key its writer says when the bytes are there (object_ahead.cpp). For the asking
  /// only: a small part of what is free, where nobody has to make way. Ends by itself after
  /// `options.ahead_for`. @error no_space
  reservation reserve_ahead(session_id writer, std::uint64_t size, const put_policy& policy,
                            std::string_view host, time_point now);
  /// Gives such room a key; `publish` is next. @error not_found if there is none, or it is better not used
  /// any more; invalid_key, already_exists: the room stays.
  store_code name(session_id writer, std::uint64_t ticket, std::string_view key, time_point now);
  /// The bytes are in every place. What the object replaces is gone; who reads it may do so until its lease
  /// ends. @error not_found if the ticket is not the writer's, or has ended, or what was to be moved is gone,
  /// or was something else.
  store_code publish(session_id writer, std::uint64_t ticket, std::uint64_t checksum, time_point now);
  /// The put is given up by a writer that writes no more: its bytes are free at once.
  store_code revoke(session_id writer, std::uint64_t ticket, time_point now);
  /// The writer is gone; its reservations end, and their bytes go into quarantine.
  void end_session(session_id writer, time_point now);

  /// Where the bytes are; grants a lease. @error not_found
  object_view find(std::string_view key, time_point now);
  /// Grants a lease. @cost O(1)
  bool exists(std::string_view key, time_point now);
  /// The same without a lease, and not counted as use. @error not_found
  object_view look(std::string_view key, time_point now);

  /// @param force  although somebody may be reading it, or it is pinned hard. Its bytes stay as they are
  /// until the lease has ended. @error not_found, replica_not_ready, has_lease
  store_code remove(std::string_view key, bool force, time_point now);
  /// Removes every published object that `matches` says yes to and `remove` would. @returns how many.
  /// @cost O(objects)
  std::uint64_t remove_if(const std::function<bool(std::string_view)>& matches, bool force, time_point now);
  /// Calls `visit` for every published object until it returns false. @cost O(objects)
  /// @param visit  told how many replicas there are, and how many of them on SSD.
  /// @param in  name of a segment: those alone that lie in it; empty: all.
  void for_each(const std::function<bool(std::string_view, std::uint64_t size, std::size_t replicas,
                                         std::size_t disks)>& visit,
                std::string_view in, time_point now) const;

  /// Keys of objects that are read so often that they should have another replica, each once.
  std::vector<std::string> take_hot();
  /// Gives up the replica of which a part lies in the segment, if it is not the last.
  bool drop_replica(std::string_view key, std::uint32_t segment, time_point now);

  /// The objects that are read most, the hottest first; `hottest_max` at most. Of more that are read about
  /// equally often some are missing, and what nobody has read lately is forgotten.
  std::vector<hot_object> hottest(time_point now);

  /// What time brings: ends quarantines and objects that outlived their TTL, evicts above the high watermark.
  void tick(time_point now);

  /// What another shard says. @pre there are others
  void hear(const shard_message& message, time_point now);
  /// Lets the other shards know what of quotas is free again. To be called after some of the functions above.
  void tell_others();

  object_counts counts() const;
  /// A tenant's number, by which it is counted: from one on, in the order in which they came up. Zero:
  /// nobody's in particular.
  std::uint32_t owner(std::string_view tenant);
  std::size_t tenants() const noexcept { return owners_.size() - 1; }
  tenant_view tenant(std::uint32_t owner) const;
  object_counts counts_of(std::uint32_t owner) const { return tenant(owner).counts; }
  /// Recounts everything. For tests. @cost O(objects)
  bool consistent() const;

 private:
  struct object;
  struct held {  ///< memory that an object takes up
    std::uint32_t segment = 0;
    offset_allocator::extent extent = {};
    std::uint64_t bytes = 0;         ///< of the segment
    std::uint64_t at = 0, size = 0;  ///< of the object
    std::uint64_t ticket = 0;        ///< under which its holder knows it
    std::uint32_t copy = 0;          ///< which of the ticket's replicas
    bool for_readers = false;
    std::uint32_t owner = 0;
    bool rests = false;  ///< is no object's any more
    bool one_with(const held& other) const { return ticket == other.ticket && copy == other.copy; }
  };
  struct stripe {  ///< that a segment brought along; the others may come
    held part;
    segment_record record;
  };
  struct hashed_key {  ///< all that is known of it
    std::uint64_t hash;
  };
  struct text_hash {
    using is_transparent = void;
    // Not noexcept, so that libstdc++ keeps it beside the key: a table that grows reads no key again.
    std::size_t operator()(std::string_view text) const { return XXH3_64bits(text.data(), text.size()); }
    std::size_t operator()(hashed_key key) const noexcept { return key.hash; }
  };
  struct same_key {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const noexcept { return a == b; }
    bool operator()(hashed_key a, std::string_view b) const noexcept { return a.hash == text_hash{}(b); }
    bool operator()(std::string_view a, hashed_key b) const noexcept { return text_hash{}(a) == b.hash; }
  };
  using objects = std::unordered_map<std::string, object, text_hash, same_key>;
  using entry = objects::value_type;
  /// When last used; then what lies deeper in its chain goes first; then what is there for longer.
  using disk_rank = std::tuple<time_point, std::uint32_t, std::uint64_t>;
  using leaving_order = std::set<std::pair<disk_rank, entry*>>;
  /// What lies on one SSD of a replica: bytes that were one after the other in the memory beside it.
  struct disk_part {
    std::uint32_t segment = 0;
    std::uint64_t ticket = 0;        ///< under which its lender knows it
    std::uint64_t at = 0, size = 0;  ///< of the object
    std::uint32_t number = 0;        ///< among its replica's, whose tickets follow each other
    std::uint64_t replica() const { return ticket - number; }
  };
  struct lone_part {  ///< on SSD, of an object of which others are away
    disk_part part;
    segment_record record;
    std::uint32_t owner = 0;
    time_point came{};  ///< the record's times count from then on
  };
  struct disk_state {
    std::uint32_t beside = 0;
    disk_policy policy;
    bool open = false;
    std::uint64_t bytes = 0, used = 0;
    std::uint64_t under_way = 0;  ///< bytes that are being saved
    time_point paused_until{};    ///< it refused to write
    duration pause{};
    std::map<std::uint32_t, leaving_order> order;  ///< in which objects leave it, by owner
    std::map<std::string, std::vector<lone_part>, std::less<>> alone;  ///< by key
    std::size_t objects() const;
  };
  struct withheld_part {
    withheld_run pages;
    std::uint32_t handle = 0;  ///< of its extent
    std::uint64_t room = 0;    ///< bytes of that
  };
  struct segment {
    std::string name, host;  ///< see host_place.hpp
    offset_allocator space;
    /// What objects may have of it.
    std::uint64_t usable_bytes() const noexcept { return space.total_bytes() - withheld_room; }
    bool draining = false;
    std::vector<std::uint64_t> used_by{};   ///< bytes, by owner
    std::uint32_t disk_beside = 0;          ///< of the same lender
    std::vector<withheld_part> withheld{};  ///< in the order in which it was taken
    std::size_t withheld_told = 0;          ///< of these
    std::uint64_t withheld_bytes = 0;       ///< of whole pages of them
    std::uint64_t withheld_room = 0;        ///< all of them
    std::unique_ptr<disk_state> ssd = {};   ///< then `space` is of nothing
    std::uint64_t moved = 0;                ///< bytes read and written that `load` does not know yet
    decayed_rate load{};                    ///< bytes
  };
  /// That others make room in a tenant's quota: one after the other is asked, first who has what was used
  /// longest ago.
  struct request {
    bool pending = false;
    std::uint32_t asked = 0;  ///< a bit for each that had nothing to give
    time_point since{};       ///< the first since there was room; zero: none
    time_point heard{};       ///< last
  };
  struct owner_state {
    std::string name;
    tenant_limit limit;
    std::uint64_t used_bytes = 0, resting_bytes = 0;
    std::uint64_t moving_bytes = 0;  ///< of copies on their way: the object is still where it was, too
    std::uint64_t leaving_bytes = 0, leaving = 0;  ///< bytes of objects that leave memory when they are saved
    std::uint64_t on_disk_alone = 0;               ///< objects; they count against no limit of memory
    std::uint64_t disk_bytes = 0;                  ///< on SSDs, or on their way there
    object_counts seen;                            ///< events, and objects, reserved, object_bytes
    // ---- with other shards
    quota_use told{};  ///< what of this shard's the others count
    bool to_tell = false;
    request to_memory{}, to_disk{};
  };
  struct object_group {
    std::unordered_set<entry*> members;
    time_point leased_at{};          ///< all of them
    shared_group* shared = nullptr;  ///< with members in other shards
    shared_group::times_left followed{};
  };
  using groups = std::unordered_map<std::string, object_group, text_hash, std::equal_to<>>;
  /// Of which the lease ends first; linked through the objects.
  struct lease_order {
    entry *oldest = nullptr, *newest = nullptr;
  };
  struct object {
    std::uint64_t size = 0, checksum = 0, ticket = 0;  ///< ticket: zero once published
    std::uint64_t version = 0;                         ///< the first of its tickets, for ever
    session_id writer = 0;
    std::uint32_t owner = 0;
    std::vector<held> memory;  ///< replica by replica, stripes in their order
    time_point lease_end{}, soft_end{}, ttl_end = time_point::max();
    bool hard = false;
    bool moves = false;  ///< the same object in other places
    bool keeps = false;  ///< beside those where it is, but for the ones in `leaving`
    std::uint32_t leaving = 0;
    bool replaces = false;  ///< not published yet, and what it replaces has its place among `objects_`
    bool ahead = false;     ///< not published, and has no name yet
    bool leased = false;    ///< hangs in `leased_`
    groups::value_type* in = nullptr;
    entry *older = nullptr, *newer = nullptr;
    eviction_order::handle place = eviction_order::none;
    time_point counted{};    ///< use that was counted last
    time_point used{};       ///< last, or published
    time_point hot_again{};  ///< from then on another replica may be asked for
    decayed_rate reads;
    bool among_hottest = false;    ///< its key is in that list
    time_point group_end{};        ///< held until then, because its group is leased; zero: it is not
    std::uint64_t parent = 0;      ///< hash of its key
    std::vector<disk_part> disks;  ///< replica by replica, parts in their order
    std::uint32_t hits = 0;  ///< uses that were counted; on SSD: since it left memory where it was for good
    std::vector<disk_part> work;  ///< of one replica, while it is saved or loaded
    std::uint64_t going = 0;      ///< bytes that leave memory as soon as it is saved; zero: it stays
    bool transient = false;       ///< in memory for as long as its lease alone
    bool revocable = false;       ///< which ends when room is wanted for another load
    bool alone = false;           ///< published, on SSD and not in memory: counted in `on_disk_alone`
    disk_rank rank{};
  };
  struct disk_work {
    entry* of;  ///< null: it is gone meanwhile
    bool loads = false;
    std::vector<held> room = {};                                   ///< where it is loaded to
    enum class outcome { none, good, bad } ended = outcome::none;  ///< others of its object may go on
  };
  struct disk_run {  ///< a part that may be saved
    disk_part part;
    std::span<const held> from;
  };
  enum class way {
    none,    ///< nothing may go
    made,    ///< there is more room
    coming,  ///< there will be, when it is saved
    late,    ///< the disk has more to save than it should
  };

  entry* visible(std::string_view key, time_point now);
  entry* visible_and_leased(std::string_view key, time_point now);
  void use(entry& e, time_point now);
  void lease(entry& e, time_point now);
  void begin_again(entry& e, const segment_record& r, std::uint32_t owner, time_point lease_end,
                   time_point now);
  void join(entry& e, std::string_view name);
  void leave(entry& e);
  void take_place(entry& e, time_point now);
  static void keep_copies(object& was, object& is);
  static void drop_copies(std::vector<held>& memory, std::uint32_t from);
  bool lose_part(object& o, std::uint32_t from, time_point now);
  static bool whole_copies(const object& o);
  bool still_moves(const entry& e, std::uint64_t checksum) const;
  void settle(time_point now);
  void end_protection(entry& e, time_point now);
  void end_ahead(time_point now);
  static bool is_key(std::string_view name);
  void unlease(entry& e);
  void offer(entry& e, time_point now);
  void place_in_chain(entry& e, const object_ties& ties);
  void link_recovered();
  void show(entry& e, time_point now);
  void erase(entry& e, time_point free_at, time_point now, bool evicted = false);
  segment_record record_of(const object& o, const held& part, time_point now) const;
  void give_back(const held& part, time_point free_at, time_point now);
  bool take_in(std::string&& key, const segment_record& record, std::span<const held> parts, time_point now);
  /// Whose objects are to go, and from where.
  struct from_whom {
    std::optional<std::uint32_t> owner = {};  ///< nothing: anybody's
    std::uint32_t in = 0;                     ///< segment where room is wanted; zero: any
    /// Where nothing else is left, also what has children in other shards.
    bool at_last = false;
  };
  way evict_one(time_point now, bool lossy, const from_whom& from);
  bool withhold_some(segment& s, std::uint64_t bytes);
  void give_back_withheld(segment& s, std::uint64_t bytes);
  eviction_order::handle victim(const from_whom& from, time_point now);
  std::uint32_t owner_of(std::string_view name) const;
  bool is_saving(std::uint32_t owner) const;
  way make_way(std::uint32_t owner, std::uint64_t bytes, bool another_object, bool lossy, time_point now);
  bool fits_quota(std::uint32_t owner, const quota_use& room, std::uint64_t leaving_bytes,
                  std::uint64_t leaving) const;
  void keep_quotas(time_point now);
  // ---- object_shards.cpp
  quota_use own_use(std::uint32_t owner) const;
  quota_use use_of_all(std::uint32_t owner) const;
  bool claim(std::uint32_t owner, const quota_use& room);
  bool claim_more(std::uint32_t owner, const quota_use& room, const quota_use& claimed);
  void touch(std::uint32_t owner);
  void tell(std::uint32_t owner);
  std::int64_t coldest_of(std::uint32_t owner);
  void say_coldest();
  bool colder_elsewhere(std::uint32_t owner, time_point now);
  bool ask_others(std::uint32_t owner, const quota_use& room, bool lossy, time_point now);
  void make_room_for_others(const shard_message& asked, time_point now);
  bool follow_group(object_group& g, time_point now);
  void lease_again(const object_group& g, time_point now);
  bool hold_with_group(entry& e, time_point now);
  void forget_group_end(entry& e);
  void settle_groups(time_point now);
  bool give_up_group(groups::value_type& group, bool soft, time_point now);
  time_point protected_until(const object& o) const;
  bool is_elsewhere(std::uint64_t key) const;
  void enter_chain(const entry& e);
  void leave_chain(const entry& e);
  bool is_followed(eviction_order::handle h);
  eviction_order::handle followed_victim(const from_whom& from) const;
  void say_lent();
  bool owners_agree() const;
  void count(std::uint32_t owner, std::uint64_t object_counts::*what, std::uint64_t n = 1);
  /// What counts as somebody's.
  static std::uint64_t bytes_in(const std::vector<held>& memory);
  void count_replica(const held& part, bool more);
  void take(const held& part);
  void untake(const held& part);
  time_point free_after_writing(const object& o, time_point now) const;
  way let_go(entry& e, time_point now, bool lossy);
  bool save(entry& e, bool leaving, time_point now);
  void save_by_policy(entry& e, time_point now);
  struct disk_cursor {  ///< walks through what one owner has on one SSD
    disk_state* disk;
    leaving_order::iterator at, end;
  };
  std::vector<disk_cursor> on_disk_of(std::uint32_t owner);
  void give_up_on_disk(std::vector<disk_cursor> from, const std::function<bool()>& enough, time_point now);
  void make_way_on_disks(std::uint32_t owner, const std::function<bool()>& enough, time_point now);
  bool make_disk_room(disk_state& d, std::uint32_t owner, std::uint64_t bytes, time_point now);
  void charge_disk(disk_state& d, std::uint32_t owner, std::uint64_t bytes, bool more);
  void leave_memory(entry& e, time_point now);
  void count_alone(object& o);
  void promote(object& o);
  void set_going(object& o, std::uint64_t bytes);
  bool revoke_one(const from_whom& from, time_point now);
  std::vector<std::vector<disk_run>> savable(const object& o) const;
  static std::map<std::uint32_t, std::uint64_t> by_disk(std::span<const disk_run> parts);
  bool take_disk_room(std::uint32_t owner, const std::map<std::uint32_t, std::uint64_t>& bytes,
                      time_point now);
  std::vector<held> room_in(std::uint32_t segment, std::uint64_t size);
  std::vector<held> room_beside(const disk_part& part, bool& coming, time_point now);
  std::vector<std::vector<held>> room_to_load(const object& o, std::span<const disk_part> replica,
                                              bool& coming, time_point now);
  static std::vector<std::span<const disk_part>> on_disks(const object& o);
  void rank_on_disks(entry& e);
  void put_on_disk(entry& e, std::span<const disk_part> replica);
  void take_off_disk(entry& e, const disk_part& part);
  void drop_from_disk(entry& e, std::uint64_t replica);
  bool lose_on_disk(entry& e, std::uint32_t id, time_point now);
  void end_work(entry& e, bool given_up, time_point now);
  segment_record record_on_disk(const object& o, const disk_part& part, time_point now) const;
  static void note_writing(disk_state& d, bool good, time_point now);
  void end_save(entry& e, bool good, time_point now);
  void end_load(entry& e, bool good, time_point now);
  void forget_disk(std::uint32_t segment, time_point now);
  bool take_in_on_disk(std::string&& key, const segment_record& record, std::span<const disk_part> parts,
                       time_point now);
  bool join_others(const std::string& key, lone_part&& part, time_point now);
  void leave_alone(const disk_part& part, const std::string& key);
  void forget_alone(std::string_view key, std::uint64_t version = ~std::uint64_t{0});
  void count_out_alone(const disk_state& d);
  void forget_alone_if(const std::function<bool(std::string_view)>& matches);
  void changed(std::string_view key);
  object_view view_of(const object& o) const;
  bool disks_consistent() const;
  struct wish {
    const put_policy& policy;
    std::string_view host;            ///< of the writer
    const std::vector<held>& others;  ///< replicas that this one is to lie apart from
    time_point now;
  };
  std::vector<held> place(std::uint64_t size, const wish& where);
  std::vector<held> place_in_stripes(std::uint64_t size, const wish& where);
  /// @param coming  becomes true if there will be room when others are saved.
  std::vector<held> place_all(std::uint64_t size, std::size_t copies, const wish& where, bool others_make_way,
                              bool& coming);
  std::vector<held> stripe_in_one(std::uint64_t size, const wish& where, bool other_host,
                                  std::string_view host);
  std::vector<held> stripe_among(std::uint64_t size, const std::vector<std::uint32_t>& fitting,
                                 time_point now);
  std::optional<held> try_segment(std::uint32_t id, std::uint64_t size);
  bool fits_beside(const segment& s, std::uint32_t id, const wish& where, bool other_host) const;
  std::vector<std::uint32_t> segments_for(const wish& where, bool other_host, std::string_view host) const;
  std::optional<held> place_in_one(std::uint64_t size, const wish& where);
  std::optional<held> place_among(std::uint64_t size, std::vector<std::uint32_t> fitting, time_point now);
  std::string_view place_of(std::string_view host) const;
  static double suits(segment& s, time_point now);
  void note_read(const object& o);
  std::uint64_t draw(std::uint64_t below);
  void count_read(entry& e, time_point now);
  void note_hottest(entry& e, time_point now);
  std::vector<std::pair<double, entry*>> keep_hottest(time_point now);
  static std::size_t replica_count(const object& o);
  bool drop_replicas(object& o, const std::function<bool(const held&)>& of_these, time_point now);
  std::size_t drop_hot_replicas(const std::function<bool(const object&)>& goes, std::size_t looks,
                                std::size_t most, time_point now);
  void cool_down(time_point now);
  static std::vector<replica_place> places(std::span<const held> memory);

  object_table_options options_;
  object_journal* journal_;
  std::vector<owner_state> owners_ = std::vector<owner_state>(1);
  std::unordered_map<std::string, std::uint32_t, text_hash, std::equal_to<>> owner_numbers_;
  std::map<std::uint32_t, segment> segments_;
  std::vector<std::uint32_t> segment_ids_;
  std::uint32_t next_segment_ = 1;
  objects objects_;
  objects replacing_;  ///< being written under a key that is there
  groups groups_;
  std::unordered_map<std::uint64_t, entry*> tickets_;
  std::unordered_map<session_id, std::unordered_set<std::uint64_t>> tickets_of_;
  std::uint64_t next_ticket_;
  std::deque<std::pair<time_point, std::uint64_t>> ahead_;  // when such room ends, if it has no name by then
  eviction_order order_;
  std::vector<entry*> placed_;  ///< by their handle there
  bool to_link_ = false;        ///< objects were recovered, and their parents not found yet
  lease_order leased_;
  std::set<std::pair<time_point, entry*>> by_ttl_, by_soft_end_;
  std::multimap<time_point, held> quarantine_;
  std::unordered_map<std::string, std::vector<stripe>> stripes_;  ///< by key, until `end_recovery`
  std::vector<std::string> hot_;
  std::vector<std::string> hottest_;  ///< keys of objects that are read often; some may be gone
  decayed_rate coldest_of_them_;      ///< when the list was cut last
  std::deque<std::pair<std::string, std::uint64_t>> hot_replicas_;  ///< key and ticket; some may be gone
  std::map<std::pair<std::uint32_t, std::uint64_t>, disk_work> disk_work_;  ///< by SSD and ticket
  std::uint64_t alone_ = 0;          ///< parts on SSDs of which others are away
  std::uint64_t leaving_bytes_ = 0;  ///< in memory, of what leaves it as soon as it is saved
  std::uint64_t random_;
  std::uint64_t hot_bytes_ = 0;
  std::uint64_t taken_bytes_ = 0;  ///< since the start
  std::uint64_t total_bytes_ = 0, used_bytes_ = 0, object_bytes_ = 0, quarantined_bytes_ = 0;
  object_counts seen_;  ///< of it, the events
  // ---- with other shards
  shard_commons* commons_ = nullptr;    ///< null: this is the only one
  std::vector<std::uint32_t> to_tell_;  ///< owners
  std::set<std::pair<time_point, entry*>> by_group_end_;
  std::set<eviction_order::handle> followed_;  ///< held because they have children there
};

}  // namespace mooncaf
