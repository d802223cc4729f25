#include "transport/shm/shm_outbound.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "transport/net/socket.hpp"

namespace mooncaf {
namespace {

// How long an ending link waits for the owner to come out of the piece that it is copying.
constexpr auto piece_patience = std::chrono::milliseconds(10);

}  // namespace

shm_outbound::shm_outbound(node_state& node, event_loop& loop, std::shared_ptr<const peer_info> peer,
                           ended_handler on_ended)
    : node_(node), loop_(loop), peer_(std::move(peer)), on_ended_(std::move(on_ended)) {}

// ---- making the link
// ------------------------------------------------------------------------------------------------

result<void> shm_outbound::open() {
  const auto at = unix_address(peer_->address.unix_name);
  const auto nonce = make_nonce();
  const auto session = make_random_u64();
  if (!at) return fail(at.error());
  if (!nonce || !session) return fail(ec::io_error, "the system gives no random bytes");
  auto fd = connect_unix(*at);
  if (!fd)
    return fail(ec::unavailable,
                "shared-memory socket of node " + to_string(peer()) + ": " + fd.error().detail);
  socket_ = std::move(*fd);
  if (!same_user(socket_.get()))
    return fail(ec::unauthenticated,
                "the shared-memory socket of node " + to_string(peer()) + " is another user's");
  shake_ = handshake::initiator(
      node_.options.cluster_secret, *nonce,
      {link_kind::shm, node_.options.node, node_.incarnation, *session, peer(), peer_->address.incarnation});
  if (send_packet(socket_.get(), shake_->opening()) != packet_status::ok)
    return fail(ec::unavailable, "the shared-memory socket of node " + to_string(peer()) + " is closed");
  token_ = loop_.add(socket_.get(), EPOLLIN,
                     [self = shared_from_this()](std::uint32_t events) { self->on_socket(events); });
  return {};
}

bool shm_outbound::update(const std::shared_ptr<const peer_info>& peer) {
  if (peer->address != peer_->address) return false;
  peer_ = peer;
  return true;
}

void shm_outbound::on_socket(std::uint32_t) {
  std::vector<std::byte> bytes;
  std::vector<unique_fd> fds;
  while (stage_ != stage::ended) {
    const auto status = receive_packet(socket_.get(), bytes, fds);
    if (status == packet_status::again) return;
    if (status == packet_status::closed) {
      peer_closed_ = true;
      const bool disbelieved = stage_ == stage::handshaking && shake_->proof_sent();
      return end(disbelieved
                     ? error{ec::unauthenticated,
                             "the peer hung up on our proof: is its cluster secret another one?"}
                     : error{ec::peer_lost, "node " + to_string(peer()) + " closed the shared-memory link"});
    }
    if (const auto r = on_packet(bytes, fds); !r) return end(r.error());
  }
}

result<void> shm_outbound::on_packet(const std::vector<std::byte>& bytes, std::vector<unique_fd>& fds) {
  progress_at_ = clock_type::now();
  if (stage_ == stage::handshaking) return on_handshake(bytes);
  const auto p = parse_packet(bytes);
  if (!p) return fail(p.error());
  if (stage_ == stage::welcoming && p->type == shm_packet_type::welcome) {
    if (fds.size() == 2) peer_wake_ = std::move(fds[1]);
    return on_welcome(fds);
  }
  if (stage_ == stage::open && p->type == shm_packet_type::map_reply) return on_map_reply(*p, fds);
  if (stage_ == stage::open && p->type == shm_packet_type::offer_reply) return on_offer_reply(*p);
  return fail(ec::corrupt, "unexpected packet on a shared-memory link");
}

result<void> shm_outbound::on_handshake(const std::vector<std::byte>& bytes) {
  const auto next = shake_->feed(bytes);
  if (!next) return fail(next.error());
  if (next->at == handshake::progress::done) {
    stage_ = stage::welcoming;
    return {};
  }
  if (send_packet(socket_.get(), next->answer) == packet_status::ok) return {};
  return fail(ec::peer_lost, "the peer closed the link");
}

result<void> shm_outbound::on_welcome(const std::vector<unique_fd>& fds) {
  if (fds.size() != 2) return fail(ec::corrupt, "the peer's welcome lacks descriptors");
  if (const auto ok = check_memfd(fds[0].get(), sizeof(link_memory)); !ok) return ok;
  auto mapping = shared_mapping::map(fds[0].get(), sizeof(link_memory));
  if (!mapping) return fail(mapping.error());
  link_mapping_ = std::move(*mapping);
  memory_ = std::launder(reinterpret_cast<link_memory*>(link_mapping_.base()));
  stage_ = stage::open;
  const int mine[] = {loop_.wake_fd()};
  return send({.type = shm_packet_type::hello}, mine);
}

result<void> shm_outbound::send(const shm_packet& p, std::span<const int> fds) {
  if (send_packet(socket_.get(), encode_packet(p), fds) == packet_status::ok) return {};
  return fail(ec::peer_lost, "the peer does not take packets");
}

result<void> shm_outbound::on_map_reply(const shm_packet& p, const std::vector<unique_fd>& fds) {
  auto& m = regions_[p.region];
  m.pending = false;
  if (p.status != ec::none) {
    m.refusal = {p.status, p.detail};
    return {};
  }
  if (fds.size() != 1) return fail(ec::corrupt, "the peer's description of a region lacks its descriptor");
  const auto at = mappings_.map(fds[0].get(), p.fd_inode, p.fd_size, p.fd_offset, p.length);
  if (!at) return fail(at.error());
  m.base = *at;
  m.length = p.length;
  return {};
}

// What the owner cannot map is copied from here.
result<void> shm_outbound::on_offer_reply(const shm_packet& p) {
  const auto it = offers_.find(p.region);
  if (it != offers_.end()) it->second = {.pending = false, .usable = p.status == ec::none};
  return {};
}

void shm_outbound::withdraw(region_id region) {
  if (offers_.erase(region) == 0 || stage_ != stage::open) return;
  if (const auto sent = send({.type = shm_packet_type::withdraw, .region = region}); !sent) end(sent.error());
}

// ---- orders in
// ------------------------------------------------------------------------------------------------------

void shm_outbound::submit(transfer what, completion_handler on_done) {
  if (queue_.empty() && noticed_.empty()) progress_at_ = clock_type::now();
  job j;
  j.notice.id = what.id;
  j.notice.tag = what.tag;
  j.notice.total_bytes = what.size_bytes();
  j.notice.has_checksums = node_.options.checksums;
  j.what = std::move(what);
  j.on_done = std::move(on_done);
  queue_.push_back(std::move(j));
}

void shm_outbound::cancel(transfer_id id) {
  // What is noticed to its end already is as good as landed.
  const auto it = std::find_if(queue_.begin(), queue_.end(), [&](const job& j) { return j.what.id == id; });
  if (it == queue_.end()) return;
  job j = std::move(*it);
  queue_.erase(it);
  give_up(std::move(j), {ec::cancelled, "cancelled by its owner"});
}

// Tells the owner to forget the parts it heard of. Of what it pulls it may be copying one now: that transfer
// ends when the owner has answered, or the link is dead.
void shm_outbound::give_up(job j, error why) {
  if (!j.noticed_some || stage_ != stage::open) return finish(std::move(j), fail(std::move(why)));
  j.notice.pieces.clear();
  j.notice.sums.clear();
  j.notice.abandoned = true;
  const bool heard = publish(j, true);
  if (j.pulled) {
    j.verdict = std::move(why);
    const auto id = j.what.id;
    noticed_.emplace(id, std::move(j));
  } else {
    finish(std::move(j), fail(std::move(why)));
  }
  if (!heard) end({ec::overloaded, "the peer does not take notices"});
}

void shm_outbound::finish(job j, result<void> outcome, bool fenced) {
  node_.stats.update(peer(), transfer_path::shm, [&](path_stats& s) { s.slices += j.piece_index; });
  const auto bytes = outcome ? j.bytes : 0;
  j.on_done({.id = j.what.id,
             .outcome = std::move(outcome),
             .bytes = bytes,
             .path = transfer_path::shm,
             .fenced = fenced});
}

void shm_outbound::finish_at(std::size_t index, result<void> outcome) {
  job j = std::move(queue_[index]);
  queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(index));
  if (outcome) finish(std::move(j), std::move(outcome));
  else give_up(std::move(j), outcome.error());
}

// Our own copies run on this thread: once here, none is under way and none will be. Those that the owner
// makes end with the gate; a peer that closed the link made its last one before.
void shm_outbound::end(const error& why) {
  if (stage_ == stage::ended) return;
  stage_ = stage::ended;
  const auto self = shared_from_this();
  if (token_ != 0) loop_.remove(token_);
  const bool stopped = pulling_stopped();
  socket_.reset();
  auto queued = std::exchange(queue_, {});
  auto noticed = std::exchange(noticed_, {});
  on_ended_(*this);
  const auto leave = [&](job& j) {
    const bool fenced = stopped || !j.pulled || !j.noticed_some;
    auto cause = j.verdict.value_or(why);
    finish(std::move(j), fail(std::move(cause)), fenced);
  };
  for (auto& j : queued) leave(j);
  for (auto& [id, j] : noticed) leave(j);
}

bool shm_outbound::pulling_stopped() {
  if (peer_closed_ || !memory_) return true;
  memory_->revoked.store(1);
  const auto until = clock_type::now() + piece_patience;
  while (memory_->inside.load() != 0) {
    if (clock_type::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

bool shm_outbound::tick(time_point now) {
  if (stage_ == stage::ended) return false;
  const bool busy = !queue_.empty() || !noticed_.empty();
  const error late_error{ec::timed_out, "the deadline of the transfer passed"};
  std::vector<transfer_id> late;
  for (const auto& j : queue_)
    if (now > j.what.deadline) late.push_back(j.what.id);
  for (const auto id : late) {
    const auto it = std::find_if(queue_.begin(), queue_.end(), [&](const job& j) { return j.what.id == id; });
    if (it == queue_.end()) continue;
    job j = std::move(*it);
    queue_.erase(it);
    give_up(std::move(j), late_error);
    if (stage_ == stage::ended) return false;
  }
  late.clear();
  for (const auto& [id, j] : noticed_)
    if (now > j.what.deadline && !j.verdict) late.push_back(id);
  for (const auto id : late) {
    const auto it = noticed_.find(id);
    if (it == noticed_.end()) continue;
    job j = std::move(it->second);
    noticed_.erase(it);
    give_up(std::move(j), late_error);
    if (stage_ == stage::ended) return false;
  }
  const auto patience = stage_ == stage::open ? node_.options.peer_timeout : node_.options.connect_timeout;
  if (busy && now - progress_at_ > patience)
    end({ec::peer_lost, "node " + to_string(peer()) + " stopped answering over shared memory"});
  return busy;
}

}  // namespace mooncaf
