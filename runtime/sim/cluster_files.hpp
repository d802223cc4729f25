#pragma once
// A planned cluster as the server's own configuration: the cluster that is started is the simulated one.

#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/sim/plan_problem.hpp"

namespace mooncaf::sim {

/// A file of a cluster's folder.
struct cluster_file {
  std::string name;
  std::string text;
  bool runs = false;  ///< a script
};

/// The folder from which a planned cluster is started:
///
///   front.toml, prefill-0.toml …, decode-0.toml …   a process each, read by `mooncaf --config`;
///               node-0.toml … if they are coupled
///   hosts                                           which host each runs on; 127.0.0.1 until it is edited
///   prefill.toml, decode.toml                       the profiles, for a rehearsal with modelled devices
///   start.sh                                        starts one host's processes, by the file hosts
///
/// The configuration has the plan's options that differ from the server's defaults, and has been read back by
/// the server's own reader.
/// @error `ec::unsupported` for features of the simulation alone: pipeline groups, admission `early_running`.
/// `ec::invalid_argument` for values that the server's options do not allow.
result<std::vector<cluster_file>> cluster_files(const plan_problem& problem, const plan_cluster& cluster);

/// Writes them, and makes the folder. @error `ec::io_error` with the path.
result<void> write_files(const std::vector<cluster_file>& files, const std::string& folder);

}  // namespace mooncaf::sim
