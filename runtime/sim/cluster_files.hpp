#pragma once
// A planned cluster as the file that `mooncaf up` starts: the cluster that is started is the simulated one.

#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/sim/plan_problem.hpp"

namespace mooncaf::sim {

/// A file of a cluster's folder.
struct cluster_file {
  std::string name;
  std::string text;
};

/// The folder of a planned cluster:
///
///   cluster.toml   what `mooncaf up` reads, with a host for each machine. As it is written all of them are this
///                  machine and nothing is computed: a rehearsal
///   machine.toml   the profile that the rehearsal takes its times from, which is that of machines that prefill
///
/// It has the plan's options that differ from the server's defaults, and has been read back as `mooncaf up` does.
/// @param folder  where it will lie, from the root: a planned SSD tier is kept there until the file names its disk.
/// @error `ec::unsupported` for features of the simulation alone: admission `early_running`.
/// `ec::invalid_argument` for values that the server's options do not allow.
result<std::vector<cluster_file>> cluster_files(const plan_problem& problem, const plan_cluster& cluster,
                                                const std::string& folder);

/// Writes them, and makes the folder. @error `ec::io_error` with the path.
result<void> write_files(const std::vector<cluster_file>& files, const std::string& folder);

}  // namespace mooncaf::sim
