#pragma once
// CAF's middleman with our connections under it: dialled and accepted sockets come with limits and, where
// there is a key, encrypted. Uses the same extension points as CAF's own OpenSSL module.

#include <caf/actor_system.hpp>
#include <caf/io/middleman_actor.hpp>
#include <memory>

#include "actors/cluster/handshaker.hpp"
#include "actors/cluster/tls.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// Settings of links that ask for proof.
struct link_guard {
  link_guard(std::unique_ptr<tls_context> context, door_limits limits)
      : tls(std::move(context)), door(*tls, limits) {}

  std::unique_ptr<tls_context> tls;
  handshaker door;
};

/// Longest that one dial may hold up the next.
inline constexpr duration connect_limit = std::chrono::seconds(2);
inline constexpr duration proof_limit = std::chrono::seconds(4);  // a little longer than the door's patience

/// Spawns the actor that answers CAF's `publish`, `connect` and `close`. It has a thread of its own and does
/// not count as a running actor.
/// @param guard  null: links without proof.
caf::io::middleman_actor spawn_link_middleman(caf::actor_system& system, std::shared_ptr<link_guard> guard);

}  // namespace mooncaf
