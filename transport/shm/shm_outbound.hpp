#pragma once
// All that this node has under way to one process of this host: the initiator's end of a shared-memory link.
//
//   connecting ─► handshake ─► welcome ─► open ─► ended
//
//   queued ─► told ─► hashed here, copied and hashed there ─► acknowledged   (write)
//   queued ─► copied                                                         (read)
//
// A write with checksums is pulled: this end tells where the pieces are and hashes them while the owner
// copies and hashes them in one pass; then the owner compares. So the bytes that were verified are the bytes
// that the owner wrote, and none is read a second time after it was written. (Handing each piece over through
// the shared cache, hashed here first, measured slower: reading from another core's cache costs more than
// reading memory.) Where the owner cannot map the source, or with checksums off, this end copies and the
// owner verifies the copy.

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/net/event_loop.hpp"
#include "transport/net/handshake.hpp"
#include "transport/outbound_book.hpp"
#include "transport/shm/link_memory.hpp"
#include "transport/shm/shm_wire.hpp"

namespace mooncaf {

/// @thread  the transport's loop
class shm_outbound : public std::enable_shared_from_this<shm_outbound> {
 public:
  using ended_handler = std::function<void(shm_outbound&)>;
  using view_handler = std::function<void(result<peer_view>)>;

  shm_outbound(node_state& node, event_loop& loop, std::shared_ptr<const peer_info> peer,
               ended_handler on_ended);

  result<void> open();
  void submit(transfer what, completion_handler on_done);
  void cancel(transfer_id id);
  /// Calls back with the peer's region as it is mapped here, or why it is not.
  void view(region_id region, view_handler on_there);
  /// Takes answers, copies about one piece. @returns true if there was something to do.
  bool poll();
  void arm();
  void disarm();
  /// Deadlines and lost peers. @returns true while something is under way.
  bool tick(time_point now);
  void end(const error& why);
  node_id peer() const noexcept { return peer_->address.node; }
  /// A region of this node is gone: the peer lets go of it.
  void withdraw(region_id region);
  /// Learns regions that were announced after the link was made. @returns false if the address is another
  /// one.
  bool update(const std::shared_ptr<const peer_info>& peer);

 private:
  struct job : outbound_job {
    std::size_t slice_index = 0;  // the next slice to copy or hash
    std::uint64_t slice_offset = 0;
    std::uint32_t piece_index = 0;
    std::uint64_t unnoticed_bytes = 0;
    std::size_t told_slice = 0;  // pulled: the next piece that the owner is not told of yet
    std::uint64_t told_offset = 0;
    bool queued = false;    // in `queue_`
    bool prepared = false;  // the owner has been told enough for the bytes to move
    bool pulled = false;    // the owner copies
    bool noticed_some = false;
    bool lost = false;  // fault injection: the rest never arrives
    shm_notice notice;
    time_point hold_until{};

    std::size_t piece_count() const noexcept { return piece_index; }
  };
  struct mapped_region {
    std::uint64_t access_key = 0;
    bool pending = false;
    error refusal;
    peer_view view;
  };
  struct wanted_view {
    region_id region;
    view_handler on_there;
  };
  struct offered_region {
    bool pending = false;
    bool usable = false;
  };
  enum class stage { handshaking, welcoming, open, ended };
  enum class step { worked, waits, finished };

  void on_socket(std::uint32_t events);
  result<void> on_packet(const std::vector<std::byte>& bytes, std::vector<unique_fd>& fds);
  result<void> on_handshake(const std::vector<std::byte>& bytes);
  result<void> on_welcome(const std::vector<unique_fd>& fds);
  result<void> on_map_reply(const shm_packet& p, const std::vector<unique_fd>& fds);
  result<void> on_offer_reply(const shm_packet& p);
  result<void> send(const shm_packet& p, std::span<const int> fds = {});

  bool take_acks();
  void begin_waiting();
  void enqueue(job& j);
  void dequeue(job& j);
  bool work();
  step prepare(job& j);
  step map_regions(job& j);
  result<const mapped_region*> mapped(region_id wanted);
  void answer_views();
  step offer_regions(job& j);
  result<offered_region> offer(region_id id);
  step tell(job& j);
  step copy_some(job& j);
  step copy_piece(job& j, const slice_pair& pair, std::uint64_t n);
  bool publish(job& j, bool last);
  result<void> check_slice(const job& j, const slice_pair& pair, std::uint64_t piece_sum);
  void request_end(job& j, error why);
  step finish(job& j, result<void> outcome);
  bool pulling_stopped();

  node_state& node_;
  event_loop& loop_;
  std::shared_ptr<const peer_info> peer_;
  ended_handler on_ended_;
  unique_fd socket_;
  std::uint64_t token_ = 0;
  std::optional<handshake> shake_;
  stage stage_ = stage::handshaking;

  shared_mapping link_mapping_;
  link_memory* memory_ = nullptr;
  unique_fd peer_wake_;
  peer_memory mappings_;
  std::unordered_map<region_id, mapped_region> regions_;
  std::unordered_map<region_id, offered_region> offers_;
  std::vector<wanted_view> views_;  ///< whose answers are awaited

  outbound_book<job> book_;
  std::deque<job*> queue_;  // begun and not told to its end; the front is being copied
  bool peer_closed_ = false;
  std::vector<std::byte> record_;
  std::uint64_t progress_ = 0;  // counts signs of life, and pieces
};

}  // namespace mooncaf
