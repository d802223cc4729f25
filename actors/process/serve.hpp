#pragma once
// Builds one process out of its options: model, memory, data plane, actors, HTTP; and takes it down again.

#include "config/options.hpp"

namespace mooncaf {

/// Serves until a stop signal. @returns the process's exit status.
int serve(const options& opts);

}  // namespace mooncaf
