#pragma once
// Saves and loads that holders of SSDs have been told to do and have not finished.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "storage/objects/table/stored_parts.hpp"
#include "storage/objects/table/tenant_quotas.hpp"

namespace mooncaf {

struct stored_object;

/// Invariant: an object has one work at a time, a save or a load, on one SSD or several. When the object
/// goes, its loads stay behind for as long as their holders may still write into its memory.
/// @thread  not synchronised.
class disk_work {
 public:
  class slot {
   public:
    bool any() const noexcept { return !parts_.empty(); }
    /// The parts of one replica.
    const std::vector<disk_part>& parts() const noexcept { return parts_; }
    /// Bytes that leave memory as soon as it is saved; zero: it stays.
    std::uint64_t going() const noexcept { return going_; }

   private:
    friend class disk_work;
    std::vector<disk_part> parts_;
    std::uint64_t going_ = 0;
  };

  explicit disk_work(tenant_quotas& quotas) : quotas_(quotas) {}

  void add_save(stored_object& o, const disk_part& part);
  /// @param rooms  for each part of the replica where it is loaded to.
  void begin_load(stored_object& o, std::span<const disk_part> replica,
                  std::vector<std::vector<memory_part>>&& rooms);
  void set_going(stored_object& o, std::uint64_t bytes);

  /// A holder's report on one part.
  struct report {
    bool loads = false;
    stored_object* of = nullptr;    ///< null: it is gone meanwhile
    std::vector<memory_part> room;  ///< memory of a load for a gone object: it is free now
    bool complete = false;  ///< nothing is to be waited for: all parts are there, or this one will not be
  };
  /// @returns nothing for work not known, or reported before.
  std::optional<report> done(std::uint32_t disk, std::uint64_t ticket, bool good);

  struct finished {
    disk_part part;
    bool loads = false, bad = false;
    std::vector<memory_part> room;
  };
  /// The object's work is over, or given up. @returns its parts, but for loads that a holder may still write
  /// for: their room is free once they are reported.
  std::vector<finished> finish(stored_object& o);

  struct broken_off {
    std::vector<stored_object*> objects;  ///< still to be finished; some twice
    std::vector<memory_part> room;        ///< nothing is written there any more
  };
  /// Gives up all work of these SSDs: it will not be done.
  broken_off break_off(const std::function<bool(std::uint32_t disk)>& of_these);

  /// Whether something of the tenant's is being saved, and may go when that is done. @cost O(all work)
  bool is_saving(std::uint32_t owner) const;

  /// Every part that is worked on. For tests.
  struct part_view {
    std::uint32_t disk;
    std::uint64_t ticket;
    const stored_object* of;
    bool loads;
    std::span<const memory_part> room;
  };
  std::vector<part_view> all() const;

 private:
  enum class outcome : std::uint8_t { none, good, bad };
  struct part_work {
    stored_object* of = nullptr;
    bool loads = false;
    std::vector<memory_part> room = {};
    outcome ended = outcome::none;  ///< other parts of its object may go on
  };
  std::map<std::pair<std::uint32_t, std::uint64_t>, part_work> all_;  ///< by SSD and ticket
  tenant_quotas& quotas_;
};

}  // namespace mooncaf
