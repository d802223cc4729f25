#pragma once
// Options that describe a simulated cluster: shared by the commands that run one.

#include <string>
#include <vector>

#include "config/command_line.hpp"
#include "runtime/sim/options.hpp"

namespace mooncaf::sim {

using namespace cli;  // its commands are made of arguments

/// The command line's values, before the profile is read.
struct simulation_request {
  simulation_options options;
  std::string profile = "a800x8-llama70b";
  std::string decode_profile;  ///< empty: the same
  std::string disturbances;    ///< a file; empty: nothing goes wrong
  std::string prices;          ///< a file; empty: none
  double nic_gbit_per_s = 0;   ///< 0: the profile's; likewise below
  std::uint64_t dram_tokens = 0;
  std::uint64_t ssd_tokens = 0;
  double device_link_gb_per_s = -1;  ///< -1: the profile's
  std::uint64_t device_kv_tokens = 0;
  std::uint64_t dram_bytes = 0, ssd_bytes = 0,
                device_kv_bytes = 0;              ///< the same, as a server's configuration has it
  std::uint32_t chunk_tokens = 0, max_batch = 0;  ///< likewise
  bool no_layerwise = false, no_cache = false, any_victim = false;
};

/// `--trace-block-tokens`, of every command that reads a trace.
argument trace_blocks(std::uint32_t& at);
/// @param request  outlives the arguments, which write into it.
std::vector<argument> simulation_arguments(simulation_request& request);
/// Of a cluster that grows, shrinks or switches roles, and prices: where the size is not searched for.
std::vector<argument> elastic_arguments(simulation_request& request);
/// The options with their profile. @error  of the profile or the options.
result<simulation_options> resolve(const simulation_request& request);

}  // namespace mooncaf::sim
