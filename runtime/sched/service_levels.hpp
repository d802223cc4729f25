#pragma once
// How much service each tenant has had while requests waited, over its weight: whose turn it is.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>

#include "runtime/base/service_share.hpp"

namespace mooncaf {

/// A counter for each owner of waiting requests, which grows by what each of its places costs the line. The next place is of
/// the owner with the least. Who begins to wait starts no lower than the least of those that wait: time in which it asked for
/// nothing is not saved up. When nobody waits all begin anew.
/// @source  Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024), section 4: virtual token counters.
/// @thread  Owned by the queue; not synchronised.  @cost O(owners) to begin or end to wait.
class service_levels {
 public:
  /// One more request of this owner waits. A weight that has changed holds from now on.
  void begins_to_wait(const service_share& share) {
    auto& e = all_[share.owner];
    e.weight = std::max<double>(share.weight, 1);
    if (e.waiting++ == 0) e.level = std::max(e.level, least(share.owner));
  }
  /// One request less waits. It has been placed, refused or withdrawn.
  void ends_to_wait(std::uint64_t owner) {
    const auto at = all_.find(owner);
    if (at == all_.end() || --at->second.waiting > 0) return;
    if (std::ranges::none_of(all_, [](const auto& one) { return one.second.waiting > 0; }))
      return all_.clear();
    // An owner that has had more than those that wait is remembered for as long as they do.
    const double waiting = least(owner);
    std::erase_if(all_,
                  [&](const auto& one) { return one.second.waiting == 0 && one.second.level <= waiting; });
  }
  /// A place that cost the line so many seconds was given to a request that waited.
  void serve(std::uint64_t owner, double cost) {
    if (const auto at = all_.find(owner); at != all_.end()) at->second.level += cost / at->second.weight;
  }

  /// Seconds of the line that it has had, for each unit of its weight; 0 if it does not wait.
  double level(std::uint64_t owner) const {
    const auto at = all_.find(owner);
    return at == all_.end() ? 0 : at->second.level;
  }
  double weight(std::uint64_t owner) const {
    const auto at = all_.find(owner);
    return at == all_.end() ? 1 : at->second.weight;
  }
  std::size_t owners() const noexcept { return all_.size(); }

 private:
  struct entry {
    double level = 0, weight = 1;
    std::size_t waiting = 0;
  };

  /// … of the others that wait; 0 if none does.
  double least(std::uint64_t but) const {
    double out = std::numeric_limits<double>::infinity();
    for (const auto& [owner, e] : all_)
      if (owner != but && e.waiting > 0) out = std::min(out, e.level);
    return out == std::numeric_limits<double>::infinity() ? 0 : out;
  }

  std::map<std::uint64_t, entry> all_;
};

}  // namespace mooncaf
