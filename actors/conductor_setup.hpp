#pragma once
// Settings of the conductor, the model of its process, and what its process does for it.

#include <functional>
#include <string>
#include <vector>

#include "actors/interfaces.hpp"
#include "runtime/request/cluster_core.hpp"

namespace mooncaf {

struct conductor_setup {
  conductor_options core;
  admission_queue_options queue;
  block_key fingerprint;
  std::string model;
  std::string layout;
  journal::sink journal{};  ///< empty: nothing is recorded
  leadership_core lead{{}, 0, 1, {}};
  /// Gets how long this conductor may lead, where there are several. Returns at once.
  std::function<void(const lead_right&)> right = [](const lead_right&) {};
  /// Gets the counts of nodes that are wanted (`counts_of`). Returns at once.
  std::function<void(const std::string&)> scale = [](const std::string&) {};
  /// Admission `adaptive`: plays minutes again, on the thread of `player`.
  std::function<played_minutes(const shadow_question&)> play{};
  executor_actor player{};
};

}  // namespace mooncaf
