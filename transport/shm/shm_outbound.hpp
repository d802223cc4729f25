#pragma once
// All that this node has under way to one process of this host: the initiator's end of a shared-memory link.
//
//   connecting ─► handshake ─► welcome ─► open ─► ended
//
//   queued ─► copying, piece by piece ─► noticed ─► acknowledged ─► completion      (write)
//   queued ─► copying ─► completion                                                 (read)

#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/net/event_loop.hpp"
#include "transport/net/handshake.hpp"
#include "transport/node_state.hpp"
#include "transport/shm/link_memory.hpp"
#include "transport/shm/shm_wire.hpp"

namespace mooncaf {

/// @thread  the transport's loop
class shm_outbound : public std::enable_shared_from_this<shm_outbound> {
 public:
  using ended_handler = std::function<void(shm_outbound&)>;

  shm_outbound(node_state& node, event_loop& loop, std::shared_ptr<const peer_info> peer,
               ended_handler on_ended);

  result<void> open();
  void submit(transfer what, completion_handler on_done);
  void cancel(transfer_id id);
  /// Takes answers, copies about one piece. @returns true if there was something to do.
  bool poll();
  void arm();
  void disarm();
  /// Deadlines and lost peers. @returns true while something is under way.
  bool tick(time_point now);
  void end(const error& why);
  node_id peer() const noexcept { return peer_->address.node; }
  /// Learns regions that were announced after the link was made. @returns false if the address is another
  /// one.
  bool update(const std::shared_ptr<const peer_info>& peer);

 private:
  struct job {
    transfer what;
    completion_handler on_done;
    std::size_t slice_index = 0;
    std::uint64_t slice_offset = 0;
    std::uint32_t piece_index = 0;
    std::uint64_t bytes = 0;
    std::uint64_t unnoticed_bytes = 0;
    bool noticed_some = false;
    bool lost = false;  // fault injection: the rest never arrives
    shm_notice notice;
    time_point hold_until{};
  };
  struct mapped_region {
    std::uint64_t access_key = 0;
    bool pending = false;
    error refusal;
    std::byte* base = nullptr;
    std::uint64_t length = 0;
  };
  enum class stage { handshaking, welcoming, open, ended };
  enum class step { worked, waits, finished };

  void on_socket(std::uint32_t events);
  result<void> on_packet(const std::vector<std::byte>& bytes, std::vector<unique_fd>& fds);
  result<void> on_handshake(const std::vector<std::byte>& bytes);
  result<void> on_welcome(const std::vector<unique_fd>& fds);
  result<void> on_map_reply(const shm_packet& p, const std::vector<unique_fd>& fds);
  result<void> send(const shm_packet& p, std::span<const int> fds = {});

  bool take_acks();
  bool work();
  step map_regions(job& j);
  step copy_some(job& j);
  step copy_piece(job& j, const slice_pair& pair, std::uint64_t n);
  result<std::uint64_t> copy_through_gate(std::byte* to, const std::byte* from, std::uint64_t n,
                                          bool checksum);
  bool publish(job& j, bool last);
  result<void> check_slice(const job& j, const slice_pair& pair, std::uint64_t piece_sum);
  void abandon(job& j);
  void finish(job j, result<void> outcome);
  void finish_front(result<void> outcome);

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
  std::unordered_map<std::uint64_t, shared_mapping> mappings_;  // by inode of the memfd
  std::unordered_map<region_id, mapped_region> regions_;

  std::deque<job> queue_;                         // the front is being copied
  std::unordered_map<transfer_id, job> noticed_;  // wait for their acknowledgement
  std::vector<std::byte> record_;
  time_point progress_at_ = clock_type::now();
};

}  // namespace mooncaf
