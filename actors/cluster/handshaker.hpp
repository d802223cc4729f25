#pragma once
// The door: connections that were accepted stay here, away from CAF, until they have proved that they know
// the key.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "actors/cluster/host_names.hpp"
#include "actors/cluster/tls.hpp"
#include "runtime/base/posix.hpp"
#include "runtime/base/units.hpp"
#include "runtime/sched/rate_limit.hpp"

namespace mooncaf {

/// Outcomes of connections.
struct door_counters {
  std::uint64_t admitted = 0;  ///< proved that they know the key
  std::uint64_t refused = 0;   ///< spoke, but did not prove it
  std::uint64_t expired = 0;   ///< said too little for too long, or were too many
};

struct door_limits {
  duration patience = std::chrono::seconds(3);  ///< for one handshake
  std::size_t waiting_max = 128;                ///< handshakes under way; the oldest makes room for one more
};

/// One thread that runs the server side of all handshakes. CAF's own OpenSSL module runs them in the thread
/// of all connections instead, where it spins while a peer is silent and lets a failed handshake break
/// healthy links.
class handshaker {
 public:
  /// Called on the handshaker's thread with a connection that has proved itself.
  using admit_function = std::function<void(unique_fd, tls_session)>;

  /// @param context  outlives this object.
  handshaker(const tls_context& context, door_limits limits);
  ~handshaker();

  /// Takes over a non-blocking socket that was just accepted. Closes it if the handshaker has stopped.
  /// @thread any
  void submit(unique_fd fd, admit_function admit);

  /// Closes all connections that still wait, and joins the thread. @thread any but the handshaker's
  void stop();

  door_counters counters() const;

 private:
  struct guest {
    unique_fd fd;
    tls_session session;
    admit_function admit;
    std::string name;
    time_point deadline;
    short wants;
  };
  enum class outcome { waits, leaves };

  void loop();
  void take_arrivals();
  outcome advance(guest& g);
  void turn_away(const guest& g, const std::string& why, std::uint64_t door_counters::*counter);
  void wake() noexcept;

  const tls_context& context_;
  const door_limits limits_;
  unique_fd wake_;
  std::deque<guest> guests_;  ///< the thread's own; oldest first
  rate_limit lines_{60};  ///< the thread's own: connections without a key must not fill a disk with log lines
  std::uint64_t untold_ = 0;  ///< refused since the last line about it

  mutable std::mutex mutex_;
  std::vector<guest> arrivals_;
  door_counters counters_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace mooncaf
