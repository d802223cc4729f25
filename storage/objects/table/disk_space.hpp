#pragma once
// The SSDs of holders: which objects lie on each, in which order they leave it, and whether it may be written
// to.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/objects/table/stored_parts.hpp"
#include "storage/objects/table/tenant_quotas.hpp"
#include "storage/objects/terms/object_terms.hpp"

namespace mooncaf {

struct stored_object;

/// A holder has one SSD at most, beside one segment of memory, and bytes move between these two alone.
///
/// Invariant: `used` of an SSD is the sum of its charges, and counts with the tenants that were charged
/// (`tenant_use::disk_bytes`). An object stands once in the order of each SSD on which it has a part.
/// @thread  not synchronised. @pre of every function that takes an SSD: the SSD is mounted, unless the
/// function says otherwise.
class disk_space {
 public:
  /// When last used; then the object deeper in its chain goes first; then the older one.
  using rank = std::tuple<time_point, std::uint32_t, std::uint64_t>;
  class slot {
   private:
    friend class disk_space;
    rank rank_{};
  };
  using order = std::set<std::pair<rank, stored_object*>>;

  explicit disk_space(tenant_quotas& quotas) : quotas_(quotas) {}

  // ---- SSDs
  struct mounted {
    std::string name, host;
    std::uint64_t bytes = 0;
    std::uint32_t beside = 0;  ///< segment of memory of the same holder; zero: that is gone
    disk_policy policy;
    bool draining = false;
  };
  void mount(std::uint32_t id, mounted&& disk);
  /// @pre no object has a part there. Its other charges end.
  void unmount(std::uint32_t id) { disks_.erase(id); }
  bool has(std::uint32_t id) const { return disks_.count(id) != 0; }
  std::uint32_t named(std::string_view name) const;  ///< zero: none
  std::vector<std::uint32_t> ids() const;
  const mounted& at(std::uint32_t id) const { return disks_.at(id).is; }
  void leave_memory(std::uint32_t id) { disks_.at(id).is.beside = 0; }  ///< its segment beside is gone
  void drain(std::uint32_t id, bool draining) { disks_.at(id).is.draining = draining; }
  void open(std::uint32_t id) { disks_.at(id).open = true; }  ///< nothing is saved there before
  segment_view view(std::uint32_t id, std::uint32_t owner) const;
  std::uint64_t total_bytes() const;
  void count_into(object_counts& counts) const;

  // ---- contents
  std::uint64_t free_bytes(std::uint32_t id) const;
  std::uint64_t used(std::uint32_t id) const { return disks_.at(id).used; }
  /// @pre no less than is used.
  void resize(std::uint32_t id, std::uint64_t bytes) { disks_.at(id).is.bytes = bytes; }
  void charge(std::uint32_t id, std::uint32_t owner, std::uint64_t bytes);
  void uncharge(std::uint32_t id, std::uint32_t owner, std::uint64_t bytes);
  /// A part of a replica that lies there from now on. Into the object's `disks` the caller puts it.
  void put(stored_object& o, const disk_part& part);
  void take_off(const stored_object& o, const disk_part& part);
  /// The object was used, or has its first part: its place in the order of each SSD that has a part of it.
  void rank_first(stored_object& o, std::uint32_t depth);
  void rank_again(stored_object& o);

  // ---- writing
  /// Bytes that one SSD has been told to save and has not saved yet, at most, because more would only wait
  /// there; and at most a part of the memory beside it, because an object that is being saved cannot make way
  /// for others yet.
  static constexpr std::uint64_t saving_max = 256 * MiB, saving_part = 4;
  /// Whether it takes an object of so many bytes at all, now.
  bool may_save(std::uint32_t id, std::uint64_t bytes, time_point now) const;
  /// And has not more to save than it should. @param memory_bytes  of the segment beside it.
  bool has_time_for(std::uint32_t id, std::uint64_t bytes, std::uint64_t memory_bytes) const;
  std::uint64_t under_way(std::uint32_t id) const { return disks_.at(id).under_way; }
  void begin_save(std::uint32_t id, std::uint32_t owner, std::uint64_t bytes);
  void end_save(std::uint32_t id, std::uint32_t owner, std::uint64_t bytes);
  /// An SSD that refuses to write is left alone for 1 s, then longer, up to 60 s.
  void note_writing(std::uint32_t id, bool good, time_point now);

  // ---- leaving
  /// Goes through the objects that lie on SSDs, the ones used longest ago first, whichever SSD they are on.
  /// The caller may take off or erase the object that it was given last, and no other.
  class walk {
   public:
    struct found {
      stored_object* object = nullptr;
      std::uint32_t disk = 0;
    };
    std::optional<found> next();

   private:
    friend class disk_space;
    struct cursor {
      std::uint32_t disk;
      order::iterator at, end;
    };
    std::vector<cursor> cursors_;
  };
  walk walk_tenant(std::uint32_t owner);  ///< its objects on any SSD
  walk walk_disk(std::uint32_t id);       ///< every tenant's objects on this SSD

  /// Recounts: that exactly these bytes are used of each SSD, and so many objects stand in its order. For
  /// tests.
  bool agrees_with(const std::map<std::uint32_t, std::uint64_t>& used,
                   const std::map<std::uint32_t, std::size_t>& objects) const;
  bool is_ranked(const stored_object& o, std::uint32_t id) const;

 private:
  struct disk {
    mounted is;
    bool open = false;
    std::uint64_t used = 0;
    std::uint64_t under_way = 0;  ///< bytes that are being saved
    time_point paused_until{};    ///< the SSD has refused to write, and is not asked before then
    duration pause{};
    std::map<std::uint32_t, order> leaves;  ///< by tenant, the order in which objects leave the SSD
    std::vector<std::uint64_t> used_by{};   ///< bytes of published objects, by tenant
    std::size_t objects() const;
  };

  tenant_quotas& quotas_;
  std::map<std::uint32_t, disk> disks_;
};

}  // namespace mooncaf
