#pragma once
// One TCP connection between two nodes: handshake, then frames in both directions, on one thread of the
// transport. Any thread may end it.
//
//   connecting ─► handshaking ─► open ─► dead
//        └────────────┴────────────┴──────▲   (any error, or `kill` from any thread)

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "transport/net/event_loop.hpp"
#include "transport/net/handshake.hpp"
#include "transport/tcp/frame_reader.hpp"
#include "transport/tcp/frame_writer.hpp"
#include "transport/tcp/link_greeting.hpp"
#include "transport/tcp/tcp_link_owner.hpp"

namespace mooncaf {

class tcp_link : public std::enable_shared_from_this<tcp_link> {
 public:
  /// Decides about an authenticated initiator: gives the owner of the link, or refuses. Without the lock.
  using admission =
      std::function<result<std::shared_ptr<tcp_link_owner>>(tcp_link&, const link_identity& peer)>;

  /// Outgoing link; `fd` is connecting.
  tcp_link(event_loop& loop, unique_fd fd, handshake shake, std::shared_ptr<tcp_link_owner> owner);
  /// Incoming link.
  tcp_link(event_loop& loop, unique_fd fd, handshake shake, admission admit);
  ~tcp_link();

  /// Starts watching the socket.
  void start();
  /// Something to send: asks the owner for frames on the link's thread.
  void kick();
  /// Ends the link from any thread; when it returns, no byte is read into or sent from a region over it.
  void kill(const error& why);
  /// `kill`, but soon and on the link's thread; allowed inside owner calls.
  void kill_later(const error& why);
  /// Runs after the lock of the current I/O step is released, before anything is sent. Only inside owner
  /// calls.
  void defer(std::function<void()> action) { deferred_.push_back(std::move(action)); }
  /// True if bytes of a region are being received or sent right now. Kills the link first if `kill_if` says
  /// so.
  bool kill_if_using(region_id region, const error& why);

  bool dead() const noexcept { return dead_; }
  bool open() const noexcept { return open_; }
  /// The other side closed the connection, or its kernel did for it; false if the network went silent.
  bool closed_by_peer() const noexcept { return reader_.closed_by_peer(); }
  /// Bytes in and out so far; a link that is alive and has work makes it grow.
  std::uint64_t progress() const noexcept { return reader_.bytes() + writer_.bytes(); }
  const link_identity& peer() const noexcept { return greeting_.peer(); }
  /// A payload is arriving here with more to come from its sender. Only inside owner calls.
  bool amid_a_stream() const noexcept { return reader_.amid_a_stream(); }

 private:
  static constexpr std::size_t step_bytes_max = 4 * MiB;  // then other links get their turn

  void on_events(std::uint32_t events);
  void io_step(std::uint32_t events);
  result<void> read_some();
  result<void> write_some();
  void finish_admission();
  void die(const error& why);
  void report_death();
  void run_deferred();
  void want_events();

  event_loop& loop_;
  unique_fd fd_;
  std::shared_ptr<tcp_link_owner> owner_;
  admission admit_;
  std::uint64_t token_ = 0;  // loop's thread
  std::uint32_t watched_events_ = 0;

  std::mutex io_mutex_;  // guards everything below that is not atomic
  bool connected_ = false;
  bool needs_admission_ = false;
  bool write_blocked_ = false;
  link_greeting greeting_;
  frame_reader reader_{*this};
  frame_writer writer_{*this};
  std::vector<std::function<void()>> deferred_;
  error death_;
  bool death_reported_ = false;

  std::atomic<bool> dead_{false};
  std::atomic<bool> open_{false};
  std::atomic<bool> kicked_{false};
};

}  // namespace mooncaf
