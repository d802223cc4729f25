#include "actors/executor.hpp"

#include <caf/spawn_options.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/cluster/shutdown.hpp"
#include "actors/exit_codes.hpp"
#include "actors/log.hpp"
#include "gpu/device_failure.hpp"

namespace mooncaf {

executor_actor::behavior_type executor_behavior(executor_actor::pointer) {
  return {
      [](run_atom, const task_ptr& task) -> task_ptr {
        try {
          task->run();
        } catch (const device_failure& f) {
          log_error("device failed; ending the process, so that others take over", {{"reason", f.what()}});
          leave_now(static_cast<int>(exit_code::actor_failed));
        }
        return task;
      },
  };
}

executor_actor spawn_executor(caf::actor_system& system) {
  return system.spawn<caf::detached>(executor_behavior);
}

}  // namespace mooncaf
