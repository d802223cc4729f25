#pragma once
// Data that the transports of one node share: options, registered memory, peers, the record of landings,
// figures.

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "transport/data_plane.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {

/// A span of this node's memory that peers may reach.
struct local_region {
  region_desc desc;
  std::byte* base = nullptr;
  unique_fd fd;  ///< memfd behind it, or none
  std::uint64_t fd_offset = 0;
  std::uint64_t fd_size = 0;
  std::uint64_t fd_inode = 0;  ///< tells peers which regions share a memfd
  unique_fd dma_buf;           ///< device memory only; or none
  std::uint64_t dma_buf_offset = 0;
  std::atomic<std::uint32_t> uses{0};  ///< transfers of this node with slices in it
};

/// @thread  any
class region_table {
 public:
  void add(std::shared_ptr<local_region> region);
  std::shared_ptr<local_region> remove(region_id id);
  std::shared_ptr<local_region> find(region_id id) const;
  std::vector<region_desc> all() const;

  /// Where a slice of this node lies. A device address is for NICs only.
  struct place {
    std::byte* at = nullptr;
    memory_kind kind = memory_kind::host;
  };
  /// @error `ec::not_found`, `ec::invalid_argument` out of bounds.
  result<place> locate(const slice& s) const;
  /// The same for a peer, which must present the key.
  result<place> locate(const slice& s, std::uint64_t access_key) const;
  /// Address of a slice that the processor may touch. @error the same; `ec::unsupported` for device memory.
  result<std::byte*> resolve(const slice& s) const;
  result<std::byte*> resolve(const slice& s, std::uint64_t access_key) const;

 private:
  result<place> locate(const slice& s, const std::uint64_t* access_key) const;

  mutable std::shared_mutex mutex_;
  std::unordered_map<region_id, std::shared_ptr<local_region>> regions_;
};

/// Checks that a slice lies within `length` bytes; the detail of the error names the side.
result<void> check_bounds(const slice& s, std::uint64_t length, const char* whose);

/// A peer's address and regions; replaced as a whole.
struct peer_info {
  peer_address address;
  socket_address tcp;      ///< resolved; size 0 if it offers none
  bool same_host = false;  ///< may share memory
  std::unordered_map<region_id, region_desc> regions;
};

/// @thread  any
class peer_table {
 public:
  std::shared_ptr<const peer_info> find(node_id node) const;
  void put(peer_info info);  ///< also readmits the node
  void erase(node_id node);
  /// Keeps a node out: the incarnations named, or all if none is.
  void ban(node_id node, const std::set<std::uint64_t>& incarnations);
  bool admits(node_id node, std::uint64_t incarnation) const;
  void count_fence(node_id node);
  std::uint64_t fences_of(node_id node) const;

 private:
  struct bans {
    bool all = false;
    std::set<std::uint64_t> incarnations;
  };
  mutable std::mutex mutex_;
  std::unordered_map<node_id, std::shared_ptr<const peer_info>> peers_;
  std::unordered_map<node_id, bans> bans_;
  std::unordered_map<node_id, std::uint64_t> fences_;
};

/// Which writes of which peers have arrived: the reason why a repeated transfer lands once. Remembers the
/// last 65,536 of each node; a new incarnation of a node starts afresh.
/// @thread  any
class landing_log {
 public:
  enum class state : std::uint8_t {
    fresh,    ///< never seen
    claimed,  ///< some link is receiving it
    landed,
    failed,  ///< corrupt, refused or cancelled: nothing of it may be written any more
  };
  /// Takes a fresh transfer. @returns the state before; the caller owns it now if that was `fresh`.
  state claim(node_id node, std::uint64_t incarnation, transfer_id id);
  /// Gives back a claim without an outcome: the link broke, another may bring it again.
  void release(node_id node, std::uint64_t incarnation, transfer_id id);
  /// Ends a transfer (claimed or not). @returns false if it had ended before.
  bool finish(node_id node, std::uint64_t incarnation, transfer_id id, bool landed);
  state look(node_id node, std::uint64_t incarnation, transfer_id id) const;

 private:
  /// Of neighbouring ids: a peer counts its transfers, so most looks find a line that is in the cache.
  struct page {
    static constexpr std::uint64_t ids = 64;
    std::array<state, ids> states{};
    std::uint32_t claimed = 0, finished = 0;
  };
  struct entry {
    std::uint64_t incarnation = 0;
    std::unordered_map<std::uint64_t, page> pages;
    std::deque<std::uint64_t> order;  // of the pages, oldest first
    std::size_t finished = 0;
  };
  static state& state_in(page& p, transfer_id id) { return p.states[id.value % page::ids]; }
  page& page_of(node_id node, std::uint64_t incarnation, transfer_id id);
  entry& entry_of(node_id node, std::uint64_t incarnation);

  mutable std::mutex mutex_;
  std::unordered_map<node_id, entry> nodes_;
};

/// @thread  any
class stats_table {
 public:
  template <class F>
  void update(node_id peer, transfer_path path, F&& change) {
    std::lock_guard lock{mutex_};
    auto& s = lines_[{peer, path}];
    s.peer = peer;
    s.path = path;
    change(s);
  }
  std::vector<path_stats> all() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<node_id, transfer_path>, path_stats> lines_;
};

struct node_state {
  data_plane_options options;
  std::uint64_t incarnation = 0;
  std::string host_id;
  region_table regions;
  peer_table peers;
  landing_log landings;
  stats_table stats;
  landing_handler on_landing;
  callback_executor executor;

  /// Runs a callback where the owner of the data plane wants it. To be called with no lock held.
  void deliver(std::function<void()> callback) const;
  /// Counts a landing and tells it.
  void announce(landing l, transfer_path path);
  /// Asks the fault injector, if there is one.
  fault next_fault(transfer_path path, transfer_id id, std::uint32_t slice_index) const;
};

/// Errors that say that the path failed, not the transfer: another path may do.
constexpr bool is_path_failure(ec code) noexcept {
  return code == ec::peer_lost || code == ec::io_error || code == ec::unavailable ||
         code == ec::unsupported || code == ec::unauthenticated || code == ec::incompatible;
}

}  // namespace mooncaf
