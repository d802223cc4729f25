#pragma once
// The exit status tells service managers and scripts why a process ended. config/README.md has the table.

#include "runtime/base/error.hpp"

namespace mooncaf {

enum class exit_code : int {
  stopped = 0,        ///< as told
  failed = 1,         ///< could not start for a reason that has no number of its own
  options = 2,        ///< command line, configuration file, or values that do not fit together
  stuck = 3,          ///< an actor did not end in time of a planned stop
  model = 4,          ///< the model cannot be had: missing, damaged, of an unknown kind
  address = 5,        ///< an address cannot be listened on
  resources = 6,      ///< memory, address space or threads do not suffice
  cluster = 7,        ///< the cluster refuses this process: another model, layout or version
  files = 8,          ///< a secret, key file or folder cannot be used
  actor_failed = 70,  ///< an actor ended by a failure; peers take over
  // 128 + signal: a stop signal came before the process was ready
};

/// @param usual  holds unless the error says more.
constexpr exit_code exit_code_of(const error& e, exit_code usual) noexcept {
  if (e.code == ec::out_of_space) return exit_code::resources;
  if (e.code == ec::incompatible) return exit_code::cluster;
  return usual;
}

}  // namespace mooncaf
