#include "transport/shm/shm_outbound.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "transport/copy/stream_copy.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {
namespace {

// A long transfer is told in parts, so that the owner verifies the first while the rest is being copied.
constexpr std::uint64_t notice_bytes = 4 * MiB;
constexpr int acks_per_poll = 64;

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
  if (fds.size() != 1 || p.fd_offset > p.fd_size || p.length > p.fd_size - p.fd_offset)
    return fail(ec::corrupt, "the peer's description of a region contradicts itself");
  auto it = mappings_.find(p.fd_inode);
  if (it == mappings_.end()) {
    if (const auto ok = check_memfd(fds[0].get(), p.fd_size); !ok) return ok;
    auto mapping = shared_mapping::map(fds[0].get(), p.fd_size);
    if (!mapping) return fail(mapping.error());
    it = mappings_.emplace(p.fd_inode, std::move(*mapping)).first;
  }
  if (it->second.size() < p.fd_offset + p.length)
    return fail(ec::corrupt, "the peer's description of a region contradicts itself");
  m.base = it->second.base() + p.fd_offset;
  m.length = p.length;
  return {};
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
  // What is noticed already is as good as landed.
  const auto it = std::find_if(queue_.begin(), queue_.end(), [&](const job& j) { return j.what.id == id; });
  if (it == queue_.end()) return;
  job j = std::move(*it);
  queue_.erase(it);
  abandon(j);
  finish(std::move(j), fail(ec::cancelled, "cancelled by its owner"));
}

// Tells the owner to forget the parts it heard of.
void shm_outbound::abandon(job& j) {
  if (!j.noticed_some || stage_ != stage::open) return;
  j.notice.pieces.clear();
  j.notice.abandoned = true;
  if (!publish(j, true)) end({ec::overloaded, "the peer does not take notices"});
}

void shm_outbound::finish(job j, result<void> outcome) {
  node_.stats.update(peer(), transfer_path::shm, [&](path_stats& s) { s.slices += j.piece_index; });
  const auto bytes = outcome ? j.bytes : 0;
  j.on_done({.id = j.what.id, .outcome = std::move(outcome), .bytes = bytes, .path = transfer_path::shm});
}

void shm_outbound::finish_front(result<void> outcome) {
  job j = std::move(queue_.front());
  queue_.pop_front();
  if (!outcome) abandon(j);
  finish(std::move(j), std::move(outcome));
}

// Copies run on this thread: once here, none is under way and none will be, so every failure is fenced.
void shm_outbound::end(const error& why) {
  if (stage_ == stage::ended) return;
  stage_ = stage::ended;
  const auto self = shared_from_this();
  if (token_ != 0) loop_.remove(token_);
  socket_.reset();
  auto queued = std::exchange(queue_, {});
  auto noticed = std::exchange(noticed_, {});
  on_ended_(*this);
  for (auto& j : queued) finish(std::move(j), fail(why));
  for (auto& [id, j] : noticed) finish(std::move(j), fail(why));
}

bool shm_outbound::tick(time_point now) {
  if (stage_ == stage::ended) return false;
  const bool busy = !queue_.empty() || !noticed_.empty();
  std::vector<transfer_id> late;
  for (const auto& j : queue_)
    if (now > j.what.deadline) late.push_back(j.what.id);
  for (const auto id : late) {
    const auto it = std::find_if(queue_.begin(), queue_.end(), [&](const job& j) { return j.what.id == id; });
    if (it == queue_.end()) continue;
    job j = std::move(*it);
    queue_.erase(it);
    abandon(j);
    finish(std::move(j), fail(ec::timed_out, "the deadline of the transfer passed"));
  }
  for (auto it = noticed_.begin(); it != noticed_.end();) {
    if (now <= it->second.what.deadline) {
      ++it;
      continue;
    }
    job j = std::move(it->second);
    it = noticed_.erase(it);
    finish(std::move(j), fail(ec::timed_out, "the deadline of the transfer passed"));
  }
  const auto patience = stage_ == stage::open ? node_.options.peer_timeout : node_.options.connect_timeout;
  if (busy && now - progress_at_ > patience)
    end({ec::peer_lost, "node " + to_string(peer()) + " stopped answering over shared memory"});
  return busy;
}

// ---- work
// -----------------------------------------------------------------------------------------------------------

bool shm_outbound::poll() {
  if (stage_ != stage::open) return false;
  const auto self = shared_from_this();
  const bool acked = take_acks();
  return stage_ == stage::open ? work() || acked : true;
}

void shm_outbound::arm() {
  if (memory_) ring_reader{memory_->acks}.arm();
}
void shm_outbound::disarm() {
  if (memory_) ring_reader{memory_->acks}.disarm();
}

bool shm_outbound::take_acks() {
  ring_reader acks{memory_->acks};
  for (int i = 0; i < acks_per_poll; ++i) {
    const auto status = acks.take(record_);
    if (status == ring_reader::status::empty) return i > 0;
    const auto a =
        status == ring_reader::status::record ? parse_ack(record_) : fail(ec::corrupt, "damaged ring");
    if (!a) {
      end(a.error());
      return true;
    }
    progress_at_ = clock_type::now();
    const auto it = noticed_.find(a->id);
    if (it == noticed_.end()) continue;
    job j = std::move(it->second);
    noticed_.erase(it);
    finish(std::move(j), a->outcome.code == ec::none ? result<void>{} : fail(a->outcome));
    if (stage_ != stage::open) return true;
  }
  return true;
}

bool shm_outbound::work() {
  if (queue_.empty()) return false;
  auto& j = queue_.front();
  if (j.hold_until != time_point{} && clock_type::now() < j.hold_until) return false;
  auto s = map_regions(j);
  if (s == step::worked) s = copy_some(j);
  return s != step::waits;
}

// Worked: all of them are mapped.
shm_outbound::step shm_outbound::map_regions(job& j) {
  if (j.slice_index > 0 || j.slice_offset > 0) return step::worked;
  bool waits = false;
  for (const auto& pair : j.what.slices) {
    const auto& wanted = pair.remote.region;
    const auto described = peer_->regions.find(wanted);
    if (described == peer_->regions.end()) {
      finish_front(fail(ec::not_found, "node " + to_string(peer()) + " has no region " + to_string(wanted)));
      return step::finished;
    }
    const auto [it, unknown] = regions_.try_emplace(wanted);
    auto& m = it->second;
    if (unknown || m.access_key != described->second.access_key) {
      m = {.access_key = described->second.access_key, .pending = true};
      node_.stats.update(peer(), transfer_path::shm, [](path_stats& s) { ++s.control_messages; });
      const auto sent =
          send({.type = shm_packet_type::map_request, .region = wanted, .access_key = m.access_key});
      if (!sent) {
        end(sent.error());
        return step::finished;
      }
    }
    if (!m.pending && m.refusal.code != ec::none) {
      const auto why = m.refusal;
      // Asked again next time, unless the answer is for good.
      if (why.code != ec::unsupported) regions_.erase(it);
      finish_front(fail(why));
      return step::finished;
    }
    waits |= m.pending;
  }
  return waits ? step::waits : step::worked;
}

// About one piece; the loop then looks at everybody else.
shm_outbound::step shm_outbound::copy_some(job& j) {
  std::uint64_t budget = node_.options.slice_bytes;
  while (budget > 0 && j.slice_index < j.what.slices.size()) {
    if (j.notice.pieces.size() >= shm_notice::pieces_max || j.unnoticed_bytes >= notice_bytes)
      if (!publish(j, false)) return step::waits;
    const auto& pair = j.what.slices[j.slice_index];
    const auto n = std::min(node_.options.slice_bytes, pair.local.length - j.slice_offset);
    if (const auto s = copy_piece(j, pair, n); s != step::worked) return s;
    budget -= std::min(budget, std::max<std::uint64_t>(n, 64));
    if (j.slice_offset < pair.local.length) continue;
    ++j.slice_index;
    j.slice_offset = 0;
  }
  if (j.slice_index < j.what.slices.size()) return step::worked;
  if (j.what.op == transfer_op::read) {
    finish_front({});
    return step::finished;
  }
  if (noticed_.size() >= node_.options.max_transfers_per_peer) return step::waits;
  if (!j.lost && !publish(j, true)) return step::waits;
  const auto id = j.what.id;
  noticed_.emplace(id, std::move(j));
  queue_.pop_front();
  return step::finished;
}

shm_outbound::step shm_outbound::copy_piece(job& j, const slice_pair& pair, std::uint64_t n) {
  const auto local = node_.regions.resolve({pair.local.region, pair.local.offset + j.slice_offset, n});
  const slice remote{pair.remote.region, pair.remote.offset + j.slice_offset, n};
  const auto& m = regions_[remote.region];
  const auto inside = check_bounds(remote, m.length, "remote");
  if (!local || !inside) {
    finish_front(fail(local ? inside.error() : local.error()));
    return step::finished;
  }
  const auto f =
      j.hold_until != time_point{} ? fault{} : node_.next_fault(transfer_path::shm, j.what.id, j.piece_index);
  if (f.what == fault::kind::delay) {
    j.hold_until = clock_type::now() + f.wait;
    return step::waits;
  }
  j.hold_until = {};
  if (f.what == fault::kind::cut) {
    end({ec::peer_lost, "the link was cut"});
    return step::finished;
  }
  auto* there = m.base + remote.offset;
  const bool write = j.what.op == transfer_op::write;
  const bool checksum = node_.options.checksums && (write || pair.expected_checksum);
  const auto sum =
      write ? copy_through_gate(there, *local, n, checksum) : copy_through_gate(*local, there, n, checksum);
  if (!sum) {
    end(sum.error());
    return step::finished;
  }
  j.lost |= f.what == fault::kind::drop;
  if (f.what == fault::kind::corrupt && n > 0) (write ? there : *local)[n / 2] ^= std::byte{1};
  ++j.piece_index;
  j.bytes += n;
  j.unnoticed_bytes += n;
  j.slice_offset += n;
  progress_at_ = clock_type::now();
  if (write) {
    j.notice.pieces.push_back({remote, *sum});
  } else if (checksum && j.slice_offset == pair.local.length) {
    if (const auto ok = check_slice(j, pair, *sum); !ok) {
      finish_front(fail(ok.error()));
      return step::finished;
    }
  }
  return step::worked;
}

result<std::uint64_t> shm_outbound::copy_through_gate(std::byte* to, const std::byte* from, std::uint64_t n,
                                                      bool checksum) {
  memory_->inside.fetch_add(1);
  std::uint64_t sum = 0;
  const bool revoked = memory_->revoked.load() != 0;
  if (!revoked) {
    if (checksum) sum = stream_copy_checksum(to, from, n);
    else stream_copy(to, from, n);
    fence_streamed_stores();
  }
  memory_->inside.fetch_sub(1);
  if (revoked) return fail(ec::peer_lost, "node " + to_string(peer()) + " revoked the link");
  return sum;
}

// A slice that was one piece needs no second look, unless somebody tampered with it after the copy.
result<void> shm_outbound::check_slice(const job& j, const slice_pair& pair, std::uint64_t piece_sum) {
  if (pair.local.length > node_.options.slice_bytes || node_.options.faults) {
    const auto at = node_.regions.resolve(pair.local);
    if (!at) return fail(at.error());
    piece_sum = wide_checksum(*at, pair.local.length);
  }
  if (piece_sum == *pair.expected_checksum) return {};
  node_.stats.update(peer(), transfer_path::shm, [](path_stats& s) { ++s.checksum_failures; });
  return fail(ec::corrupt,
              "slice " + std::to_string(j.slice_index) + " does not have the checksum its owner states");
}

// False: the ring is full, try again later.
bool shm_outbound::publish(job& j, bool last) {
  if (j.what.op != transfer_op::write) {
    j.unnoticed_bytes = 0;
    return true;
  }
  j.notice.last = last;
  encode_notice(j.notice, record_);
  ring_writer notices{memory_->notices};
  if (!notices.put(record_)) return false;
  if (notices.must_wake() && peer_wake_) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(peer_wake_.get(), &one, sizeof(one));
  }
  node_.stats.update(peer(), transfer_path::shm, [](path_stats& s) { ++s.control_messages; });
  j.notice.pieces.clear();
  j.unnoticed_bytes = 0;
  j.noticed_some = true;
  progress_at_ = clock_type::now();
  return true;
}

}  // namespace mooncaf
