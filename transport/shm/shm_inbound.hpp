#pragma once
// One process of this host's access to this node's memory: the owner's end of a shared-memory link.

#include <atomic>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/net/event_loop.hpp"
#include "transport/net/handshake.hpp"
#include "transport/node_state.hpp"
#include "transport/shm/link_memory.hpp"
#include "transport/shm/offered_memory.hpp"
#include "transport/shm/region_grants.hpp"
#include "transport/shm/shm_wire.hpp"

namespace mooncaf {

/// @thread  the transport's loop, except where stated. Pulls are copied there, so an ended link copies
/// nothing.
class shm_inbound : public std::enable_shared_from_this<shm_inbound> {
 public:
  /// Decides about an authenticated initiator.
  using admission = std::function<result<void>(const link_identity&)>;
  using ended_handler = std::function<void(shm_inbound&)>;

  shm_inbound(node_state& node, event_loop& loop, unique_fd socket, handshake shake, admission admit,
              ended_handler on_ended);

  void start();
  bool poll();
  void arm();
  void disarm();
  void end(const error& why);
  bool established() const noexcept { return memory_ != nullptr; }
  time_point since() const noexcept { return since_; }

  /// The fence, from any thread but the loop's: keeps the initiator from starting another copy and waits
  /// until it is in none. @returns false if it neither left nor died in time.
  bool revoke(duration patience);
  /// Any thread. True if the initiator was given the memory of a region.
  bool granted(region_id region) const { return grants_.given(region); }
  node_id peer() const noexcept { return peer_node_.load(); }
  std::uint64_t incarnation() const noexcept { return peer_incarnation_; }

 private:
  struct assembly {
    std::uint64_t bytes = 0;
    std::vector<std::uint64_t> sums;  // of the pieces, as this end computed them
    std::size_t compared = 0;
    bool ours = false;
    bool corrupt = false;
    error cause;
  };

  void on_socket(std::uint32_t events);
  result<void> on_packet(const std::vector<std::byte>& bytes, std::vector<unique_fd>& fds);
  result<void> on_handshake(const std::vector<std::byte>& bytes);
  result<void> welcome();
  result<void> grant(const shm_packet& request);
  result<void> accept_offer(const shm_packet& offer, const std::vector<unique_fd>& fds);
  result<void> on_notice(const shm_notice& n);
  result<void> verify(const shm_notice& n, assembly& a);
  result<std::uint64_t> take_piece(const shm_piece& p, std::byte* to);
  result<void> conclude(const shm_notice& n, const assembly& a);
  result<void> send(const shm_packet& p, std::span<const int> fds);
  result<void> acknowledge(transfer_id id, error outcome);

  node_state& node_;
  event_loop& loop_;
  unique_fd socket_;
  handshake shake_;
  admission admit_;
  ended_handler on_ended_;
  const time_point since_ = clock_type::now();
  std::uint64_t token_ = 0;
  unique_fd peer_wake_;
  shared_mapping mapping_;
  link_memory* memory_ = nullptr;
  std::unordered_map<transfer_id, assembly> assemblies_;
  offered_memory offers_;
  std::vector<std::byte> record_;
  bool ended_ = false;

  std::atomic<node_id> peer_node_{};
  std::uint64_t peer_incarnation_ = 0;
  std::atomic<link_memory*> gate_{nullptr};
  std::atomic<bool> gone_{false};  // the initiator's end of the socket is closed: it copies nothing any more
  region_grants grants_;
};

}  // namespace mooncaf
