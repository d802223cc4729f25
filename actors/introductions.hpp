#pragma once
// A node's introduction as cores know it, without handles, and back.

#include <vector>

#include "actors/interfaces.hpp"
#include "runtime/request/cluster_core.hpp"
#include "runtime/request/membership_core.hpp"

namespace mooncaf {

/// A node's id, name and address. Its handles are learned from itself: those that come through a third node
/// are routed through that node, and never report the death of their process.
node_info address_of(const node_info& node);

/// The node as decisions know it.
member_card card_of(const node_info& node);

/// An introduction that the core got from the node actor, with the handles that the core does not know of.
const node_info& with_handles(const introduction_ptr& known);

std::vector<introduction> without_handles(const std::vector<node_info>& nodes);

/// Null: there is none.
conductor_actor conductor_of(const introduction_ptr& node);

}  // namespace mooncaf
