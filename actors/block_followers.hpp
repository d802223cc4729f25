#pragma once
// The conductors to which a node announces its blocks.

#include <algorithm>
#include <caf/send.hpp>
#include <vector>

#include "actors/interfaces.hpp"

namespace mooncaf {

/// @thread  Owned by the actor that announces.
class block_followers {
 public:
  /// It follows from now on, until `gone`.
  template <class Actor>
  void add(Actor& self, const caf::actor& conductor) {
    const auto handle = caf::actor_cast<conductor_actor>(conductor);
    self.demonitor(conductor);
    self.monitor(conductor);
    std::erase(all_, handle);
    all_.push_back(handle);
  }
  void gone(const caf::actor_addr& conductor) {
    std::erase_if(all_, [&](const auto& follower) { return follower.address() == conductor; });
  }
  template <class Actor>
  void announce(Actor& self, const block_event_batch& batch) const {
    for (const auto& follower : all_) self.send(follower, blocks_atom_v, batch);
  }
  /// Whoever follows since the latest; null if nobody does.
  conductor_actor latest() const { return all_.empty() ? conductor_actor{} : all_.back(); }
  void clear() { all_.clear(); }

 private:
  std::vector<conductor_actor> all_;
};

}  // namespace mooncaf
