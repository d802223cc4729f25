#pragma once
// A thread of its own for work that would block or fill a scheduler thread.

#include <caf/actor_system.hpp>
#include <functional>
#include <utility>

#include "actors/interfaces.hpp"

namespace mooncaf {

/// Spawns an executor with its own thread. Tests spawn `executor_behavior` cooperatively instead, so that
/// tasks run in the deterministic scheduler.
executor_actor spawn_executor(caf::actor_system& system);

executor_actor::behavior_type executor_behavior(executor_actor::pointer self);

/// A task made of a callable; for work that needs no class of its own.
template <class Work>
class task_of final : public blocking_task {
 public:
  explicit task_of(Work work) : work_(std::move(work)) {}
  void run() override { work_(); }

 private:
  Work work_;
};

template <class Work>
task_ptr make_task(Work work) {
  return std::make_shared<task_of<Work>>(std::move(work));
}

}  // namespace mooncaf
