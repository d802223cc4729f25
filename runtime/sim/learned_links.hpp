#pragma once
// What the modelled machines learn of their links.

#include <cstdint>
#include <deque>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/sched/link_book.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// Each machine keeps the book that a node keeps: it believes of a link what its own transfers showed, and what
/// the profile says before the first. The conductor hears of a pair at most as often as nodes report.
class learned_links {
 public:
  /// Names a transfer, to say that it broke off.
  using ticket = std::uint64_t;

  /// @param w  outlives this.
  explicit learned_links(world& w);

  /// `learner` sends so many bytes to `peer`, or gets them from it: begun at `begin`, they will be there at `end`.
  ticket moves(std::uint32_t learner, link_flow flow, std::uint32_t peer, double bytes, ticks begin,
               ticks end);
  /// A transfer under way does not come in full, and teaches nothing.
  void broke_off(ticket of) { broken_.insert(of); }
  /// How long a fetch from `peer` would take if it began now, as `learner` believes.
  duration estimate(std::uint32_t learner, std::uint32_t peer, double bytes);
  /// Learns from all that has ended by now, and tells the conductor.
  void settle();
  /// The machine is gone: it forgets, and is forgotten.
  void forget(std::uint32_t machine);

 private:
  struct under_way {
    ticks end = 0, begin = 0;
    ticket number = 0;
    std::uint32_t learner = 0;
    link_book::entry entry;
    bool operator>(const under_way& o) const noexcept {
      return end != o.end ? end > o.end : number > o.number;
    }
  };

  void report(const under_way& t);

  world& w_;
  std::deque<link_book> books_;  // by machine
  std::priority_queue<under_way, std::vector<under_way>, std::greater<>> under_way_;
  std::unordered_set<ticket> broken_;                  // … of those under way
  std::unordered_map<std::uint64_t, ticks> reported_;  // by pair
  ticket next_ = 0;
};

}  // namespace mooncaf::sim
