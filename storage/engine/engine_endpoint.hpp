#pragma once
// Questions of one transfer engine to another before bytes move: its number, and the memory that it offers. A
// TCP connection for each question, after both sides have proved that they know the secret.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "storage/engine/engine_wire.hpp"
#include "transport/net/event_loop.hpp"
#include "transport/net/handshake.hpp"
#include "transport/net/secret_file.hpp"

namespace mooncaf {

/// Answers questions of others, on a thread of its own.
class engine_endpoint {
 public:
  struct answers {
    std::function<std::vector<std::byte>()> describe;
    std::function<void(std::string name, std::string text)> notify;
  };
  /// @param port  0: a free one from 15000 to 16999, where Mooncake's lie.
  /// @error `ec::invalid_argument`, `ec::io_error` with the address
  static result<std::unique_ptr<engine_endpoint>> open(const std::string& host, std::uint16_t port,
                                                       key_ring secret, answers hooks);
  ~engine_endpoint();
  std::uint16_t port() const noexcept { return port_; }

 private:
  struct connection {
    unique_fd fd;
    std::uint64_t token = 0;
    handshake shake;
    time_point since{};
    bool believed = false;
    std::vector<std::byte> in, out;
    std::size_t sent = 0;
  };
  engine_endpoint(key_ring secret, answers hooks) : secret_(std::move(secret)), hooks_(std::move(hooks)) {}
  result<void> listen(const std::string& host, std::uint16_t port);
  void accept_all();
  bool serve(connection& v, std::uint32_t events);
  bool read(connection& v);
  bool take(connection& v);
  bool write(connection& v);
  bool drop_late();

  const key_ring secret_;
  answers hooks_;
  unique_fd listener_;
  std::uint16_t port_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<connection>> connections_;
  std::unique_ptr<event_loop> loop_;  // last: its thread uses the others
};

/// Puts a question to the engine at that address. @error `ec::peer_lost`, `ec::timed_out`,
/// `ec::unauthenticated`, `ec::corrupt`, with the address.
result<std::vector<std::byte>> ask_engine(const std::string& host, std::uint16_t port, const key_ring& secret,
                                          const engine_wire::question& q, time_point until);

}  // namespace mooncaf
