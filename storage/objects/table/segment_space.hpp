#pragma once
// The memory that holders have mounted, segment by segment, and the state of every byte of it:
//
//          allocate, take                                  give_back at a later time
//   free ──────────────────► an object's (or room for one) ─────────────────────────► rests
//   ▲ │                            │ give_back at once                                  │ its time has come
//   │ └──── withhold_run ──► withheld: the holder uses it for something else            │
//   └──────────────────────◄───────┴───────────────────────────────────────────◄───────┘

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/objects/table/decayed_rate.hpp"
#include "storage/objects/table/object_journal.hpp"
#include "storage/objects/table/stored_parts.hpp"
#include "storage/objects/table/tenant_quotas.hpp"
#include "storage/offset_allocator.hpp"

namespace mooncaf {

/// Invariant: a segment's usable bytes are free, or taken and counted with the tenant that has them
/// (`tenant_use::used_bytes`). Withheld bytes count with neither.
/// @thread  not synchronised. Segments are named by their number; @pre of every function that takes one: the
/// segment is mounted, unless the function says otherwise.
class segment_space {
 public:
  /// @param journal  hears of freed memory; may be null. Both must outlive this.
  segment_space(tenant_quotas& quotas, object_journal* journal) : quotas_(quotas), journal_(journal) {}

  // ---- segments
  void mount(std::uint32_t id, std::string name, std::string host, std::uint64_t bytes);
  /// With all that rests in it. @pre no object has a part of it
  void unmount(std::uint32_t id);
  bool has(std::uint32_t id) const { return segments_.count(id) != 0; }
  std::uint32_t named(std::string_view name) const;  ///< zero: none
  const std::vector<std::uint32_t>& ids() const noexcept {
    return ids_;
  }  ///< in the order in which they
     ///< were mounted
  const std::string& host(std::uint32_t id) const { return segments_.at(id).host; }  ///< see host_place.hpp
  const std::string& name(std::uint32_t id) const { return segments_.at(id).name; }
  /// The host of the first segment that is on the same one as `host`, or `host` itself where there is none.
  std::string_view host_like(std::string_view host) const;
  bool draining(std::uint32_t id) const { return segments_.at(id).draining; }
  void drain(std::uint32_t id, bool draining) { segments_.at(id).draining = draining; }
  /// The SSD of the same holder; zero: none, also of a segment that is not there.
  std::uint32_t ssd_beside(std::uint32_t id) const;
  void set_ssd_beside(std::uint32_t id, std::uint32_t ssd) { segments_.at(id).ssd_beside = ssd; }
  /// @param owner  the one tenant to count the taken bytes of; zero: all.
  segment_view view(std::uint32_t id, std::uint32_t owner) const;

  // ---- how much there is
  /// Bytes that objects may have of the segment. Zero for a segment that is not there.
  std::uint64_t usable_bytes(std::uint32_t id) const;
  std::uint64_t free_bytes(std::uint32_t id) const { return segments_.at(id).space.free_bytes(); }
  std::uint64_t total_bytes() const noexcept { return total_bytes_; }  ///< usable, of all
  std::uint64_t taken_bytes() const noexcept { return taken_bytes_; }  ///< since the start
  std::uint64_t bytes_for_readers() const noexcept { return bytes_for_readers_; }

  // ---- parts
  /// A run of this many bytes of an object, which is not counted before `take`. Nothing where there is none.
  std::optional<memory_part> allocate(std::uint32_t id, std::uint64_t size);
  std::optional<memory_part> claim(std::uint32_t id, std::uint64_t offset, std::uint64_t size);
  void release(const memory_part& part);  ///< gives back a part that was not taken
  void take(const memory_part& part);
  /// The part is free at `free_at`, because a client may read or write it until then.
  void give_back(const memory_part& part, time_point free_at, time_point now);
  /// The part's segment is going: its memory is given to no object any more.
  void lose(const memory_part& part);
  void lose_room(const memory_part& part);  ///< and a load that was to go there
  void end_rests(time_point now);

  // ---- traffic
  /// Bytes that are read or written there.
  void note_traffic(std::uint32_t id, std::uint64_t bytes) { segments_.at(id).moved += bytes; }
  /// How well it suits the next object, the larger the better: its free bytes, over the bytes read and
  /// written there lately.
  double suits(std::uint32_t id, time_point now);

  // ---- memory that its holder takes back
  /// Takes one free run, of `bytes` at most or little more. @returns false if there is none.
  bool withhold_run(std::uint32_t id, std::uint64_t bytes);
  /// Gives back memory withheld beyond so many bytes.
  void give_back_withheld(std::uint32_t id, std::uint64_t bytes);
  std::uint64_t withheld_bytes(std::uint32_t id) const { return segments_.at(id).withheld_bytes; }
  /// Longest run that `withhold_run` takes.
  static constexpr std::uint64_t longest_run = 2 * MiB;
  /// Runs that were withheld since the last call and still are.
  std::vector<withheld_run> take_withheld(std::uint32_t id);

  /// Recounts everything; adds resting bytes to each tenant's, and calls for each resting part. For tests.
  bool consistent(std::vector<tenant_use>& uses) const;

 private:
  struct withheld_part {
    withheld_run pages;
    std::uint32_t handle = 0;  ///< of the part's extent
    std::uint64_t room = 0;    ///< bytes of that
  };
  struct segment {
    std::string name, host;
    offset_allocator space;
    bool draining = false;
    std::uint32_t ssd_beside = 0;
    std::vector<std::uint64_t> used_by{};   ///< bytes, by tenant
    std::vector<withheld_part> withheld{};  ///< in the order in which they were taken
    std::size_t withheld_told = 0;          ///< how many of them `take_withheld` has handed out
    std::uint64_t withheld_bytes = 0;       ///< whole pages among them
    std::uint64_t withheld_room = 0;        ///< all bytes of them
    std::uint64_t moved = 0;                ///< bytes read and written that `load` does not know yet
    decayed_rate load{};                    ///< bytes
    std::uint64_t usable_bytes() const noexcept { return space.total_bytes() - withheld_room; }
  };
  void count_out(const memory_part& part);

  tenant_quotas& quotas_;
  object_journal* journal_;
  std::map<std::uint32_t, segment> segments_;
  std::vector<std::uint32_t> ids_;
  std::multimap<time_point, memory_part> rests_;
  std::uint64_t total_bytes_ = 0, taken_bytes_ = 0, bytes_for_readers_ = 0;
};

}  // namespace mooncaf
