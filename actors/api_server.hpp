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

/// What the front asks others for. Called on I/O threads; the answer may come later.
struct api_backends {
  /// JSON of the whole cluster; empty when no conductor answers.
  std::function<void(std::function<void(std::string)>)> cluster;
  /// Prometheus text of this process.
  std::function<std::string()> metrics;
};

/// @thread Handlers run on the server's I/O threads; everything here is immutable or thread-safe.
class api_server {
 public:
  /// @error `ec::io_error` if the address cannot be had; `ec::io_error` for an unreadable key file.
  static result<std::unique_ptr<api_server>> start(context_ptr context, gateway_actor gateway,
                                                   api_backends backends);
  ~api_server();

  std::uint16_t port() const noexcept;

 private:
  class impl;
  explicit api_server(std::unique_ptr<impl> i);
  std::unique_ptr<impl> impl_;
};

}  // namespace mooncaf
