#include "actors/cluster/system.hpp"

#include <caf/atom.hpp>
#include <caf/io/middleman.hpp>
#include <caf/timespan.hpp>
#include <string>
#include <vector>

#include "actors/cluster/wire.hpp"

namespace mooncaf {

namespace {

/// Lets CAF print our errors by name instead of by number.
std::string rendered(std::uint8_t code, caf::atom_value, const caf::message& context) {
  error e{static_cast<ec>(code), {}};
  if (context.match_elements<std::string>()) e.detail = context.get_as<std::string>(0);
  return to_string(e);
}

}  // namespace

cluster_config::cluster_config(const system_settings& settings) {
  // A worker of the work-stealing scheduler polls in its sleep: it wakes up to 20 ms late, and burns time
  // when idle.
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", settings.scheduler_threads);
  // Without a limit, two actors that message themselves starve all others.
  set("scheduler.max-throughput", std::size_t{50});
  // Off by default: a peer that hangs would never be noticed.
  set("middleman.heartbeat-interval", caf::timespan{settings.heartbeat_interval});
  set("middleman.connection-timeout", caf::timespan{settings.connection_timeout});
  // One thread besides the network's own deserialises. None at all would save a hand-over (145 instead of 176
  // us for a round trip), but under ThreadSanitizer's timing a flood of messages then got lost, with and
  // without encryption.
  set("middleman.workers", std::size_t{1});
  // A handle from a third node would be reached over random ports on all interfaces, past our handshake.
  set("middleman.enable-automatic-connections", false);
  know(wire::newest);
  add_error_category(error_category, rendered);
  load<caf::io::middleman>();
}

void cluster_config::know(std::uint32_t wire_version) {
  wire::know(wire_version);
  std::vector<std::string> versions;
  for (auto v = wire::oldest; v <= wire_version; ++v) versions.push_back("mooncaf-" + std::to_string(v));
  set("middleman.app-identifiers", std::move(versions));
}

cluster_config::cluster_config(for_tests) {
  set("scheduler.policy", caf::atom("testing"));
  add_error_category(error_category, rendered);
}

}  // namespace mooncaf
