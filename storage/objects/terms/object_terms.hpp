#pragma once
// The terms of table, wire, holders and clients about objects: policies of puts, places of bytes, a holder's
// records of its segment, answers to finds, and the counts.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/storage_tier.hpp"
#include "runtime/base/units.hpp"
#include "storage/objects/terms/store_code.hpp"
#include "storage/write_policy.hpp"

namespace mooncaf {

/// The limits of a tenant's use of the store.
struct tenant_limit {
  /// Bytes of memory: all replicas, objects that are being written and resting memory included. An object on
  /// SSD alone counts neither as bytes nor as an object.
  std::uint64_t bytes = ~std::uint64_t{0};
  std::uint64_t objects = ~std::uint64_t{0};
  std::uint64_t disk_bytes = ~std::uint64_t{0};  ///< on all SSDs together, writes under way included
};

/// Where a replica lies, or a stripe of it. All places of an object stand in one list, replica by replica; a
/// replica is as many of them as make up the object's size, in the order of its bytes.
struct replica_place {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;  ///< bytes from the segment's start
  std::uint64_t bytes = 0;   ///< so many bytes of the object lie there
  friend bool operator==(const replica_place&, const replica_place&) = default;
};

/// Splits such a list into replicas. Places that make up no whole replica are left out.
std::vector<std::span<const replica_place>> replicas_of(std::span<const replica_place> places,
                                                        std::uint64_t size);

/// Where these bytes of a replica lie.
std::vector<replica_place> part_of(std::span<const replica_place> replica, std::uint64_t at,
                                   std::uint64_t bytes);

/// When the holder of an SSD wants objects to be written to it.
struct disk_policy {
  write_policy write = write_policy::write_back;
  std::uint32_t save_hits = 2;     ///< uses that make an object worth writing (write_through_selective)
  std::uint32_t promote_hits = 2;  ///< uses after which an object that was read from SSD stays in memory
  friend bool operator==(const disk_policy&, const disk_policy&) = default;
};

struct put_policy {
  std::uint32_t replicas = 1;  ///< each on another segment, other hosts first; fewer where there are fewer
  bool hard_pin = false;       ///< leaves only by `remove` with force
  bool soft_pin = false;       ///< leaves after all others
  duration soft_pin_for{};     ///< zero: as the table's options say
  duration ttl{};              ///< not there any more after this long; zero: no limit
  std::vector<std::string> preferred;  ///< names of segments to try first
  bool replace = false;                ///< takes the place of an object of this key, where there is one
  /// Moves an object that is there to other places, `replicas` times, or as often as before if that is zero.
  /// It keeps its size, pins, time to live, group and chain. No object makes way for it.
  bool move = false;
  /// A move that keeps all present replicas but the ones with a part in `leaving`.
  bool keep = false;
  std::string leaving;       ///< name of a segment; empty: none is left
  bool exactly = false;      ///< a move to `preferred` or to nowhere
  bool for_readers = false;  ///< a move that adds a replica which goes when the object is not read any more
  /// Rather loses objects that are not on SSD yet than that the answer is `busy`.
  bool lossy = false;
  /// Whether room may be had for it before its key is known: nothing that counts from the put, or that is
  /// about another object.
  bool may_be_ahead() const noexcept { return !soft_pin && ttl.count() == 0 && !replace && !move && !lossy; }
  friend bool operator==(const put_policy&, const put_policy&) = default;
};

/// How an object depends on others.
struct object_ties {
  std::string_view group = {};   ///< objects of one group are leased and evicted together; empty: none
  std::string_view parent = {};  ///< key of the object without which this one is useless; empty: none
  /// Cost of making the object again, in any unit that all writers agree on; zero: not known.
  double cost = 0;
};

/// One replica, or a stripe of one, as the holder of its memory knows it and tells the next directory.
struct segment_record {
  std::uint64_t ticket = 0;            ///< of the put or the move that made it
  std::uint64_t offset = 0, size = 0;  ///< its place in the segment
  bool published = false;  ///< else a client may still write or read it, and the fields below say nothing
  bool hard_pin = false;
  std::uint64_t version = 0;      ///< of two values of a key the one with the greater number is the later one
  std::uint64_t object_size = 0;  ///< all stripes together
  std::uint64_t at = 0;           ///< where in the object it begins
  std::uint32_t copy = 0;         ///< which of the ticket's replicas
  std::uint64_t checksum = 0;
  duration soft_pin_for{}, ttl{};  ///< from now on; no ttl: zero
  std::uint64_t parent = 0;        ///< hash of its key; zero: none
  std::uint32_t depth = 0;         ///< objects before it in its chain
  float worth = 0;                 ///< cost of making a byte of it again
  std::string key, group;
  std::string tenant;  ///< that is to write it, while it is not published; empty: none
};

struct reservation {
  store_code code = store_code::ok;
  std::uint64_t ticket = 0;  ///< `publish` and `revoke` take it
  std::vector<replica_place> places;
};

struct object_view {
  store_code code = store_code::ok;
  std::uint64_t size = 0;
  std::uint64_t checksum = 0;             ///< xxh3-64 of the whole object
  std::vector<replica_place> places;      ///< in memory
  std::vector<std::uint32_t> disks = {};  ///< segments that have it on SSD; `load` brings it into memory
  std::string loaded = {};                ///< client's: its key, if it was read from SSD for this
  time_point asked{};  ///< client's clock, before the question: a lease that the answer grants began later
  std::vector<replica_place> sound = {};  ///< client's: a replica that was looked at and agrees
};

struct segment_view {
  std::uint32_t id = 0;
  std::string name, host;
  std::uint64_t bytes = 0, free_bytes = 0;
  bool draining = false;  ///< nothing is placed there any more
  storage_tier kind = storage_tier::dram;
  std::uint64_t withheld_bytes = 0;  ///< memory beside these that the holder uses for something else
};

/// Whole pages of a segment in which no object lies, nor will before they are given back.
struct withheld_run {
  std::uint64_t offset = 0, bytes = 0;
  friend bool operator==(const withheld_run&, const withheld_run&) = default;
};

struct object_counts {
  std::uint64_t objects = 0, reserved = 0,
                object_bytes = 0;  ///< bytes of published objects, each counted once
  std::uint64_t total_bytes = 0, free_bytes = 0, quarantined_bytes = 0;
  std::uint64_t hits = 0, misses = 0, evictions = 0, evicted_bytes = 0, expired = 0, lost = 0, refused = 0;
  std::uint64_t recovered = 0;           ///< replicas that segments brought along from an earlier directory
  std::uint64_t moved = 0;               ///< objects that were given other places
  std::uint64_t regretted = 0;           ///< objects that were put again not long after they were evicted
  std::uint64_t warmed = 0, cooled = 0;  ///< replicas that were made for many readers, and given up again
  std::uint64_t replicas = 0;            ///< in memory, including replicas being written
  // ---- SSD; the figures of memory above do not count it
  std::uint64_t disk_objects = 0, disk_bytes = 0, disk_total_bytes = 0;
  std::uint64_t disk_hits = 0;  ///< reads of objects on SSD alone
  std::uint64_t saved = 0, saved_bytes = 0, save_failures = 0;
  std::uint64_t loaded = 0, loaded_bytes = 0, disk_damaged = 0;  ///< damaged: not readable, and dropped
  std::uint64_t promoted = 0;                                    ///< loaded, and used so often that they stay
  std::uint64_t demoted = 0;                                     ///< left memory, and stayed on SSD
  std::uint64_t disk_evictions = 0;
  std::uint64_t disk_recovered = 0,
                disk_stale = 0;  ///< brought along by an SSD; dropped since it may be stale
};

/// Length of the list of objects that are read most.
inline constexpr std::size_t hottest_objects_max = 64;

/// An object of the list of the most read ones.
struct hot_object {
  std::string key;
  std::uint64_t size = 0;
  std::uint32_t replicas = 0;  ///< in memory
  double reads_per_s = 0;      ///< see `decayed_rate`
  friend bool operator==(const hot_object&, const hot_object&) = default;
};

/// A tenant's use and limits, and the outcomes of its questions.
struct tenant_view {
  std::string name;
  tenant_limit limit;
  object_counts counts;  ///< total: its limit; free: what of that is left
};

}  // namespace mooncaf
