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
    : node_(node),
      loop_(loop),
      peer_(std::move(peer)),
      on_ended_(std::move(on_ended)),
      book_(node, peer_->address.node, transfer_path::shm) {}

// ---- making the link ----

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
      node_.options.cluster_secret.own(), *nonce,
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
  ++progress_;
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
  auto at = mappings_.map(fds[0].get(), p.fd_inode, p.fd_size, p.fd_offset, p.length);
  if (!at) return fail(at.error());
  m.view = std::move(*at);
  return {};
}

// Regions that the owner cannot map are copied by this end.
result<void> shm_outbound::on_offer_reply(const shm_packet& p) {
  const auto it = offers_.find(p.region);
  if (it != offers_.end()) it->second = {.pending = false, .usable = p.status == ec::none};
  return {};
}

void shm_outbound::withdraw(region_id region) {
  if (offers_.erase(region) == 0 || stage_ != stage::open) return;
  if (const auto sent = send({.type = shm_packet_type::withdraw, .region = region}); !sent) end(sent.error());
}

// ---- orders in ----

void shm_outbound::view(region_id region, view_handler on_there) {
  views_.push_back({region, std::move(on_there)});
  answer_views();
}

// Whoever asked may ask again, and the link may end in between.
void shm_outbound::answer_views() {
  for (std::size_t i = 0; stage_ == stage::open && i < views_.size();) {
    const auto there = mapped(views_[i].region);
    if (there && *there == nullptr) {
      ++i;
      continue;
    }
    if (stage_ != stage::open) return;
    const auto asked = std::move(views_[i].on_there);
    views_.erase(views_.begin() + static_cast<std::ptrdiff_t>(i));
    if (there) asked((*there)->view);
    else asked(fail(there.error()));
  }
}

void shm_outbound::submit(transfer what, completion_handler on_done) {
  if (auto* j = book_.submit(std::move(what), std::move(on_done))) enqueue(*j);
}

void shm_outbound::enqueue(job& j) {
  j.notice.id = j.what.id;
  j.notice.tag = j.what.tag;
  j.notice.total_bytes = j.bytes();
  j.notice.has_checksums = node_.options.checksums;
  j.queued = true;
  queue_.push_back(&j);
}

void shm_outbound::dequeue(job& j) {
  if (!std::exchange(j.queued, false)) return;
  queue_.erase(std::find(queue_.begin(), queue_.end(), &j));
}

void shm_outbound::begin_waiting() {
  while (auto* j = book_.next()) enqueue(*j);
}

void shm_outbound::cancel(transfer_id id) {
  const auto self = shared_from_this();
  auto* const j = book_.cancel(id);
  // A transfer that the owner was told of to its end is as good as landed.
  if (j && j->queued) request_end(*j, end_cause(ec::cancelled));
  book_.take().tell();
}

// Tells the owner to forget the parts that it heard of. The owner may be copying one of a pulled transfer
// now: such a transfer ends when the owner has answered, or the link is dead.
void shm_outbound::request_end(job& j, error why) {
  dequeue(j);
  if (!j.noticed_some || stage_ != stage::open) return book_.settle(j, fail(std::move(why)));
  j.notice.pieces.clear();
  j.notice.sums.clear();
  j.notice.abandoned = true;
  const bool heard = publish(j, true);
  if (j.pulled) book_.give_up(j, std::move(why));
  else book_.settle(j, fail(std::move(why)));
  if (!heard) end({ec::overloaded, "the peer does not take notices"});
}

// Ends a transfer that is still in the queue.
shm_outbound::step shm_outbound::finish(job& j, result<void> outcome) {
  if (!outcome) {
    request_end(j, std::move(outcome.error()));
    return step::finished;
  }
  dequeue(j);
  book_.settle(j, {});
  return step::finished;
}

// This end copies on this thread, so that no copy of its own is under way here. The owner's copies end with
// the gate; a peer that closed the link made its last one before.
void shm_outbound::end(const error& why) {
  if (stage_ == stage::ended) return;
  stage_ = stage::ended;
  const auto self = shared_from_this();
  if (token_ != 0) loop_.remove(token_);
  const bool stopped = pulling_stopped();
  socket_.reset();
  queue_.clear();
  for (const auto& v : std::exchange(views_, {})) v.on_there(fail(why));
  book_.end(why, [&](const job& j) { return stopped || !j.pulled || !j.noticed_some; });
  on_ended_(*this);
  book_.take().tell();
}

// Revokes the gate and waits until the owner is in no copy any more. @returns false if it stays inside.
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
  const auto self = shared_from_this();
  const bool busy = !book_.idle();
  for (const auto id : book_.late(now))
    if (auto* j = book_.find(id)) request_end(*j, end_cause(ec::timed_out));
  book_.take().tell();
  if (stage_ == stage::ended) return false;
  const auto patience = stage_ == stage::open ? node_.options.peer_timeout : node_.options.connect_timeout;
  if (book_.stalled(now, progress_, patience))
    end({ec::peer_lost, "node " + to_string(peer()) + " stopped answering over shared memory"});
  return busy;
}

}  // namespace mooncaf
