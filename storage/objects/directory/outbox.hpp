#pragma once
// Frames from the directory to its sessions beside direct answers: journal entries to the holders of
// segments, and answers that wait until holders have acknowledged the entries that they depend on. No socket
// and no clock.
//
//   write ───────► entries ── one frame ──► ready ── deliver ──► the server
//   an answer ───► held ── acknowledged ──► ready

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/objects/wire/store_wire.hpp"

namespace mooncaf {

/// Invariant: a session's frames stay in the order in which they were written or answered, and an answer goes
/// out after the entries that were written while it was made.
/// @thread  not synchronised. A session that is not open is ignored.
class outbox {
 public:
  struct delivery {
    std::uint64_t session;
    std::span<const std::byte> bytes;
    bool urgent;  ///< a client waits until the receiver has acted on them
  };

  void open(std::uint64_t session) { boxes_[session]; }
  void close(std::uint64_t session);
  bool is_open(std::uint64_t session) const { return boxes_.count(session) != 0; }
  /// The session's link sleeps until it is woken on purpose, so its urgent frames need no filler.
  void wakes_on_purpose(std::uint64_t session);
  /// Stamps the frames that are made from now on.
  void at(time_point now) noexcept { now_ = now; }

  // ---- journal entries
  /// Adds an entry to the session's next journal frame. @param rest  writes the bytes behind kind and
  /// segment.
  void write(
      std::uint64_t to, store_wire::entry kind, std::uint32_t segment,
      const std::function<void(byte_writer&)>& rest = [](byte_writer&) {});
  /// From now on the session hears entries to all holders, and is never left without a frame for long.
  void add_holder(std::uint64_t session);
  void write_to_holders(store_wire::entry kind, std::uint32_t segment);
  /// A client waits for work that the session is to do by its next frame.
  void wake(std::uint64_t session);
  /// A client waits for the session's acknowledgement of its next frame. @returns that frame's number.
  std::uint64_t want_acknowledged(std::uint64_t session);
  /// All entries that were written until now go out, to every session, before any that come later. A
  /// directory that is killed between two sessions has then told the first ones to all of them.
  void send_before_more();
  /// @returns false for a number that no frame of the session's has had.
  bool acknowledge(std::uint64_t session, std::uint64_t number);
  std::uint64_t acknowledged(std::uint64_t session) const;
  /// Makes a frame, if need be an empty one, for each holder that has been sent none for so long that its
  /// link would look lost to it.
  void keep_links_alive();

  // ---- answers
  /// An answer is being made; nothing holds it back yet.
  void begin_answer() { heard_first_.clear(); }
  /// The answer in the making is sent only when the session has acknowledged its next frame.
  void hold_until_acknowledged(std::uint64_t session);
  /// Takes the answer, which begins at `begin` of `out`, out of there if holders must hear of it first, or if
  /// others of the session's are to be sent before it.
  /// @returns false if too many of the session's answers wait already.
  bool hold_back(std::uint64_t session, std::size_t begin, std::vector<std::byte>& out);
  /// Sends an answer that was not made while its question was read.
  void send(std::uint64_t session, std::span<const std::byte> answer);
  /// Looks for held answers that may go out. To be called after acknowledgements, and after a session closed.
  void release_held();

  /// Hands over everything that is to be sent. It must go out before the direct answers: so a directory that
  /// is killed has told the holders whatever it has told its clients.
  void deliver(const std::function<void(const delivery&)>& to);

 private:
  using need = std::pair<std::uint64_t, std::uint64_t>;  // session, number of its frame
  struct held_answer {
    std::vector<need> until;
    std::vector<std::byte> bytes;
  };
  struct box {
    std::vector<std::byte> entries;  // of the next journal frame
    store_wire::waits waited_for = {};
    std::uint64_t told = 0, acknowledged = 0;  // numbers of journal frames
    time_point told_at{};
    std::vector<std::byte> ready;
    bool urgent = false;  // a client waits until the session has acted on `ready`
    bool woken_on_purpose = false, holder = false;
    bool listed = false;  // in `with_output_`
    bool staged = false;  // has bytes in `staged_`
    std::deque<held_answer> held;
    std::size_t held_bytes = 0;
  };
  struct staged_bytes {
    std::uint64_t session;
    std::vector<std::byte> bytes;
    bool urgent;
  };
  box* find(std::uint64_t session);
  void make_frame(box& b);
  void list(std::uint64_t session, box& b);

  std::map<std::uint64_t, box> boxes_;
  std::vector<std::uint64_t> with_output_;
  std::vector<staged_bytes> staged_;  // goes out before `ready` of any box, in this order
  std::set<std::uint64_t> waiting_;   // sessions with held answers
  std::vector<need> heard_first_;     // entries the answer in the making waits for
  time_point now_{};
};

}  // namespace mooncaf
