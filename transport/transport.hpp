#pragma once
// The interface of shared memory, TCP and RDMA. The data plane picks among them per peer; no other part sees
// them.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "transport/region.hpp"
#include "transport/transfer.hpp"

namespace mooncaf {

/// A transport's abilities towards one peer; decides the choice of path. One-sided means that the peer's
/// memory is reached without a thread of the peer taking part in the copy.
struct transport_capabilities {
  bool usable = false;  ///< both ends have it, as far as is known without trying
  bool one_sided_write = false;
  bool one_sided_read = false;
  bool needs_registration = false;    ///< regions need a `transport_key`
  bool needs_shared_fd = false;       ///< the remote region must lie in a memfd
  bool remote_notify = false;         ///< a write can announce itself; otherwise the layer above has to
  bool device_memory = false;         ///< see `reaches` for which
  std::uint64_t max_slice_bytes = 0;  ///< slices are cut to this; 0 = any
};

/// A way to move bytes between the regions of two nodes.
///
/// Every submitted transfer completes exactly once, on a thread of the transport and with no lock of it held;
/// a handler may submit or cancel again, but must not block and must not call `close`.
/// @thread  All functions may be called from any thread.
class transport {
 public:
  virtual ~transport() = default;

  virtual std::string_view name() const noexcept = 0;
  virtual transfer_path path() const noexcept = 0;
  virtual transport_capabilities capabilities(node_id peer) const = 0;

  /// Makes a local region reachable over this transport. @returns the blob for `region_desc::keys`; empty if
  /// none is needed.
  virtual result<std::vector<std::byte>> register_region(region_id id) = 0;
  /// When it returns no peer can reach the region over this transport any more.
  /// @error `ec::timed_out`: a peer that was writing neither stopped nor died; the memory must not be reused.
  virtual result<void> unregister_region(region_id id) = 0;

  /// Whether this node's end of the path can address a local region of device memory. Asked only of
  /// transports with `device_memory`. @error `ec::unsupported` names the cause.
  virtual result<void> reaches(region_id) const { return {}; }

  /// Starts a transfer with slices that were checked against the descriptions of both regions.
  virtual void submit(transfer what, completion_handler on_done) = 0;
  /// Asks for an early end. The transfer still completes once: `ec::cancelled`, or however it ended before. A
  /// write completes as cancelled only when no byte of it can land any more (see `completion::fenced`).
  /// Unknown ids are ignored, since cancelling races completion.
  virtual void cancel(transfer_id id) = 0;

  /// Makes links ready ahead of the first transfer. Optional: `submit` connects too. Returns at once.
  virtual void connect(node_id peer) = 0;
  /// Drops outgoing links; transfers under way complete as `ec::peer_lost`. Incoming links stay.
  virtual void disconnect(node_id peer) = 0;
  /// The fence: after it returns no byte of that peer can land in our regions over this transport, and it
  /// cannot connect again until the data plane readmits it. Includes `disconnect`.
  /// @error `ec::timed_out`: the peer can still write (it maps our memory and neither stopped nor died): the
  ///        memory it knows must not be reused.
  virtual result<void> close(node_id peer) = 0;
};

}  // namespace mooncaf
