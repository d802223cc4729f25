#pragma once
// One reliable connection between two rails: posts batches of one-sided orders and short messages, and
// reports their outcomes.

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "transport/rdma/device.hpp"
#include "transport/rdma/message_slots.hpp"
#include "transport/rdma/order_batch.hpp"
#include "transport/rdma/rdma_wire.hpp"

namespace mooncaf {

/// A note of its owner's that comes back when an order is over.
struct rdma_item {
  enum class kind : std::uint8_t { piece, message };
  kind what = kind::piece;
  transfer_id id;
  std::uint32_t piece = 0;             ///< piece
  std::uint32_t bytes = 0;             ///< piece
  std::vector<std::uint32_t> covered;  ///< message: pieces it told of
  std::uint32_t slot = 0;              ///< message: its buffer
  time_point posted{};                 ///< piece
};

/// Bytes to move: WRITE sends `local` to `remote`, READ fetches it.
struct rdma_order {
  bool read = false;
  std::byte* local = nullptr;
  std::uint32_t local_key = 0;
  std::uint64_t remote = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t length = 0;
  bool device = false;  ///< `local` is an address that only the NIC may touch
};

/// Called from `poll`; must not destroy the queue pair.
class queue_pair_owner {
 public:
  virtual ~queue_pair_owner() = default;
  /// The order was carried out; the peer's NIC has confirmed it.
  virtual void on_done(const rdma_item& item) = 0;
  /// A message of the peer; all that it wrote over this queue pair before lies in memory.
  virtual void on_message(std::span<const std::byte> message) = 0;
};

/// @thread  not synchronised: the transport's
class queue_pair {
 public:
  static constexpr std::size_t message_bytes_max = message_slots::bytes_max;

  /// Makes one that receives but is not connected.
  static result<std::unique_ptr<queue_pair>> make(const local_rail& rail, const rdma_options& options);
  ~queue_pair() = default;  ///< afterwards neither side's memory is touched over it by this NIC
  queue_pair(const queue_pair&) = delete;
  queue_pair& operator=(const queue_pair&) = delete;

  const queue_pair_endpoint& endpoint() const noexcept { return mine_; }
  result<void> connect(const queue_pair_endpoint& peer);
  bool connected() const noexcept { return connected_; }

  /// Orders that can be added now; messages have a reserve of their own.
  unsigned room() const noexcept;
  bool message_room() const noexcept { return messages_.free() > 0; }
  /// Add to the batch. Only with room.
  void add(const rdma_order& order, rdma_item&& item);
  /// @param urgent  its completion is told as soon as it is over; otherwise with a later one, or when slots
  /// become few.
  void add_message(std::span<const std::byte> bytes, rdma_item&& item, bool urgent = true);
  /// Posts the batch, ringing the NIC's doorbell once. @error the connection is then broken.
  result<void> flush();

  /// Takes completions. @returns how many. @error the cause of a broken connection; then `unfinished` has the
  /// lost orders.
  result<unsigned> poll(queue_pair_owner& owner);
  /// Asks for an event with the next completion.
  void arm();
  /// Orders of unknown fate, oldest first.
  std::deque<rdma_item>& unfinished() noexcept { return items_; }
  /// Breaks the connection, as a failing NIC would; for fault injection.
  void break_now();
  /// True if the peer's refusal of a key or an address broke it, not the network.
  bool access_refused() const noexcept { return access_refused_; }

 private:
  explicit queue_pair(const rdma_options& options) : options_(options) {}
  result<void> create(const local_rail& rail);
  result<void> prepare(const local_rail& rail);
  void post_receive(std::uint32_t slot);
  error broken(const ::ibv_wc& wc);
  void retire_until(std::uint64_t number, queue_pair_owner& owner);

  const rdma_options& options_;
  std::shared_ptr<rdma_device> device_;
  std::uint8_t port_ = 1;
  std::uint32_t gid_index_ = 0;
  bool ethernet_ = true;
  bool connected_ = false;
  bool access_refused_ = false;
  unsigned depth_ = 0;
  unsigned inline_bytes_ = 0;
  queue_pair_endpoint mine_;

  message_slots messages_;
  verbs_queue queue_;
  verbs_pair pair_;  // destroyed before the queue and the buffers that it uses

  std::deque<rdma_item> items_;     // posted or in the batch, oldest first
  std::uint64_t first_number_ = 0;  // of items_.front()
  std::uint64_t next_number_ = 0;
  order_batch batch_;
};

}  // namespace mooncaf
