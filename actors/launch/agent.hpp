#pragma once
// The resident process of a host: starts the host's processes, starts again what died, ends what is not wished.

#include "actors/launch/run_folder.hpp"

namespace mooncaf::launch {

/// Runs until SIGTERM, and until all of its processes have ended then. @returns the exit status.
int run_agent(const run_folder& folder);

}  // namespace mooncaf::launch
