#pragma once
// The HTTP front: routes requests, turns bodies into client requests for the gateway, answers the rest
// itself.

#include <caf/actor_system.hpp>
#include <functional>
#include <memory>

#include "actors/http/http_server.hpp"
#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"

namespace mooncaf {

/// Questions of the front to the rest of the process. Called on I/O threads; the answer may come later.
struct api_backends {
  /// How the whole cluster stands; `ec::unavailable` when no conductor answers.
  std::function<void(std::function<void(const result<cluster_status>&)>)> cluster;
  /// Prometheus text of this process.
  std::function<std::string()> metrics;
};

/// I/O threads only route: bodies that are not small are parsed, and their prompts tokenized, on threads of
/// their own.
/// @thread Everything here is immutable or thread-safe.
class api_server {
 public:
  /// @error `ec::io_error` if the address cannot be had or a key file not be read; `ec::invalid_argument`
  /// with the line of a key file.
  static result<std::unique_ptr<api_server>> start(context_ptr context, gateway_actor gateway,
                                                   api_backends backends);
  ~api_server();

  /// `/health` says from now on that this gateway leaves, no connection is taken any more, and what the open ones
  /// still bring is answered as their last request.
  void drain();
  std::size_t answering() const;
  std::size_t connections() const noexcept;

  /// Takes no more requests (503), ends the gateway, which tells those under way, and waits until they have
  /// been told, for `limit` at most.
  void stop(duration limit);

  std::uint16_t port() const noexcept;

 private:
  class impl;
  explicit api_server(std::unique_ptr<impl> i);
  std::unique_ptr<impl> impl_;
};

}  // namespace mooncaf
