#pragma once
// CAF names a node by a hash of host and process id. Containers that share a host name and run as process 1
// get the same name, and two nodes of the same name cannot talk: the link opens and every message is taken
// for a local one.

#include <caf/actor_control_block.hpp>
#include <caf/actor_system.hpp>
#include <string>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// Says whether `peer`, dialled at `where`, is another process than this one.
/// @error `ec::already_exists` if both have the same CAF node id, and what to do about it.
result<void> check_distinct(const caf::actor_system& mine, const caf::strong_actor_ptr& peer,
                            const std::string& where);

}  // namespace mooncaf
