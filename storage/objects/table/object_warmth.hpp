#pragma once
// How often objects are read: which are read most, which should have another replica for that, and which
// replicas were made so.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/objects/table/decayed_rate.hpp"

namespace mooncaf {

struct stored_object;
class object_index;

/// Invariant: an object's key is in the list of the hottest exactly if its slot says so; the list may have
/// keys of objects that are gone besides.
/// @thread  not synchronised.
class object_warmth {
 public:
  class slot {
   private:
    friend class object_warmth;
    decayed_rate reads_;
    time_point again_{};   ///< another replica may be asked for from then on
    bool listed_ = false;  ///< its key is in the list of the hottest
  };

  /// @param index  where keys are looked up; must outlive this.
  /// @param hot_per_s  reads that make an object want another replica; zero: none does.
  /// @param replicas_max  of such an object.
  object_warmth(object_index& index, double hot_per_s, std::uint32_t replicas_max)
      : index_(index), hot_per_s_(hot_per_s), replicas_max_(replicas_max) {}

  /// @param room_for_readers  bytes that further replicas for readers may take up.
  void read(stored_object& o, double room_for_readers, time_point now);
  /// The same object in other places.
  static void like(stored_object& o, const stored_object& other);
  /// Keys of objects that should have another replica, each once.
  std::vector<std::string> take_hot() { return std::exchange(hot_, {}); }
  /// The objects in the list with their reads a second, the hottest first. @cost O(the list)
  std::vector<std::pair<double, stored_object*>> hottest(time_point now);
  /// Below this rate an object is not among the hottest: one read counts for that a minute later.
  static constexpr double forgotten_per_s = 1e-3;

  // ---- replicas that were made for readers
  void made_for_readers(const stored_object& o, std::uint64_t ticket);
  struct made_replica {
    stored_object* of;
    std::uint64_t ticket;
  };
  /// How many there are, with some that are gone.
  std::size_t made() const noexcept { return made_.size(); }
  /// The one that was looked at longest ago, which leaves the list; nothing if it is gone.
  std::optional<made_replica> next_made();
  void keep_made(const made_replica& r) { made_for_readers(*r.of, r.ticket); }
  /// Whether the object is read so little that such a replica of it goes.
  bool is_cold(const stored_object& o, time_point now) const;

 private:
  void note_hottest(stored_object& o, time_point now);

  object_index& index_;
  double hot_per_s_;
  std::uint32_t replicas_max_;
  std::vector<std::string> hot_;
  std::vector<std::string> hottest_;                        ///< keys
  decayed_rate coldest_of_them_;                            ///< when the list was cut last
  std::deque<std::pair<std::string, std::uint64_t>> made_;  ///< key and ticket
};

}  // namespace mooncaf
