#pragma once
// Which objects there are, where their bytes lie, and which of them give way: the whole mind of the object
// store, made of parts that each own what they decide by.
//
//   object_table ── the directory's questions; holds the parts, and nothing of an object
//     object_puts       reserve ► publish: how an object comes to be
//     object_reading    looks, leases, loads from SSD
//     object_recovery   objects that segments and SSDs bring    owns: stripes that wait for others
//     room_maker        which objects make way, and when
//     object_saving     objects that go to SSD, and room there
//     object_life       the life of one object, in every book that knows of it
//     ─────────────────────────────────────────────────────── each of these uses the ones below it
//     object_books, which own the data:
//       object_index       the one map of objects; an object is a `stored_object`: traits, places,
//                          and a slot for each book, which no other book can read
//       tenant_quotas      use and limits; use in the other shards; events
//       segment_space      segments of memory: free, taken, resting, withheld
//       segment_placement  which of them an object lies in
//       disk_space         SSDs: objects that lie there, in which order they leave
//       lone_parts         parts of objects while other parts are away
//       disk_work          objects being saved and loaded
//       object_protection  leases, pins, times to live
//       object_groups      objects that are leased together
//       object_order       next victims: eviction_order, chains
//       object_warmth      reads
//       object_writers     tickets of objects being written

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/memory_boundary.hpp"
#include "storage/objects/table/object_books.hpp"
#include "storage/objects/table/object_journal.hpp"
#include "storage/objects/table/object_life.hpp"
#include "storage/objects/table/object_puts.hpp"
#include "storage/objects/table/object_reading.hpp"
#include "storage/objects/table/object_recovery.hpp"
#include "storage/objects/table/object_saving.hpp"
#include "storage/objects/table/object_table_options.hpp"
#include "storage/objects/table/room_maker.hpp"
#include "storage/objects/terms/object_terms.hpp"

namespace mooncaf {

/// @thread  Not synchronised: one thread owns it. Time comes in and never goes back.
class object_table {
 public:
  using session_id = object_writers::session_id;
  static constexpr std::size_t key_bytes_max = object_puts::key_bytes_max;
  static constexpr std::uint32_t replicas_max = object_puts::replicas_max;
  static constexpr std::uint32_t stripes_max = segment_placement::stripes_max;
  static constexpr std::uint64_t stripe_bytes_min = segment_placement::stripe_bytes_min;

  /// @param journal  may be null; must outlive the table.
  explicit object_table(object_table_options options, object_journal* journal = nullptr);

  /// Memory to place objects in. @returns its id, never used twice, or zero if the name is taken.
  /// @param host  see host_place.hpp: segments that share a part of it can go in one accident.
  std::uint32_t mount(std::string name, std::string host, std::uint64_t bytes);
  /// The same for memory that an earlier directory gave this number. Its objects come by `recover`; not
  /// before the first `reserve`. @returns false if number or name are taken.
  bool remount(std::uint32_t id, std::string name, std::string host, std::uint64_t bytes);
  /// Records in the order of their offsets. Of two values of a key the later one stays, the other one's
  /// memory is freed.
  /// @returns false for a record that overlaps another one, lies outside, or contradicts its replica.
  bool recover(std::uint32_t segment, segment_record&& record, time_point now);
  /// The SSD of the process that mounts `beside`, a segment of memory; nothing is saved there before
  /// `disk_open`. @returns its id, or zero if the name is taken or `beside` not there, or has one.
  std::uint32_t mount_disk(std::string name, std::string host, std::uint64_t bytes, std::uint32_t beside,
                           const disk_policy& policy);
  /// An object that was found on the SSD, or a part of one, which appears when all its parts have come.
  /// @param stale  the object was removed or replaced while the SSD was away. @returns false if it is to be
  /// erased there: it is stale, there is a later value, or there is no room.
  bool recover_on_disk(std::uint32_t disk, segment_record&& record, bool stale, time_point now);
  void disk_open(std::uint32_t disk);
  bool segment_gone(std::uint32_t id) const;
  /// A holder's report on `save` or `load`. An unknown one is ignored: its object is gone.
  void disk_done(std::uint32_t disk, std::uint64_t ticket, bool good, time_point now);
  /// It may hold so many bytes of objects from now on; what is too much leaves it.
  void disk_fits(std::uint32_t disk, std::uint64_t bytes, time_point now);
  /// Sees to it that the object is in memory. @returns ok if it is, busy while it is on its way or room is
  /// made, not_found, no_space.
  store_code load(std::string_view key, time_point now);
  /// Leases an object that is in memory. One that was loaded and has not been found since may lose the lease
  /// to another load, so its reader has to compare the checksum, and ask again if it does not agree.
  void hold(std::string_view key, time_point now);
  /// No more segments will come: stripes without all their companions are given up.
  void end_recovery(time_point now);
  /// The memory is gone, and with it all objects that have no whole replica elsewhere. @cost O(objects)
  void unmount(std::uint32_t segment, time_point now);
  /// @param owner  the tenant to count the taken bytes of; zero: all.
  std::vector<segment_view> segments(std::uint32_t owner = 0) const;
  /// Whether objects are placed in the segment. @returns false if there is none of this name.
  bool drain(std::string_view name, bool draining);

  /// Sees to it that no object lies in so much of the segment, as far as it can now: free runs are taken, and
  /// objects of the segment leave by the usual order (`room_maker`). Memory withheld beyond it is given back.
  /// Nothing of it is given to an object before it is given back. Not before all is recovered.
  /// @param bytes  in whole pages of 4 KiB. @returns the bytes withheld, and the order's state; nothing for
  /// an SSD, or where there is no such segment. The watermarks are of the memory not withheld.
  std::optional<boundary_report> withhold(std::uint32_t segment, std::uint64_t bytes, time_point now);
  /// Runs that were withheld since the last call and still are: whole pages; no object needs their bytes.
  std::vector<withheld_run> take_withheld(std::uint32_t segment);

  /// Room for an object that `publish` will show. Evicts where there is no room.
  /// @param host  of the writer; segments there are taken first, then the nearest.
  /// @param ties  a new value that names no group stays in the old one's. It keeps the old one's place in its
  /// chain; a parent that is not there, or has been written for longer than this object, is ignored.
  /// @param size  ignored for a move.
  /// @error invalid_key, invalid_parameters (no bytes; a policy for moves alone), already_exists (written or
  /// being written; with `policy.replace` or `policy.move` only the latter), no_space, not_found (nothing to
  /// move), quota_exceeded: a tenant's own objects make way before that. Copies beyond the first are left out
  /// where they would not fit into the quota; a move does not count against it. busy: objects that make way
  /// are being saved to SSD; ask again.
  reservation reserve(session_id writer, std::string_view key, std::uint64_t size, const put_policy& policy,
                      std::string_view host, time_point now, const object_ties& ties = {});
  /// Room for an object that its writer names when the bytes are there. It is a small part of the free
  /// memory, and no object makes way for it. Ends by itself after `options.ahead_for`. @error no_space
  reservation reserve_ahead(session_id writer, std::uint64_t size, const put_policy& policy,
                            std::string_view host, time_point now);
  /// Gives such room a key; `publish` is next. @error not_found if there is none, or it is better not used
  /// any more; invalid_key, already_exists: the room stays.
  store_code name(session_id writer, std::uint64_t ticket, std::string_view key, time_point now);
  /// The bytes are in every place. The object that it replaces is gone; its readers may go on until their
  /// lease ends. @error not_found if the ticket is not the writer's, or has ended, or the object to be moved
  /// is gone or has another value.
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

  /// @param force  although clients may be reading the object, or it is pinned hard. Its bytes stay as they
  /// are until the lease has ended. @error not_found, replica_not_ready, has_lease
  store_code remove(std::string_view key, bool force, time_point now);
  /// Removes every published object that `matches` says yes to and `remove` would. @returns how many.
  /// @cost O(objects)
  std::uint64_t remove_if(const std::function<bool(std::string_view)>& matches, bool force, time_point now);
  /// Calls `visit` for every published object until it returns false. @cost O(objects)
  /// @param visit  told how many replicas there are, and how many of them on SSD.
  /// @param in  name of a segment: only objects in it; empty: all.
  void for_each(const std::function<bool(std::string_view, std::uint64_t size, std::size_t replicas,
                                         std::size_t disks)>& visit,
                std::string_view in, time_point now) const;

  /// Keys of objects that are read so often that they should have another replica, each once.
  std::vector<std::string> take_hot();
  /// Gives up the replica of which a part lies in the segment, if it is not the last.
  bool drop_replica(std::string_view key, std::uint32_t segment, time_point now);

  /// The objects that are read most, the hottest first; `hottest_objects_max` at most. Where more are read
  /// about equally often some are missing; an object that has not been read lately is forgotten.
  std::vector<hot_object> hottest(time_point now);

  /// Ends quarantines, pins and objects that outlived their TTL, and evicts above the high watermark.
  void tick(time_point now);

  /// Takes in another shard's message. @pre there are others
  void hear(const shard_message& message, time_point now);
  /// Lets the other shards know of quotas' room that is free again. To be called after some of the functions
  /// above.
  void tell_others();

  object_counts counts() const;
  /// The number by which a tenant is counted: from one on, in the order in which they came up. Zero: no
  /// tenant.
  std::uint32_t owner(std::string_view tenant);
  std::size_t tenants() const noexcept { return books_.quotas.size() - 1; }
  tenant_view tenant(std::uint32_t owner) const;
  object_counts counts_of(std::uint32_t owner) const { return tenant(owner).counts; }
  /// Recounts everything. For tests. @cost O(objects)
  bool consistent() const;

 private:
  bool is_mounted(std::string_view name) const;
  void note_capacity();
  object_view view_of(const stored_object& o) const;

  object_books books_;
  object_life life_;
  object_saving saving_;
  room_maker rooms_;
  object_reading reading_;
  object_puts puts_;
  object_recovery recovery_;
  std::uint32_t next_segment_ = 1;
};

}  // namespace mooncaf
