#pragma once
// The data plane of one node: its registered memory, its peers, and the choice of path for every transfer.
//
//   submit(transfer) ──► same node?  local copy
//                        same host?  shared memory ──fails──┐
//                        NICs?       RDMA, rail by rail ◄───┤
//                        else        TCP           ◄────────┘──► completion, exactly once
//
// Which node transfers which bytes is the control plane's business: descriptions of peers and regions come in
// through `add_peer`, as the control plane delivered them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "transport/fault_injector.hpp"
#include "transport/net/secret_file.hpp"
#include "transport/peer_address.hpp"
#include "transport/rdma/rdma_options.hpp"
#include "transport/region.hpp"
#include "transport/stats.hpp"
#include "transport/transfer.hpp"

namespace mooncaf {

struct local_region;

struct data_plane_options {
  node_id node;             ///< required, not zero
  key_ring cluster_secret;  ///< required, not empty; peers prove that they know it, it never travels

  bool tcp = true;
  std::string listen_host = "127.0.0.1";  ///< numeric address
  std::uint16_t data_port = 0;            ///< 0: any free port
  std::string advertised_host;            ///< address for peers to connect to; empty: `listen_host`
  unsigned tcp_streams = 2;               ///< connections per peer and direction, [1, 64]
  unsigned tcp_threads = 2;               ///< I/O threads, [1, 64]
  /// Bytes of a connection that the kernel may hold until the peer has them, [16 KiB, 64 MiB]. Small enough
  /// to stay in the cache between the copies in and out, which makes a fast link twice as fast; all
  /// connections together no less than the link's bandwidth x round trip.
  std::uint64_t tcp_send_buffer = 256 * KiB;

  bool shm = true;
  std::string unix_socket_dir;  ///< empty: abstract socket, which needs no cleaning up
  std::string host_id;          ///< empty: boot id and network namespace
  /// After work came over shared memory, look for more this long before sleeping, yielding to other threads:
  /// waking a sleeper costs both sides more than a short copy.
  duration poll_spin = std::chrono::microseconds(100);

  rdma_options rdma;  ///< without a device there is no such path, which is not an error

  std::uint64_t slice_bytes = 512 * KiB;  ///< longer slices are cut, [4 KiB, 16 MiB]
  bool checksums = true;                  ///< compute and verify; both nodes should agree
  std::size_t max_transfers =
      64 * 1024;  ///< per node, submitted and not complete; more are refused `overloaded`
  std::size_t max_transfers_per_peer = 256;  ///< at work at once per peer and path; the rest wait, [1, 1024]
  duration connect_timeout = std::chrono::seconds(2);  ///< also bounds handshakes
  duration peer_timeout = std::chrono::seconds(5);  ///< with work under way and no progress: the peer is lost
  duration close_timeout = std::chrono::seconds(2);  ///< how long a fence waits for a peer to stop
  duration retry_after =
      std::chrono::seconds(5);  ///< a path that failed to connect is not tried again before

  fault_injector* faults = nullptr;  ///< tests only; must outlive the data plane
};

/// Runs callbacks somewhere else. Null: they run on the threads of the transports.
using callback_executor = std::function<void(std::function<void()>)>;

/// Owns the threads, links and tables that move bytes for one node. Usually one per process; several work
/// too.
///
/// Handlers must not block for long, since they hold up a link, and must not call `close_peer`,
/// `remove_peer`, `unregister_region` or the destructor. They may submit and cancel.
/// @thread  All functions may be called from any thread.
class data_plane {
 public:
  /// Listens and starts threads.
  /// @error `ec::invalid_argument` names the option and its range; `ec::io_error` the address that was
  /// refused.
  static result<std::unique_ptr<data_plane>> start(data_plane_options options, landing_handler on_landing,
                                                   callback_executor executor = {});
  /// Fences every peer; transfers under way complete as `ec::cancelled` before this returns.
  ~data_plane();
  data_plane(const data_plane&) = delete;
  data_plane& operator=(const data_plane&) = delete;

  /// Offers memory to peers. The span must stay valid until `unregister_region` returned or the data plane is
  /// gone.
  /// @param fd         the memfd that backs the span, sealed against shrinking, or -1. Without it peers on
  /// the same
  ///                   host use TCP. It is duplicated. A peer that maps a region can see all of its memfd.
  /// @param fd_offset  where in it the span begins.
  /// @error `ec::invalid_argument`: empty span; a descriptor that is no sealed memfd or is too short.
  result<region_desc> register_region(std::span<std::byte> bytes, int fd = -1, std::uint64_t fd_offset = 0);
  /// Offers memory of an accelerator. Only RDMA reaches it, and only over NICs that accept the dma-buf or the
  /// peer memory: where none does the region exists, `rails()` says why, and transfers of it are refused with
  /// that reason. Nothing here computes or verifies a checksum of such bytes: the layer that serves them does
  /// so on the device.
  /// @param memory  must stay valid until `unregister_region` returned; the descriptor is duplicated.
  /// @error `ec::invalid_argument`: empty, past the end of the address space, or an offset without a dma-buf.
  result<region_desc> register_device_region(const device_memory& memory);
  /// Whether a NIC of this node has taken a region of device memory. @error `ec::unsupported` with each one's
  /// reason.
  result<void> reaches(region_id id) const;
  /// When it returns no peer can read or write the region any more.
  /// @error `ec::not_found`; `ec::overloaded` while transfers of this node still use it; `ec::timed_out` if a
  /// peer
  ///        that maps it neither stopped nor died: then the memory must not be reused.
  result<void> unregister_region(region_id id);

  peer_address local_address() const;
  /// Address and all regions, for the control plane to tell the peers.
  announcement local_announcement() const;

  /// Makes a peer reachable, or replaces its address and regions, and readmits it after `close_peer`. Its
  /// transfers may have landed before: a peer needs no introduction to write here, only the secret and the
  /// region's key.
  /// @error `ec::invalid_argument` if the address is this node's own or a region is not the peer's.
  result<void> add_peer(const peer_address& address, std::vector<region_desc> regions);
  /// A peer's region as memory of this process, for two that work in it together: bytes that are written there are
  /// no transfer, nothing verifies them, and no fence ends them, so the owner uses such memory once. Waits for the
  /// peer's answer; not for handlers.
  /// @error `ec::unsupported`: another host, or no shared memory at either end; `ec::not_found`; `ec::timed_out`.
  result<peer_view> map(node_id peer, region_id region);
  /// Forgets a peer and drops our links to it; transfers under way to it complete as `ec::peer_lost`.
  /// It may still write here: fence it with `close_peer` if it should not.
  void remove_peer(node_id node);
  /// The fence: when it returns with success, no byte of that peer can land here any more, over any path, and
  /// it is kept out (in its present incarnation) until `add_peer`. Works for peers that were never added,
  /// too.
  /// @error `ec::timed_out`: a peer that maps our memory neither stopped nor died; do not reuse the memory it
  /// knew.
  result<void> close_peer(node_id node);
  /// How often `close_peer` has succeeded for this peer. A caller that lets a peer write notes the count, and
  /// can tell later whether a fence has come since.
  std::uint64_t fences_of(node_id node) const;

  /// Starts a transfer; `on_done` is called exactly once, also for a transfer refused at once (then on this
  /// thread). A peer equal to `options.node` copies inside this node, without copying bytes already in place.
  void submit(transfer what, completion_handler on_done);
  /// Asks for an early end; see `transport::cancel`.
  void cancel(transfer_id id);

  /// The path that the next transfer to this peer would try first.
  transfer_path preferred_path(node_id peer) const;
  std::vector<path_stats> stats() const;
  /// NIC ports of this node; empty without RDMA.
  std::vector<rail_stats> rails() const;
  /// The devices that were found when RDMA was started, and the reason for each that was left out; for the
  /// log.
  const std::vector<std::string>& rdma_notes() const noexcept;
  /// Submitted and not complete.
  std::size_t transfers_in_flight() const;

 private:
  class impl;
  result<region_desc> add_region(std::shared_ptr<local_region> region);
  explicit data_plane(std::unique_ptr<impl> i);
  std::unique_ptr<impl> impl_;
};

}  // namespace mooncaf
