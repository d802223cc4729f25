#pragma once
// One TCP connection between two nodes: handshake, then frames, received into the memory they are for (long
// ones by way of the core's cache, hashed as they go on) and sent straight from the memory they lie in.
//
//   connecting ─► handshaking ─► open ─► dead
//        └────────────┴────────────┴──────▲   (any error, or `kill` from any thread)

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "transport/copy/stream_copy.hpp"
#include "transport/net/event_loop.hpp"
#include "transport/net/handshake.hpp"
#include "transport/tcp/wire.hpp"

namespace mooncaf {

class tcp_link;

/// A frame on its way out. `payload` points into a region or into `own`.
struct outgoing_frame {
  frame_header header;
  const std::byte* payload = nullptr;
  std::vector<std::byte> own;
  region_id region;  ///< where `payload` lies, or none
};

/// Where the payload of an incoming frame goes.
struct frame_sink {
  enum class kind {
    memory,   ///< `at`, inside `region`
    control,  ///< a buffer of the link
    discard,  ///< nowhere
  };
  kind to = kind::control;
  std::byte* at = nullptr;
  region_id region;
  /// xxh3-64 of what arrived, where the link took it on the way to `at`. Set when the frame is complete.
  std::optional<std::uint64_t> sum = {};
};
/// Whether a data frame that is complete brought what its sender sent, as far as that is known.
/// @param verify  false: checksums are not looked at.
bool is_intact(const frame_header& h, const frame_sink& sink, bool verify);

/// What a link serves: an outgoing session or an incoming one.
/// The first five are called with the link's I/O lock held: they must not call another link. Work that has to
/// happen outside of it goes through `tcp_link::defer`.
class tcp_link_owner {
 public:
  virtual ~tcp_link_owner() = default;
  /// A header arrived. An error breaks the link.
  virtual result<frame_sink> on_header(tcp_link& link, const frame_header& h) = 0;
  /// Its payload is complete (in memory, in `control`, or gone). An error breaks the link.
  virtual result<void> on_frame(tcp_link& link, const frame_header& h, const frame_sink& sink,
                                std::span<const std::byte> control) = 0;
  /// The socket takes more: gives the next frame, or false.
  virtual bool next_frame(tcp_link& link, outgoing_frame& out) = 0;
  /// A frame has left (or never will, if the link is dead): its payload is not looked at any more.
  virtual void on_sent(tcp_link& link, const outgoing_frame& f) = 0;
  /// The target of `on_header` is not written any more although the frame is incomplete: the link died.
  virtual void on_abandoned(tcp_link& link, const frame_header& h, const frame_sink& sink) = 0;
  /// Exactly once, without the lock: the link is dead.
  virtual void on_broken(tcp_link& link, const error& why) = 0;
};

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
  bool closed_by_peer() const noexcept { return closed_by_peer_; }
  /// Bytes in and out so far; a link that is alive and has work makes it grow.
  std::uint64_t progress() const noexcept { return progress_; }
  const link_identity& peer() const noexcept { return shake_.peer(); }
  /// A payload is arriving here whose sender has more to send behind it. Only inside owner calls.
  bool amid_a_stream() const noexcept { return in_payload_ && header_.more; }

 private:
  static constexpr std::size_t step_bytes_max = 4 * MiB;  // then other links get their turn
  static constexpr std::size_t batch_frames_max = 16;
  static constexpr std::size_t left_over_max = 1088;

  void on_events(std::uint32_t events);
  void io_step(std::uint32_t events);
  result<void> read_some();
  result<void> read_handshake();
  result<void> take_handshake(const std::vector<std::byte>& message);
  result<void> read_frames();
  result<void> take_bytes(std::size_t n);
  std::span<::iovec> room_to_read(std::array<::iovec, 2>& parts);
  void land(std::size_t n);
  result<void> begin_frame();
  result<void> end_frame();
  result<void> write_some();
  void fill_batch();
  result<void> send_batch(bool& blocked);
  void finish_admission();
  void die(const error& why);
  void report_death();
  void run_deferred();
  void want_events();

  event_loop& loop_;
  unique_fd fd_;
  handshake shake_;
  std::shared_ptr<tcp_link_owner> owner_;
  admission admit_;
  std::uint64_t token_ = 0;  // loop's thread
  std::uint32_t watched_events_ = 0;

  std::mutex io_mutex_;  // guards everything below that is not atomic
  bool connected_ = false;
  bool needs_admission_ = false;
  bool write_blocked_ = false;
  std::vector<std::byte> raw_in_;  // handshake
  std::vector<std::byte> raw_out_;
  frame_header_buffer header_bytes_{};
  std::size_t header_have_ = 0;
  bool in_payload_ = false;
  frame_header header_;
  frame_sink sink_;
  std::size_t payload_have_ = 0;
  bool staged_ = false;        // the payload passes through `landing_room` on its way into memory
  copy_in_parts landed_;       // of it
  std::size_t left_over_ = 0;  // bytes of it that have come and are to be copied with those that follow
  std::array<std::byte, left_over_max> left_;
  std::vector<std::byte> control_;
  struct sending {
    outgoing_frame frame;
    frame_header_buffer header;
  };
  std::deque<sending> batch_;
  std::size_t batch_sent_ = 0;  // bytes of the first frame of the batch that have left
  std::vector<std::function<void()>> deferred_;
  error death_;
  bool death_reported_ = false;

  std::atomic<bool> dead_{false};
  std::atomic<bool> open_{false};
  std::atomic<bool> closed_by_peer_{false};
  std::atomic<bool> kicked_{false};
  std::atomic<std::uint64_t> progress_{0};
};

}  // namespace mooncaf
