#include "transport/shm/shm_inbound.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "transport/copy/stream_copy.hpp"
#include "transport/net/socket.hpp"
#include "transport/transfer.hpp"

namespace mooncaf {
namespace {

constexpr int notices_per_poll = 16;
constexpr std::uint64_t bytes_per_poll = 4 * MiB;  // then other links have a turn

}  // namespace

shm_inbound::shm_inbound(node_state& node, event_loop& loop, unique_fd socket, handshake shake,
                         admission admit, ended_handler on_ended)
    : node_(node),
      loop_(loop),
      socket_(std::move(socket)),
      shake_(std::move(shake)),
      admit_(std::move(admit)),
      on_ended_(std::move(on_ended)) {}

void shm_inbound::start() {
  token_ = loop_.add(socket_.get(), EPOLLIN,
                     [self = shared_from_this()](std::uint32_t events) { self->on_socket(events); });
}

void shm_inbound::end(const error&) {
  if (std::exchange(ended_, true)) return;
  loop_.remove(token_);
  if (memory_) memory_->revoked.store(1);
  ::shutdown(socket_.get(), SHUT_RDWR);
  assemblies_.clear();
  on_ended_(*this);
}

bool shm_inbound::revoke(duration patience) {
  auto* gate = gate_.load();
  if (!gate) return true;  // never got that far: it maps nothing
  gate->revoked.store(1);
  const auto until = clock_type::now() + patience;
  while (gate->inside.load() != 0 && !gone_) {
    if (clock_type::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

// ---- the socket ----

void shm_inbound::on_socket(std::uint32_t) {
  std::vector<std::byte> bytes;
  std::vector<unique_fd> fds;
  for (;;) {
    const auto status = receive_packet(socket_.get(), bytes, fds);
    if (status == packet_status::again) return;
    if (status == packet_status::closed) {
      // The kernel closes a dead process's sockets after its last thread stopped, and a living peer closes
      // the link only between two copies: nothing is written any more.
      gone_ = true;
      return end({ec::peer_lost, "the peer closed the link"});
    }
    if (const auto r = on_packet(bytes, fds); !r) return end(r.error());
    if (ended_) return;
  }
}

result<void> shm_inbound::on_packet(const std::vector<std::byte>& bytes, std::vector<unique_fd>& fds) {
  if (!memory_) return on_handshake(bytes);
  const auto p = parse_packet(bytes);
  if (!p) return fail(p.error());
  if (p->type == shm_packet_type::hello && fds.size() == 1) {
    peer_wake_ = std::move(fds[0]);
    return {};
  }
  if (p->type == shm_packet_type::map_request) return grant(*p);
  if (p->type == shm_packet_type::offer) return accept_offer(*p, fds);
  if (p->type == shm_packet_type::withdraw) {
    offers_.withdraw(p->region);
    return {};
  }
  return fail(ec::corrupt, "unexpected packet on a shared-memory link");
}

result<void> shm_inbound::on_handshake(const std::vector<std::byte>& bytes) {
  auto step = shake_.feed(bytes);
  if (!step) return fail(step.error());
  if (step->at == handshake::progress::identified) {
    const auto& who = shake_.peer();
    peer_incarnation_ = who.incarnation;
    peer_node_ = who.node;
    const auto admitted = admit_(who);
    *step = admitted ? shake_.admit() : shake_.refuse(admitted.error().code);
    if (send_packet(socket_.get(), step->answer) != packet_status::ok)
      return fail(ec::peer_lost, "the peer closed the link");
    return admitted ? welcome() : fail(admitted.error());
  }
  if (send_packet(socket_.get(), step->answer) != packet_status::ok)
    return fail(ec::peer_lost, "the peer closed the link");
  return {};
}

result<void> shm_inbound::welcome() {
  auto fd = make_memfd("mooncaf-link", sizeof(link_memory));
  if (!fd) return fail(fd.error());
  auto mapping = shared_mapping::map(fd->get(), sizeof(link_memory));
  if (!mapping) return fail(mapping.error());
  mapping_ = std::move(*mapping);
  // A fresh memfd is zero, which is an open gate and two empty rings.
  memory_ = std::launder(reinterpret_cast<link_memory*>(mapping_.base()));
  gate_ = memory_;
  const int fds[] = {fd->get(), loop_.wake_fd()};
  return send({.type = shm_packet_type::welcome}, fds);
}

result<void> shm_inbound::grant(const shm_packet& request) {
  node_.stats.update(peer(), transfer_path::shm, [](path_stats& s) { ++s.control_messages; });
  shm_packet reply{.type = shm_packet_type::map_reply, .region = request.region};
  const auto region = grants_.give(node_.regions, request.region, request.access_key);
  if (!region) {
    reply.status = region.error().code;
    reply.detail = region.error().detail;
    return send(reply, {});
  }
  const auto& r = **region;
  reply.fd_offset = r.fd_offset;
  reply.fd_size = r.fd_size;
  reply.fd_inode = r.fd_inode;
  reply.length = r.desc.length;
  const int fds[] = {r.fd.get()};
  return send(reply, fds);
}

result<void> shm_inbound::accept_offer(const shm_packet& offer, const std::vector<unique_fd>& fds) {
  shm_packet reply{.type = shm_packet_type::offer_reply, .region = offer.region};
  if (const auto mapped = offers_.add(offer, fds); !mapped) {
    reply.status = mapped.error().code;
    reply.detail = mapped.error().detail;
  }
  node_.stats.update(peer(), transfer_path::shm, [](path_stats& s) { ++s.control_messages; });
  return send(reply, {});
}

result<void> shm_inbound::send(const shm_packet& p, std::span<const int> fds) {
  // A peer that lets its queue of packets fill up is not one of ours.
  if (send_packet(socket_.get(), encode_packet(p), fds) == packet_status::ok) return {};
  return fail(ec::peer_lost, "the peer does not take packets");
}

// ---- the rings ----

bool shm_inbound::poll() {
  if (!memory_ || ended_) return false;
  ring_reader notices{memory_->notices};
  std::uint64_t bytes = 0;
  for (int i = 0; i < notices_per_poll; ++i) {
    const auto status = notices.take(record_);
    if (status == ring_reader::status::empty) return i > 0;
    if (status == ring_reader::status::broken) {
      end({ec::corrupt, "the peer's ring is damaged"});
      return true;
    }
    const auto n = parse_notice(record_);
    const auto r = n ? on_notice(*n) : fail(n.error());
    if (!r) {
      end(r.error());
      return true;
    }
    if (ended_) return true;
    for (const auto& p : n->pieces) bytes += p.at.length;
    if (bytes >= bytes_per_poll) return true;
  }
  return true;
}

void shm_inbound::arm() {
  if (memory_) ring_reader{memory_->notices}.arm();
}
void shm_inbound::disarm() {
  if (memory_) ring_reader{memory_->notices}.disarm();
}

result<void> shm_inbound::on_notice(const shm_notice& n) {
  auto it = assemblies_.find(n.id);
  if (it == assemblies_.end()) {
    if (assemblies_.size() >= assemblies_max)
      return fail(ec::overloaded, "the peer has too many transfers open");
    it = assemblies_.try_emplace(n.id).first;
    // A transfer is claimed at its end only: a peer that broke this link may bring it over another path
    // before this node hears of the break. By then the peer copies nothing more here, since it closed the
    // gate.
    it->second.ours = node_.landings.look(peer(), peer_incarnation_, n.id) == landing_log::state::fresh;
  }
  auto& a = it->second;
  if (a.ours && a.cause.code == ec::none && !n.abandoned)
    if (const auto r = verify(n, a); !r) return r;
  if (n.abandoned) {
    if (a.ours) node_.landings.finish(peer(), peer_incarnation_, n.id, false);
    if (n.pulled)
      if (const auto r = acknowledge(n.id, {ec::cancelled, {}}); !r) return r;
  } else if (n.last) {
    a.ours = a.ours && node_.landings.claim(peer(), peer_incarnation_, n.id) == landing_log::state::fresh;
    if (const auto r = conclude(n, a); !r) return r;
  } else {
    return {};
  }
  assemblies_.erase(n.id);
  return {};
}

// Takes or checks the pieces of one notice. @error the link is to end: the peer breaks the protocol.
result<void> shm_inbound::verify(const shm_notice& n, assembly& a) {
  if (n.pieces.size() > transfer_pieces_max - std::min(a.sums.size(), transfer_pieces_max))
    return fail(ec::overloaded, "the peer cuts a transfer into too many pieces");
  const bool checks = n.has_checksums && node_.options.checksums;
  for (const auto& p : n.pieces) {
    const auto at = node_.regions.resolve(p.at);
    if (!at) {
      a.cause = at.error();
      return {};
    }
    a.bytes += p.at.length;
    if (p.at.length == 0) continue;
    if (n.pulled) {
      const auto sum = take_piece(p, *at);
      if (!sum) return fail(sum.error());
      a.sums.push_back(*sum);
    } else if (checks) {
      a.sums.push_back(wide_checksum(*at, p.at.length));
    }
  }
  if (checks)
    for (const auto stated : n.sums)
      a.corrupt |= a.compared >= a.sums.size() || a.sums[a.compared++] != stated;
  if (!n.last) return {};
  if (checks && a.compared != a.sums.size()) a.corrupt = true;
  if (a.bytes != n.total_bytes) a.cause = {ec::corrupt, "the pieces do not add up to the transfer"};
  return {};
}

// Copies one piece. The peer has shown the key of every region that it was granted, so it needs no other
// here.
result<std::uint64_t> shm_inbound::take_piece(const shm_piece& p, std::byte* to) {
  const auto* from = offers_.find(p.source, p.source_offset, p.at.length);
  if (!from || !granted(p.at.region))
    return fail(ec::corrupt,
                "the peer wants bytes copied that it did not offer, or to where it may not write");
  const auto sum = copy_through_gate(*memory_, to, from, p.at.length, true);
  if (!sum) return fail(ec::peer_lost, "the link was revoked");
  return *sum;
}

// Decides the outcome of a transfer that was told to its end. The landing is announced before the sender
// hears of it, so that a sender that knows of success may rely on the receiver's knowing, too.
result<void> shm_inbound::conclude(const shm_notice& n, const assembly& a) {
  error outcome = a.cause;
  if (!a.ours) {
    const auto state = node_.landings.look(peer(), peer_incarnation_, n.id);
    if (state == landing_log::state::failed) outcome = {ec::cancelled, "this transfer failed before"};
    if (state == landing_log::state::claimed)
      outcome = {ec::unavailable, "this transfer arrives over another path"};
  } else {
    if (a.corrupt) outcome = {ec::corrupt, "the bytes arrived with a wrong checksum"};
    const bool landed = outcome.code == ec::none;
    if (node_.landings.finish(peer(), peer_incarnation_, n.id, landed) && (landed || a.corrupt))
      node_.announce({peer(), n.id, n.tag, a.bytes, landed}, transfer_path::shm);
  }
  return acknowledge(n.id, std::move(outcome));
}

result<void> shm_inbound::acknowledge(transfer_id id, error outcome) {
  node_.stats.update(peer(), transfer_path::shm, [](path_stats& s) { ++s.control_messages; });
  std::vector<std::byte> record;
  encode_ack(shm_ack{id, std::move(outcome)}, record);
  ring_writer acks{memory_->acks};
  if (!acks.put(record)) return fail(ec::overloaded, "the peer does not take answers");
  if (acks.must_wake() && peer_wake_) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(peer_wake_.get(), &one, sizeof(one));
  }
  return {};
}

}  // namespace mooncaf
