#include "transport/rdma/queue_pair.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/base/posix.hpp"
#include "transport/net/handshake.hpp"

namespace mooncaf {
namespace {

// Messages under way have a share of the queue that pieces leave free.
constexpr unsigned receive_slots = message_slots::receiving;
constexpr unsigned send_slots = message_slots::sending;
constexpr std::uint64_t receive_flag = std::uint64_t{1} << 63;
constexpr std::uint8_t rnr_timer = 5;     // a peer without a free receive buffer is asked again after 60 us
constexpr std::uint8_t rnr_for_ever = 7;  // the transport judges whether a peer lives, not the NIC

// The NIC waits 4.096 us * 2^n.
std::uint8_t timeout_exponent(duration d) {
  const auto units =
      static_cast<std::uint64_t>(std::max<std::int64_t>(1, d / std::chrono::nanoseconds(4096)));
  return static_cast<std::uint8_t>(std::clamp<int>(std::bit_width(units - 1), 1, 22));
}

}  // namespace

result<std::unique_ptr<queue_pair>> queue_pair::make(const local_rail& rail, const rdma_options& options) {
  std::unique_ptr<queue_pair> q{new queue_pair(options)};
  q->device_ = rail.device;
  q->port_ = rail.port;
  if (const auto ok = q->create(rail); !ok) return fail(ok.error());
  if (const auto ok = q->prepare(rail); !ok) return fail(ok.error());
  return q;
}

// Makes the objects that live as long as the pair. The device grants depth and inline size up to the options'
// wishes.
result<void> queue_pair::create(const local_rail& rail) {
  const auto& limits = device_->limits;
  depth_ = std::min<unsigned>(options_.queue_depth, static_cast<unsigned>(limits.max_qp_wr) - send_slots);
  const int entries = static_cast<int>(depth_ + send_slots + receive_slots);
  if (const auto ok = messages_.make(*device_); !ok) return ok;
  queue_.reset(::ibv_create_cq(device_->context.get(), entries, nullptr, device_->events.get(), 0));
  if (!queue_)
    return fail(ec::io_error, "rail " + rail.name() + " gives no completion queue of " +
                                  std::to_string(entries) + " entries: " + errno_text(errno));
  ::ibv_qp_init_attr init{};
  init.send_cq = queue_.get();
  init.recv_cq = queue_.get();
  init.qp_type = IBV_QPT_RC;
  init.cap = {depth_ + send_slots, receive_slots, 1, 1, options_.inline_bytes};
  pair_.reset(::ibv_create_qp(device_->domain.get(), &init));
  if (!pair_ && options_.inline_bytes > 0) {  // some NICs refuse instead of offering less
    init.cap = {depth_ + send_slots, receive_slots, 1, 1, 0};
    pair_.reset(::ibv_create_qp(device_->domain.get(), &init));
  }
  if (!pair_) return fail(ec::io_error, "rail " + rail.name() + " gives no queue pair: " + errno_text(errno));
  inline_bytes_ = std::min(init.cap.max_inline_data, options_.inline_bytes);
  return {};
}

// Reads the port, as its GID may have moved since discovery, and lets the pair receive before the peer knows
// of it.
result<void> queue_pair::prepare(const local_rail& rail) {
  const auto state = query_port(*device_, port_, options_.gid_index);
  if (!state) return fail(state.error().code, "rail " + rail.name() + ": " + state.error().detail);
  if (!state->active) return fail(ec::unavailable, "rail " + rail.name() + " is down");
  const auto random = make_random_u64();
  if (!random) return fail(random.error());
  gid_index_ = state->gid.index;
  ethernet_ = state->port.link_layer == IBV_LINK_LAYER_ETHERNET;
  mine_.gid = state->gid.gid;
  mine_.lid = state->port.lid;
  mine_.mtu = static_cast<std::uint8_t>(state->port.active_mtu);
  mine_.number = pair_->qp_num;
  mine_.first_packet = static_cast<std::uint32_t>(*random & 0xFFFFFF);
  mine_.reads = static_cast<std::uint8_t>(std::clamp<int>(
      static_cast<int>(options_.read_depth), 1,
      std::max(1, std::min(device_->limits.max_qp_rd_atom, device_->limits.max_qp_init_rd_atom))));
  ::ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = port_;
  a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (const int rc = ::ibv_modify_qp(pair_.get(), &a,
                                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      rc != 0)
    return fail(ec::io_error,
                "rail " + rail.name() + ": queue pair cannot be initialised: " + errno_text(rc));
  for (std::uint32_t i = 0; i < receive_slots; ++i) post_receive(i);
  arm();
  return {};
}

// Takes the pair through the two states that the verbs ask for: ready to receive, then to send. Both ends
// settle for the smaller MTU and read depth.
result<void> queue_pair::connect(const queue_pair_endpoint& peer) {
  ::ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = static_cast<::ibv_mtu>(std::min(mine_.mtu, peer.mtu));
  a.dest_qp_num = peer.number;
  a.rq_psn = peer.first_packet;
  a.max_dest_rd_atomic = mine_.reads;
  a.min_rnr_timer = rnr_timer;
  a.ah_attr.dlid = peer.lid;
  a.ah_attr.port_num = port_;
  a.ah_attr.sl = static_cast<std::uint8_t>(options_.service_level);
  a.ah_attr.is_global = ethernet_ || !std::equal(mine_.gid.begin(), mine_.gid.begin() + 8, peer.gid.begin());
  std::copy(peer.gid.begin(), peer.gid.end(), std::begin(a.ah_attr.grh.dgid.raw));
  a.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index_);
  a.ah_attr.grh.hop_limit = 64;
  a.ah_attr.grh.traffic_class = static_cast<std::uint8_t>(options_.traffic_class);
  int rc = ::ibv_modify_qp(pair_.get(), &a,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (rc != 0)
    return fail(ec::unavailable, "no route from " + to_string(mine_.gid) + " to " + to_string(peer.gid) +
                                     ": " + errno_text(rc));
  a = {};
  a.qp_state = IBV_QPS_RTS;
  a.timeout = timeout_exponent(options_.ack_timeout);
  a.retry_cnt = static_cast<std::uint8_t>(options_.retry_count);
  a.rnr_retry = rnr_for_ever;
  a.sq_psn = mine_.first_packet;
  a.max_rd_atomic = std::min(mine_.reads, peer.reads);
  rc = ::ibv_modify_qp(pair_.get(), &a,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                           IBV_QP_MAX_QP_RD_ATOMIC);
  if (rc != 0) return fail(ec::io_error, "queue pair cannot send: " + errno_text(rc));
  connected_ = true;
  return {};
}

// ---- posting ----

unsigned queue_pair::room() const noexcept {
  const auto used = static_cast<unsigned>(items_.size());
  return connected_ && used < depth_ ? depth_ - used : 0;
}

void queue_pair::add(const rdma_order& order, rdma_item&& item) {
  auto& w = batch_.add({reinterpret_cast<std::uintptr_t>(order.local), order.length, order.local_key}, true);
  w.wr_id = next_number_++;
  w.opcode = order.read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  w.wr.rdma.remote_addr = order.remote;
  w.wr.rdma.rkey = order.remote_key;
  if (!order.read && !order.device && order.length <= inline_bytes_) w.send_flags |= IBV_SEND_INLINE;
  items_.push_back(std::move(item));
}

void queue_pair::add_message(std::span<const std::byte> bytes, rdma_item&& item, bool urgent) {
  item.what = rdma_item::kind::message;
  item.slot = messages_.take();
  auto* at = messages_.at(item.slot);
  std::memcpy(at, bytes.data(), bytes.size());
  // Slots come back with completions: with few of them left it is time for one.
  urgent |= messages_.free() < send_slots / 2;
  auto& w = batch_.add(
      {reinterpret_cast<std::uintptr_t>(at), static_cast<std::uint32_t>(bytes.size()), messages_.key()},
      urgent);
  w.wr_id = next_number_++;
  w.opcode = IBV_WR_SEND;
  if (bytes.size() <= inline_bytes_) w.send_flags |= IBV_SEND_INLINE;
  items_.push_back(std::move(item));
}

result<void> queue_pair::flush() {
  if (const int rc = batch_.post(pair_.get(), options_.signal_every); rc != 0)
    return fail(ec::io_error, "the NIC refuses orders: " + errno_text(rc));
  return {};
}

void queue_pair::post_receive(std::uint32_t slot) {
  ::ibv_sge part{reinterpret_cast<std::uintptr_t>(messages_.at(slot)), message_bytes_max, messages_.key()};
  ::ibv_recv_wr w{};
  w.wr_id = receive_flag | slot;
  w.sg_list = &part;
  w.num_sge = 1;
  ::ibv_recv_wr* bad = nullptr;
  ::ibv_post_recv(pair_.get(), &w, &bad);  // fails on a broken pair only, which `poll` reports
}

void queue_pair::break_now() {
  ::ibv_qp_attr a{};
  a.qp_state = IBV_QPS_ERR;
  ::ibv_modify_qp(pair_.get(), &a, IBV_QP_STATE);
}

// ---- completions ----

void queue_pair::arm() { ::ibv_req_notify_cq(queue_.get(), 0); }

// Orders of one queue pair end in the order in which they were posted.
void queue_pair::retire_until(std::uint64_t number, queue_pair_owner& owner) {
  while (!items_.empty() && first_number_ <= number) {
    const auto item = std::move(items_.front());
    items_.pop_front();
    ++first_number_;
    if (item.what == rdma_item::kind::message) messages_.give_back(item.slot);
    owner.on_done(item);
  }
}

error queue_pair::broken(const ::ibv_wc& wc) {
  connected_ = false;
  access_refused_ = wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_INV_REQ_ERR;
  return {access_refused_ ? ec::not_found : ec::io_error, ::ibv_wc_status_str(wc.status)};
}

result<unsigned> queue_pair::poll(queue_pair_owner& owner) {
  ::ibv_wc done[32];
  const int n = ::ibv_poll_cq(queue_.get(), static_cast<int>(std::size(done)), done);
  if (n < 0) return fail(ec::io_error, "the completion queue is broken");
  for (int i = 0; i < n; ++i) {
    const auto& wc = done[i];
    const bool received = (wc.wr_id & receive_flag) != 0;
    if (wc.status != IBV_WC_SUCCESS) {
      // Orders before it ended well: a failure of theirs would have been reported first.
      if (!received && wc.wr_id > 0) retire_until(wc.wr_id - 1, owner);
      return fail(broken(wc));
    }
    if (!received) {
      retire_until(wc.wr_id, owner);
      continue;
    }
    const auto slot = static_cast<std::uint32_t>(wc.wr_id & ~receive_flag);
    owner.on_message({messages_.at(slot), wc.byte_len});
    post_receive(slot);
  }
  return static_cast<unsigned>(n);
}

}  // namespace mooncaf
