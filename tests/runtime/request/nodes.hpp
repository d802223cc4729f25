#pragma once
// The node of the core under test, and those that it hears of.

#include "runtime/base/ids.hpp"

namespace mooncaf::test {

inline constexpr node_id here{1}, prefill_node{2}, gateway_node{3}, holder{4}, decode_node{5};

}  // namespace mooncaf::test
