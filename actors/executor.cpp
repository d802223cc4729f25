#include "actors/executor.hpp"

#include <caf/spawn_options.hpp>
#include <caf/typed_event_based_actor.hpp>

namespace mooncaf {

executor_actor::behavior_type executor_behavior(executor_actor::pointer) {
  return {
      [](run_atom, const task_ptr& task) -> task_ptr {
        task->run();
        return task;
      },
  };
}

executor_actor spawn_executor(caf::actor_system& system) {
  return system.spawn<caf::detached>(executor_behavior);
}

}  // namespace mooncaf
