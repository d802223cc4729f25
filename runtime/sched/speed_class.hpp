#pragma once
// Instances of one speed: where calibrations agree they share a model, and an order by load.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/sched/min_tree.hpp"
#include "runtime/sched/node_set.hpp"

namespace mooncaf {

/// Dense number of an instance in its pool; given out again after it left.
using instance_slot = std::uint32_t;
inline constexpr instance_slot no_slot = ~instance_slot{0};

/// Instances with the same model. A request costs the same on all of them, so only their queues differ, and a
/// tree orders them by that: scheduling then depends on the number of classes, not of instances. They also
/// refine their model together, from more measurements than one of them sees.
template <class Model>
struct speed_class {
  Model model;
  std::vector<instance_slot> members;  // ascending
  min_tree tree;                       // by position in `members`
  node_set nodes;                      // of live members

  std::size_t position(instance_slot slot) const noexcept {
    return static_cast<std::size_t>(std::ranges::lower_bound(members, slot) - members.begin());
  }
};

/// The classes of a pool: at most `most`, so that scattered calibrations cost precision and not time.
template <class Model>
class speed_classes {
 public:
  static constexpr std::size_t most = 16;

  /// The class that an instance with this calibration belongs to; a new one if no class agrees with it.
  /// Beyond `most` the last class takes everything.
  std::size_t join(const Model& calibrated, instance_slot slot) {
    std::size_t c = 0;
    while (c < all_.size() && !all_[c].members.empty() && !all_[c].model.agrees_with(calibrated)) ++c;
    if (c == all_.size() && c < most) all_.emplace_back();
    c = std::min(c, most - 1);
    auto& mine = all_[c];
    if (mine.members.empty()) mine.model = calibrated;
    mine.members.insert(std::ranges::lower_bound(mine.members, slot), slot);
    mine.tree.resize(mine.members.size());
    return c;
  }
  void leave(std::size_t c, instance_slot slot) {
    auto& mine = all_[c];
    std::erase(mine.members, slot);
    mine.tree.resize(mine.members.size());
  }

  speed_class<Model>& operator[](std::size_t c) noexcept { return all_[c]; }
  const speed_class<Model>& operator[](std::size_t c) const noexcept { return all_[c]; }
  std::size_t size() const noexcept { return all_.size(); }

 private:
  std::vector<speed_class<Model>> all_;
};

}  // namespace mooncaf
