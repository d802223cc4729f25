#pragma once

// Errors that answer none of an actor's requests.

#include <caf/error.hpp>
#include <caf/scheduled_actor.hpp>
#include <caf/to_string.hpp>

#include "runtime/log/log.hpp"

namespace mooncaf {

/// Logs and drops such errors. CAF's default ends the actor, so that a peer which does not know a message
/// could end whoever sent it.
template <class Actor>
void outlive_stray_errors(Actor& self) {
  self.set_error_handler([name = self.name()](caf::scheduled_actor*, caf::error& e) {
    log_warn("stray error", {{"actor", name}, {"error", caf::to_string(e)}});
  });
}

}  // namespace mooncaf
