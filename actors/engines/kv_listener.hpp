#pragma once
// Listens to the news that an engine publishes of its prefix cache, over ZeroMQ.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/engines/engine_core.hpp"

namespace mooncaf {

/// Where an engine publishes (vLLM's `--kv-events-config`), as ZeroMQ writes addresses: tcp://HOST:PORT, ipc://FILE.
struct kv_endpoints {
  std::string news;  ///< its `endpoint`
  std::string
      replay;  ///< its `replay_endpoint`: what was missed is asked for there; empty: what is held is forgotten instead
};

/// @thread  Its own; connects again by itself.
class kv_listener {
 public:
  /// @param then  is told from the listener's thread, and must not block.
  /// @error `ec::invalid_argument` for an address that is none.
  static result<std::unique_ptr<kv_listener>> start(const kv_endpoints& at,
                                                    std::function<void(engine_news)> then);
  /// Nothing is told any more afterwards; takes a fifth of a second at most.
  ~kv_listener();
  kv_listener(const kv_listener&) = delete;
  kv_listener& operator=(const kv_listener&) = delete;

 private:
  class listening;
  explicit kv_listener(std::unique_ptr<listening> state);

  std::unique_ptr<listening> state_;
};

}  // namespace mooncaf
