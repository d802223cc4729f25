#pragma once
// All that this node has under way to one peer over TCP: its connections and the transfers on them.
//
// A transfer is cut into pieces. Every connection that has room takes the next piece, so pieces stripe over
// the connections by themselves and a slow one takes fewer. When one connection breaks the session is over:
// the peer drops all of its connections before it admits a new session, hence no late byte of an old one can
// land.
//
//   queued pieces ─► sent ─► result ─► completion
//         └─ cancel / deadline ─► cancel frame ─► cancel_result ─┘

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "transport/outbound_book.hpp"
#include "transport/tcp/tcp_link.hpp"

namespace mooncaf {

class tcp_session : public tcp_link_owner, public std::enable_shared_from_this<tcp_session> {
 public:
  using ended_handler = std::function<void(tcp_session&)>;

  /// @param on_ended  called once when the session is over; then nothing is under way in it any more.
  tcp_session(node_state& node, std::shared_ptr<const peer_info> peer, ended_handler on_ended);

  /// Starts connecting. Not waiting for it, `submit` may follow.
  result<void> open(const std::vector<std::unique_ptr<event_loop>>& loops);
  /// @error what ended the session, if it is over; both arguments are then as they were.
  result<void> submit(transfer& what, completion_handler& on_done);
  void cancel(transfer_id id);
  /// Ends the session: transfers under way complete with `why`.
  void end(const error& why);
  /// Deadlines and lost peers. @returns true while something is under way.
  bool tick(time_point now);
  node_id peer() const noexcept { return peer_node_; }
  /// Learns regions that were announced after the session began. @returns false if the address is another
  /// one.
  bool update(const std::shared_ptr<const peer_info>& peer);

  // tcp_link_owner
  result<frame_sink> on_header(tcp_link& link, const frame_header& h) override;
  result<void> on_frame(tcp_link& link, const frame_header& h, const frame_sink& sink,
                        std::span<const std::byte> control) override;
  bool next_frame(tcp_link& link, outgoing_frame& out) override;
  void on_sent(tcp_link& link, const outgoing_frame& f) override;
  void on_abandoned(tcp_link& link, const frame_header& h, const frame_sink& sink) override;
  void on_broken(tcp_link& link, const error& why) override;

 private:
  struct piece {
    std::byte* local = nullptr;
    slice remote;
    std::uint64_t access_key = 0;
    bool arrived = false;  // read
  };
  struct job : outbound_job {
    std::vector<piece> pieces;
    std::uint32_t arrived = 0;  // read: pieces
    bool touched = false;       // some frame of it was handed to a connection

    std::size_t piece_count() const noexcept { return pieces.size(); }
  };
  using book = outbound_book<job>;
  enum class order_kind : std::uint8_t { data, read, cancel };
  struct order {
    transfer_id id;
    order_kind kind;
    std::uint32_t next = 0;
    std::uint32_t end = 0;
  };

  void activate();

  // All with the session's lock held.
  void start(job& j);
  result<std::vector<piece>> cut(const transfer& t) const;
  void drop_orders(transfer_id id);
  void settle(job& j, result<void> outcome);
  void request_end(job& j, ec why);
  void wake_links(std::size_t count);
  std::optional<error> lost_peer(time_point now);
  bool make_data_frame(tcp_link& link, order& o, job& j, outgoing_frame& out);
  void make_read_frame(const order& o, const job& j, outgoing_frame& out);
  void on_read_piece(job& j, const frame_header& h, bool intact);
  void tell_later(tcp_link& link);

  node_state& node_;
  ended_handler on_ended_;
  const node_id peer_node_;

  std::mutex mutex_;
  std::shared_ptr<const peer_info> peer_;
  std::vector<std::shared_ptr<tcp_link>> links_;
  std::vector<tcp_link*> idle_;  // asked for a frame, got none
  book book_;
  std::deque<order> orders_;
  std::optional<error> over_;  // why it ended
  time_point hold_until_{};    // fault injection: delay
};

}  // namespace mooncaf
