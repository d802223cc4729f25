#pragma once
// The control plane's links: publish this process's root actor, dial that of another one. Both ends prove
// that they know the cluster secret before a byte reaches CAF.
//
//   dial ──TCP──► listener ──► handshaker thread: TLS 1.3, pre-shared key ──proved──► CAF's broker
//                                   └─ garbage, silence, other secret ──► closed, logged, counted

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/io/middleman_actor.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "transport/net/secret_file.hpp"

namespace mooncaf {

/// Outcomes of connections, counted since the link was opened.
struct link_counters {
  std::uint64_t admitted = 0;  ///< proved that they know the secret
  std::uint64_t refused = 0;   ///< spoke, but did not prove it
  std::uint64_t expired = 0;   ///< kept silent, or were too many
};

namespace detail {
class link_state;
}

/// Opens and accepts links of one actor system. Close it before the system is destroyed.
/// @thread All members may be called from any thread that may block; never from a cooperative actor.
class cluster_link {
 public:
  /// @param keys  empty: no proof is asked, and `publish` accepts loopback addresses only.
  static result<cluster_link> open(caf::actor_system& system, key_ring keys);

  cluster_link(cluster_link&&) noexcept;
  cluster_link& operator=(cluster_link&&) noexcept;
  ~cluster_link();  ///< closes

  /// Stops listening and dialling. Links that exist stay until their system ends.
  void close();

  /// Lets others reach `root` at `host`:`port` (port 0: the system picks one). @returns the port.
  /// @error `ec::invalid_argument` if the address is not loopback and there is no secret; `ec::io_error` if
  /// the port
  ///        cannot be opened.
  template <class Handle>
  result<std::uint16_t> publish(const Handle& root, const std::string& host, std::uint16_t port) {
    return publish_actor(caf::actor_cast<caf::strong_actor_ptr>(root), system().message_types(root), host,
                         port);
  }

  /// Opens a link and returns the root actor at its other end. Blocks for at most `limit`.
  /// @error `ec::peer_lost` nobody answers there; `ec::unauthenticated` the secrets differ, or one end has
  /// none;
  ///        `ec::incompatible` protocol version or interface differ; `ec::timed_out`.
  template <class Handle>
  result<Handle> dial(const std::string& host, std::uint16_t port, duration limit = std::chrono::seconds(5)) {
    auto found = dial_actor(system().message_types(caf::detail::type_list<Handle>{}), host, port, limit);
    if (!found) return fail(std::move(found.error()));
    return caf::actor_cast<Handle>(std::move(*found));
  }

  link_counters counters() const;
  bool authenticated() const noexcept;  ///< there is a secret
  caf::actor_system& system() const noexcept;

 private:
  explicit cluster_link(std::unique_ptr<detail::link_state> state);
  result<std::uint16_t> publish_actor(caf::strong_actor_ptr root, std::set<std::string> interface,
                                      const std::string& host, std::uint16_t port);
  result<caf::strong_actor_ptr> dial_actor(std::set<std::string> interface, const std::string& host,
                                           std::uint16_t port, duration limit);

  std::unique_ptr<detail::link_state> state_;
};

}  // namespace mooncaf
