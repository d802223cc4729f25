#pragma once
// The actor system as every process of mooncaf sets it up.

#include <caf/actor_system_config.hpp>
#include <cstddef>
#include <cstdint>

#include "runtime/base/units.hpp"

namespace mooncaf {

struct system_settings {
  std::size_t scheduler_threads =
      2;  ///< threads that run cooperative actors; CAF's default ignores containers
  duration heartbeat_interval = std::chrono::milliseconds(500);
  /// Silence after which a peer counts as lost. A peer that sends a large message is silent until it is
  /// complete.
  duration connection_timeout = std::chrono::seconds(3);
};

/// Settings of CAF that suit mooncaf, each with its reason in system.cpp. Message types are the caller's:
/// `config.add_message_types<caf::id_block::mooncaf>()`, before the system is made.
class cluster_config : public caf::actor_system_config {
 public:
  explicit cluster_config(const system_settings& settings = {});

  /// Behave as the release that knew this version of the messages (wire_version.hpp) and none after it. Processes
  /// without a version in common refuse each other at the handshake.
  void know(std::uint32_t wire_version);

  /// Turns this into the configuration of a test: deterministic scheduler, virtual time, no network.
  struct for_tests {};
  explicit cluster_config(for_tests);
};

}  // namespace mooncaf
