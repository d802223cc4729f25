#include "transport/tcp/tcp_session.hpp"

#include <algorithm>

#include "transport/copy/stream_copy.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {

tcp_session::tcp_session(node_state& node, std::shared_ptr<const peer_info> peer, ended_handler on_ended)
    : node_(node),
      on_ended_(std::move(on_ended)),
      peer_node_(peer->address.node),
      peer_(std::move(peer)),
      book_(node, peer_node_, transfer_path::tcp) {}

bool tcp_session::update(const std::shared_ptr<const peer_info>& peer) {
  std::lock_guard lock{mutex_};
  if (peer == peer_) return true;
  if (peer->address != peer_->address) return false;
  peer_ = peer;
  return true;
}

result<void> tcp_session::open(const std::vector<std::unique_ptr<event_loop>>& loops) {
  if (peer_->tcp.size == 0) return fail(ec::unsupported, "node " + to_string(peer()) + " offers no TCP");
  const auto session = make_random_u64();
  if (!session) return fail(session.error());
  const link_identity self{link_kind::tcp, node_.options.node,        node_.incarnation, *session,
                           peer(),         peer_->address.incarnation};
  std::vector<std::shared_ptr<tcp_link>> links;
  for (unsigned i = 0; i < node_.options.tcp_streams; ++i) {
    const auto nonce = make_nonce();
    if (!nonce) return fail(nonce.error());
    auto fd = connect_tcp(peer_->tcp);
    if (!fd) return fail(fd.error());
    tune_tcp(fd->get(), node_.options.peer_timeout);
    bound_send_buffer(fd->get(), node_.options.tcp_send_buffer);
    links.push_back(std::make_shared<tcp_link>(
        *loops[i % loops.size()], std::move(*fd),
        handshake::initiator(node_.options.cluster_secret.own(), *nonce, self), shared_from_this()));
  }
  {
    std::lock_guard lock{mutex_};
    links_ = links;
  }
  for (const auto& l : links) l->start();
  return {};
}

// ---- orders in ----

result<void> tcp_session::submit(transfer& what, completion_handler& on_done) {
  book::due done;
  {
    std::lock_guard lock{mutex_};
    if (over_) return fail(*over_);
    if (auto* j = book_.submit(std::move(what), std::move(on_done))) start(*j);
    done = book_.take();
  }
  done.tell();
  return {};
}

void tcp_session::start(job& j) {
  auto pieces = cut(j.what);
  if (!pieces) return settle(j, fail(pieces.error()));
  j.pieces = std::move(*pieces);
  const auto id = j.what.id;
  const auto count = static_cast<std::uint32_t>(j.pieces.size());
  if (j.what.op == transfer_op::write) {
    orders_.push_back({id, order_kind::data, 0, count});
    return wake_links(count);
  }
  if (count == 0) return settle(j, {});
  // One request per connection, so that the answers stripe.
  const auto share = std::min<std::uint32_t>(
      read_entries_max, (count + node_.options.tcp_streams - 1) / node_.options.tcp_streams);
  for (std::uint32_t i = 0; i < count; i += share)
    orders_.push_back({id, order_kind::read, i, std::min(count, i + share)});
  wake_links(node_.options.tcp_streams);
}

result<std::vector<tcp_session::piece>> tcp_session::cut(const transfer& t) const {
  std::vector<piece> pieces;
  for (const auto& pair : t.slices) {
    const auto local = node_.regions.resolve(pair.local);
    if (!local) return fail(local.error());
    const auto region = peer_->regions.find(pair.remote.region);
    if (region == peer_->regions.end())
      return fail(ec::not_found,
                  "node " + to_string(peer()) + " has no region " + to_string(pair.remote.region));
    for (std::uint64_t at = 0; at < pair.local.length; at += node_.options.slice_bytes) {
      const auto n = std::min(node_.options.slice_bytes, pair.local.length - at);
      pieces.push_back(
          {*local + at, {pair.remote.region, pair.remote.offset + at, n}, region->second.access_key, false});
    }
  }
  // A write without bytes still has to land.
  if (pieces.empty() && t.op == transfer_op::write) pieces.emplace_back();
  if (pieces.size() > transfer_pieces_max)
    return fail(ec::invalid_argument, "transfer of " + std::to_string(pieces.size()) + " pieces, at most " +
                                          std::to_string(transfer_pieces_max) + " are allowed");
  return pieces;
}

// Begins waiting transfers for which completed ones have made room.
void tcp_session::activate() {
  book::due done;
  {
    std::lock_guard lock{mutex_};
    if (over_) return;
    while (auto* j = book_.next()) start(*j);
    done = book_.take();
  }
  done.tell();
}

void tcp_session::cancel(transfer_id id) {
  book::due done;
  {
    std::lock_guard lock{mutex_};
    if (auto* j = book_.cancel(id)) request_end(*j, ec::cancelled);
    done = book_.take();
  }
  done.tell();
  activate();
}

// A cancelled or late transfer that the peer may be receiving is over only when the peer says so.
void tcp_session::request_end(job& j, ec why) {
  drop_orders(j.what.id);
  auto cause = end_cause(why);
  if (!j.touched) return book_.settle(j, fail(std::move(cause)));
  orders_.push_front({j.what.id, order_kind::cancel});
  wake_links(1);
  // Only this node writes its own memory; the rest of the peer's answer is thrown away.
  if (j.what.op == transfer_op::read) return book_.settle(j, fail(std::move(cause)));
  book_.give_up(j, std::move(cause), clock_type::now() + node_.options.close_timeout);
}

void tcp_session::drop_orders(transfer_id id) {
  std::erase_if(orders_, [&](const order& o) { return o.id == id && o.kind != order_kind::cancel; });
}

void tcp_session::wake_links(std::size_t count) {
  while (count-- > 0 && !idle_.empty()) {
    idle_.back()->kick();
    idle_.pop_back();
  }
}

// ---- ends ----

void tcp_session::settle(job& j, result<void> outcome) {
  if (j.settled()) return;
  drop_orders(j.what.id);
  book_.settle(j, std::move(outcome));
}

// Inside the calls of a link, which must not call another one.
void tcp_session::tell_later(tcp_link& link) {
  auto done = book_.take();
  if (done.empty()) return;
  link.defer([self = shared_from_this(), shared = std::make_shared<book::due>(std::move(done))] {
    shared->tell();
    self->activate();
  });
}

void tcp_session::end(const error& why) {
  std::vector<std::shared_ptr<tcp_link>> links;
  {
    std::lock_guard lock{mutex_};
    if (over_) return;
    over_ = why;
    links = links_;
  }
  // Afterwards no connection looks at local memory.
  for (const auto& l : links) l->kill(why);
  book::due done;
  {
    std::lock_guard lock{mutex_};
    orders_.clear();
    idle_.clear();
    // The peer may still be receiving unanswered writes.
    book_.end(why, [](const job& j) { return j.settled() || !j.touched || j.what.op == transfer_op::read; });
    done = book_.take();
  }
  if (on_ended_) on_ended_(*this);
  done.tell();
}

void tcp_session::on_broken(tcp_link&, const error& why) { end(why); }

std::optional<error> tcp_session::lost_peer(time_point now) {
  std::uint64_t progress = 0;
  for (const auto& l : links_) progress += l->progress();
  const bool opened = std::all_of(links_.begin(), links_.end(), [](const auto& l) { return l->open(); });
  const auto patience = opened ? node_.options.peer_timeout : node_.options.connect_timeout;
  const auto who = "node " + to_string(peer());
  if (book_.unconfirmed(now)) return error{ec::peer_lost, who + " does not confirm a cancelled transfer"};
  if (!book_.stalled(now, progress, patience)) return std::nullopt;
  return error{ec::peer_lost, who + (opened ? " stopped answering" : " does not answer")};
}

bool tcp_session::tick(time_point now) {
  book::due done;
  std::optional<error> lost;
  bool busy = false;
  {
    std::lock_guard lock{mutex_};
    if (over_) return false;
    busy = !book_.idle();
    lost = lost_peer(now);
    for (const auto id : book_.late(now))
      if (auto* j = book_.find(id)) request_end(*j, ec::timed_out);
    if (!orders_.empty() && now >= hold_until_) wake_links(links_.size());
    done = book_.take();
  }
  done.tell();
  if (!done.empty()) activate();
  if (lost) end(*lost);
  return busy;
}

// ---- frames out ----

// Gives the first order that may go now. The lock is open while a piece is hashed, so that the other
// connections go on; the hold keeps the memory meanwhile.
bool tcp_session::next_frame(tcp_link& link, outgoing_frame& out) {
  std::unique_lock lock{mutex_};
  while (!over_ && !orders_.empty() && clock_type::now() >= hold_until_) {
    auto& o = orders_.front();
    auto* const j = book_.find(o.id);
    if (o.kind != order_kind::cancel && !j) {
      orders_.pop_front();
      continue;
    }
    if (o.kind == order_kind::data) {
      const auto id = o.id;
      if (!make_data_frame(link, o, *j, out)) continue;
      book_.hold(*j);
      // The checksum pulls the piece into the cache, where the send finds it; other connections need not
      // wait.
      const bool corrupted = !out.own.empty();
      const auto* source = j->pieces[out.header.index].local;
      lock.unlock();
      if (node_.options.checksums) {
        out.header.has_checksum = true;
        out.header.checksum = cold_checksum(source, out.header.payload_bytes);
      }
      if (corrupted) out.payload = out.own.data();
      out.header.id = id;
      return true;
    }
    node_.stats.update(peer(), transfer_path::tcp, [](path_stats& s) { ++s.control_messages; });
    if (o.kind == order_kind::read) {
      j->touched = true;
      make_read_frame(o, *j, out);
    } else {
      out.header.type = frame_type::cancel;
      out.header.id = o.id;
    }
    orders_.pop_front();
    return true;
  }
  if (std::find(idle_.begin(), idle_.end(), &link) == idle_.end() && !over_) idle_.push_back(&link);
  return false;
}

// Fills in the frame of the next piece. @returns false if an injected fault keeps it from being sent now.
bool tcp_session::make_data_frame(tcp_link& link, order& o, job& j, outgoing_frame& out) {
  const auto index = o.next;
  const auto& p = j.pieces[index];
  const auto f = node_.next_fault(transfer_path::tcp, o.id, index);
  if (f.what == fault::kind::delay && hold_until_ < clock_type::now() + f.wait) {
    hold_until_ = clock_type::now() + f.wait;
    return false;
  }
  if (f.what == fault::kind::cut) {
    hold_until_ = time_point::max();
    link.kill_later({ec::peer_lost, "the link was cut"});
    return false;
  }
  if (++o.next == o.end) orders_.pop_front();
  j.touched = true;
  if (f.what == fault::kind::drop) return false;
  out.header.type = frame_type::write_data;
  out.header.more = !orders_.empty();
  out.header.index = index;
  out.header.count = static_cast<std::uint32_t>(j.pieces.size());
  out.header.payload_bytes = static_cast<std::uint32_t>(p.remote.length);
  out.header.total_bytes = j.bytes();
  out.header.target = p.remote;
  out.header.access_key = p.access_key;
  out.header.tag = j.what.tag;
  out.payload = p.local;
  if (f.what == fault::kind::corrupt && p.remote.length > 0) {
    out.own.assign(p.local, p.local + p.remote.length);
    out.own[p.remote.length / 2] ^= std::byte{1};
  }
  return true;
}

void tcp_session::make_read_frame(const order& o, const job& j, outgoing_frame& out) {
  std::vector<read_entry> entries;
  for (auto i = o.next; i < o.end; ++i) entries.push_back({i, j.pieces[i].remote, j.pieces[i].access_key});
  out.own = encode_read_entries(entries);
  out.payload = out.own.data();
  out.header.type = frame_type::read_request;
  out.header.id = o.id;
  out.header.count = static_cast<std::uint32_t>(entries.size());
  out.header.payload_bytes = static_cast<std::uint32_t>(out.own.size());
}

void tcp_session::on_sent(tcp_link& link, const outgoing_frame& f) {
  if (f.header.type != frame_type::write_data) return;
  std::lock_guard lock{mutex_};
  auto* const j = book_.find(f.header.id);
  if (!j) return;
  book_.release(*j);
  tell_later(link);
}

// ---- frames in ----

result<frame_sink> tcp_session::on_header(tcp_link&, const frame_header& h) {
  switch (h.type) {
    case frame_type::write_result:
    case frame_type::read_result:
    case frame_type::cancel_result:
      return frame_sink{};
    case frame_type::read_data: {
      std::lock_guard lock{mutex_};
      auto* const j = book_.find(h.id);
      if (!j || j->settled()) return frame_sink{frame_sink::kind::discard, nullptr, {}};
      if (j->what.op != transfer_op::read || h.index >= j->pieces.size() || j->pieces[h.index].arrived ||
          j->pieces[h.index].remote.length != h.payload_bytes)
        return fail(ec::corrupt, "the peer sent data that nobody asked for");
      j->pieces[h.index].arrived = true;
      book_.hold(*j);
      return frame_sink{frame_sink::kind::memory, j->pieces[h.index].local, {}};
    }
    default:
      return fail(ec::corrupt, "the peer sent a frame that only an initiator may send");
  }
}

result<void> tcp_session::on_frame(tcp_link& link, const frame_header& h, const frame_sink& sink,
                                   std::span<const std::byte> control) {
  const bool data = h.type == frame_type::read_data && sink.to == frame_sink::kind::memory;
  const bool intact = !data || is_intact(h, sink, node_.options.checksums);
  const auto failure = [&] {
    return error{h.status, std::string{reinterpret_cast<const char*>(control.data()), control.size()}};
  };
  std::lock_guard lock{mutex_};
  auto* const j = book_.find(h.id);
  if (!j) return {};
  if (data) {
    on_read_piece(*j, h, intact);
  } else if (h.type == frame_type::write_result || h.type == frame_type::read_result) {
    settle(*j, h.status == ec::none ? result<void>{} : fail(failure()));
  } else if (h.type == frame_type::cancel_result && j->given_up()) {
    book_.confirm(*j);
  }
  tell_later(link);
  return {};
}

void tcp_session::on_read_piece(job& j, const frame_header& h, bool intact) {
  ++j.arrived;
  if (!intact) {
    node_.stats.update(peer(), transfer_path::tcp, [](path_stats& s) { ++s.checksum_failures; });
    settle(j, fail(ec::corrupt,
                   "piece " + std::to_string(h.index) + " of a read arrived with a wrong checksum"));
  } else if (j.arrived == j.pieces.size() && !j.settled()) {
    settle(j, check_stated_sums(node_, transfer_path::tcp, j.what));
  }
  book_.release(j);
}

void tcp_session::on_abandoned(tcp_link&, const frame_header& h, const frame_sink& sink) {
  if (sink.to != frame_sink::kind::memory) return;
  std::lock_guard lock{mutex_};
  // The session ends with the link; its completions are called there.
  if (auto* const j = book_.find(h.id)) book_.release(*j);
}

}  // namespace mooncaf
