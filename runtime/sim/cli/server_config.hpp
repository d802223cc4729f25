#pragma once
// The server's own TOML as the start of a simulation.

#include <span>
#include <string>

#include "runtime/sim/cli/simulation_arguments.hpp"

namespace mooncaf::sim {

/// `--config FILE` among the arguments: the file's options, and the server's defaults, become the request's
/// values; options of the command line that are read later win. Nothing happens without it.
/// @error The server's about the file; `ec::unsupported` where a simulation cannot do as the file asks.
result<void> begin_with_config(std::span<const std::string> args, simulation_request& request);
/// `--config`, for the list of options: `begin_with_config` has read it.
argument config_argument(std::string& at);

}  // namespace mooncaf::sim
