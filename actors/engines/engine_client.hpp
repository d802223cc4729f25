#pragma once
// Calls to an engine's HTTP server: many streams at once, on one thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/base/host_port.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "runtime/engines/completion_reader.hpp"

namespace mooncaf {

/// @thread  Any may call; what is told comes from the client's own thread, and must not block.
class engine_client {
 public:
  /// What becomes of a stream.
  struct listener {
    std::function<void(completion_piece)> heard;
    /// Last of all. @param why  code none: it came to its end. `ec::peer_lost`: the engine takes no connection.
    /// @param retriable  the same may succeed elsewhere.
    std::function<void(error why, bool retriable)> ended;
  };

  /// @param key  that it asks for as a bearer token; empty: none.
  engine_client(host_port at, std::string key);
  /// Nothing is told any more afterwards.
  ~engine_client();
  engine_client(const engine_client&) = delete;
  engine_client& operator=(const engine_client&) = delete;

  /// Asks for a completion. @param call  its name, of no other call under way. @param body  as of `completion_body`
  void complete(std::uint64_t call, engine_make make, std::string body, listener to);
  /// Closes the call's connection, by which the engine ends it; nothing more is told of it but what is on its way.
  void hang_up(std::uint64_t call);
  /// @param then  is told the body of a 200. @error `ec::peer_lost`, `ec::timed_out`, `ec::unavailable`.
  void get(std::string path, duration limit, std::function<void(result<std::string>)> then);
  /// The same, waiting for it. @pre not on the client's thread
  result<std::string> get(const std::string& path, duration limit);

  const host_port& at() const noexcept { return at_; }

 private:
  class call;
  struct io;

  host_port at_;
  std::string key_;
  std::unique_ptr<io> io_;
};

}  // namespace mooncaf
