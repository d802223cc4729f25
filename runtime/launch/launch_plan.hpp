#pragma once
// Which process runs where, with which configuration, and what each host must have for it.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/launch/cluster_file.hpp"

namespace mooncaf::launch {

/// Configuration files of a host's processes, by the node's name.
using node_texts = std::map<std::string, std::string>;

struct planned_node {
  std::string name;
  std::string roles;
  std::string text;  ///< its configuration
  std::uint32_t stage = 0;
  bool overlaps = false;           ///< its successor takes over its sockets before it ends
  std::vector<std::string> ports;  ///< HOST:PORT that it must be able to take
  std::uint64_t memory_bytes = 0;
  std::map<std::string, std::uint64_t> disks;  ///< folder: bytes that it may grow to
  std::string leader;                          ///< of a rank: the node whose group it is in
};

struct planned_host {
  host_entry entry;
  std::vector<planned_node> nodes;    ///< as they start
  std::string model;                  ///< a file or folder that must be there; empty: none
  std::vector<std::string> gateways;  ///< their URLs, which answer once the cluster serves
  /// Files of the operator that the host gets, by their name there: keys, certificates, profiles.
  std::map<std::string, std::string> files;
};

struct launch_plan {
  std::string name;
  std::vector<planned_host> hosts;
};

/// @param name  the cluster's, where the file gives none.
/// @param folder  of the file: paths of the operator's files that are relative begin there.
/// @error `ec::invalid_argument` with the node and the option: values that do not fit together.
result<launch_plan> plan_launch(const cluster_spec& spec, const std::string& name, const std::string& folder);

// ---- checks of a host ----

/// As its agent found it.
struct host_facts {
  std::string version;
  node_texts nodes;                            ///< wanted there already, by an earlier `up`
  std::vector<std::string> busy;               ///< of the ports asked for
  std::uint64_t memory_bytes = 0;              ///< available now
  std::map<std::string, std::uint64_t> disks;  ///< folder: bytes free; a folder that cannot be made is absent
  bool model = true;                           ///< all that its processes read of it is there
  bool whole_model = true;                     ///< … and all else, which other hosts can get from it
};

/// Why this host cannot carry its processes, a line each; empty: it can, once it has the model. The processes that it carries already
/// have their ports and memory.
std::vector<std::string> judge_host(const planned_host& host, const host_facts& facts,
                                    const std::string& version);

}  // namespace mooncaf::launch
