#pragma once
// Which segments an object's bytes go to.

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/objects/table/segment_space.hpp"
#include "storage/objects/terms/object_terms.hpp"

namespace mooncaf {

/// The wishes for the place of a replica.
struct placement_wish {
  const put_policy& policy;
  std::string_view host;                   ///< the writer's
  const std::vector<memory_part>& others;  ///< replicas that this one is to lie apart from
  time_point now;
};

/// Finds free room; no object makes way for it. The room is allocated, and the caller has to take it or
/// release it.
///
/// The first replica lies near its writer, each further one as far as can be from the ones before, all on
/// distinct segments. Among segments that are equally near it takes the better of two drawn at random
/// (`segment_space::suits`): a new segment gets more than its part, but never everything.
/// @thread  not synchronised.
class segment_placement {
 public:
  /// Of a replica for which no segment has a run that is long enough. All stripes but the last have
  /// `stripe_bytes_min` at least.
  static constexpr std::uint32_t stripes_max = 64;
  static constexpr std::uint64_t stripe_bytes_min = 64 * KiB;

  /// @param space  must outlive this.
  segment_placement(segment_space& space, std::uint64_t seed) : space_(space), random_(seed) {}

  /// One replica, in one part if any segment has room for it. @returns nothing where there is no room.
  std::vector<memory_part> place(std::uint64_t size, const placement_wish& where);
  /// The same in this segment, whichever it is.
  std::vector<memory_part> place_in(std::uint32_t segment, std::uint64_t size);
  /// @returns less than `below`, from the one sequence that all choices come from.
  std::uint64_t draw(std::uint64_t below);

 private:
  bool fits_beside(std::uint32_t id, const placement_wish& where, bool other_host) const;
  std::vector<std::uint32_t> segments_for(const placement_wish& where, bool other_host,
                                          std::string_view host) const;
  std::optional<memory_part> place_among(std::uint64_t size, std::vector<std::uint32_t> fitting,
                                         time_point now);
  std::optional<memory_part> place_in_one(std::uint64_t size, const placement_wish& where);
  std::vector<memory_part> stripe_among(std::uint64_t size, const std::vector<std::uint32_t>& fitting,
                                        time_point now);
  std::vector<memory_part> stripe_in_one(std::uint64_t size, const placement_wish& where, bool other_host,
                                         std::string_view host);
  std::vector<memory_part> place_in_stripes(std::uint64_t size, const placement_wish& where);

  segment_space& space_;
  std::uint64_t random_;
};

}  // namespace mooncaf
