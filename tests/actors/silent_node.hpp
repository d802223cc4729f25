#pragma once
// A node that answers and does nothing, for tests of the conductor.

#include "actors/interfaces.hpp"
#include "runtime/base/hash.hpp"

namespace mooncaf::test {

inline const block_key fingerprint = hash_text128("the model");

inline node_actor::behavior_type silent_node(node_actor::pointer) {
  return {
      [](hello_atom, const node_info&) { return node_info{}; },
      [](claim_atom, const lead_claim&) { return lead_vote{}; },
      [](status_atom) { return node_report{}; },
      [](drain_atom) {},
      [](listen_atom, std::uint16_t) {},
      [](tick_atom) {},
  };
}

}  // namespace mooncaf::test
