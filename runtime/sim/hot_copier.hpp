#pragma once
// Copies of blocks that many requests need, made ahead of need.

#include <cstdint>
#include <unordered_map>

#include "runtime/sim/cluster.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// The conductor chooses the blocks and their new nodes; the copies take their time on the links.
class hot_copier {
 public:
  /// Both outlive the copier.
  hot_copier(world& w, cluster& c) : w_(w), c_(c) {}

  void look();
  /// Copy `number` is at its node, unless one of both ends died meanwhile.
  void arrived(std::uint32_t number);

 private:
  struct copy_under_way {
    hot_copy what;
    ticks begun = 0;
  };

  world& w_;
  cluster& c_;
  std::unordered_map<std::uint32_t, copy_under_way> under_way_;  // by number
  std::uint32_t made_ = 0;
};

}  // namespace mooncaf::sim
