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
      progress_at_(clock_type::now()) {}

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
        handshake::initiator(node_.options.cluster_secret, *nonce, self), shared_from_this()));
  }
  {
    std::lock_guard lock{mutex_};
    links_ = links;
  }
  for (const auto& l : links) l->start();
  return {};
}

// ---- orders in
// ------------------------------------------------------------------------------------------------------

bool tcp_session::submit(transfer& what, completion_handler& on_done) {
  done_list done;
  {
    std::lock_guard lock{mutex_};
    if (over_) return false;
    if (active_.empty()) progress_at_ = clock_type::now();
    if (active_.size() >= node_.options.max_transfers_per_peer)
      waiting_.emplace_back(std::move(what), std::move(on_done));
    else start(std::move(what), std::move(on_done), done);
  }
  call(done);
  return true;
}

void tcp_session::start(transfer what, completion_handler on_done, done_list& done) {
  const auto id = what.id;
  auto& a = active_[id];
  a.what = std::move(what);
  a.on_done = std::move(on_done);
  a.bytes = a.what.size_bytes();
  auto pieces = cut(a.what);
  if (!pieces) return settle(a, fail(pieces.error()), true, done);
  a.pieces = std::move(*pieces);
  const auto count = static_cast<std::uint32_t>(a.pieces.size());
  if (a.what.op == transfer_op::write) {
    orders_.push_back({id, order_kind::data, 0, count});
    return wake_links(count);
  }
  if (count == 0) return settle(a, {}, true, done);
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
  if (pieces.size() > pieces_max)
    return fail(ec::invalid_argument, "transfer of " + std::to_string(pieces.size()) + " pieces, at most " +
                                          std::to_string(pieces_max) + " are allowed");
  return pieces;
}

void tcp_session::activate() {
  done_list done;
  {
    std::lock_guard lock{mutex_};
    while (!over_ && !waiting_.empty() && active_.size() < node_.options.max_transfers_per_peer) {
      auto next = std::move(waiting_.front());
      waiting_.pop_front();
      start(std::move(next.first), std::move(next.second), done);
    }
  }
  call(done);
}

void tcp_session::cancel(transfer_id id) {
  done_list done;
  {
    std::lock_guard lock{mutex_};
    if (const auto it = active_.find(id); it != active_.end()) {
      request_end(it->second, ec::cancelled, done);
    } else {
      const auto w =
          std::find_if(waiting_.begin(), waiting_.end(), [&](auto& e) { return e.first.id == id; });
      if (w != waiting_.end()) {
        done.push_back({std::move(w->second), {.id = id, .outcome = fail(ec::cancelled)}});
        waiting_.erase(w);
      }
    }
  }
  call(done);
  activate();
}

// Cancel or deadline. What the peer may be receiving is over only when it says so.
void tcp_session::request_end(active& a, ec why, done_list& done) {
  if (a.settled || a.cancel_sent) return;
  drop_orders(a.what.id);
  const error cause{why,
                    why == ec::cancelled ? "cancelled by its owner" : "the deadline of the transfer passed"};
  if (!a.touched) return settle(a, fail(cause), true, done);
  orders_.push_front({a.what.id, order_kind::cancel});
  a.cancel_sent = true;
  a.outcome = fail(cause);
  a.give_up_at = clock_type::now() + node_.options.close_timeout;
  wake_links(1);
  // Nobody but us writes our own memory; the peer just wastes the rest of its answer.
  if (a.what.op == transfer_op::read) settle(a, fail(cause), true, done);
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

// ---- ends
// -----------------------------------------------------------------------------------------------------------

void tcp_session::settle(active& a, result<void> outcome, bool fenced, done_list& done) {
  if (a.settled) return;
  a.settled = true;
  a.outcome = std::move(outcome);
  a.fenced = fenced;
  drop_orders(a.what.id);
  finish_if_idle(a.what.id, done);
}

void tcp_session::finish_if_idle(transfer_id id, done_list& done) {
  const auto it = active_.find(id);
  if (it == active_.end() || !it->second.settled || it->second.in_use > 0) return;
  auto& a = it->second;
  node_.stats.update(peer(), transfer_path::tcp, [&](path_stats& s) { s.slices += a.pieces.size(); });
  done.push_back({std::move(a.on_done),
                  {.id = id,
                   .outcome = a.outcome,
                   .bytes = a.outcome ? a.bytes : 0,
                   .path = transfer_path::tcp,
                   .fenced = a.fenced}});
  active_.erase(it);
}

void tcp_session::call(done_list& done) {
  for (auto& d : done) d.on_done(d.what);
}

void tcp_session::call_later(tcp_link& link, done_list& done) {
  if (done.empty()) return;
  link.defer([self = shared_from_this(), list = std::make_shared<done_list>(std::move(done))] {
    call(*list);
    self->activate();
  });
}

void tcp_session::end(const error& why) {
  std::vector<std::shared_ptr<tcp_link>> links;
  {
    std::lock_guard lock{mutex_};
    if (over_) return;
    over_ = true;
    links = links_;
  }
  // Afterwards no connection looks at local memory.
  for (const auto& l : links) l->kill(why);
  done_list done;
  {
    std::lock_guard lock{mutex_};
    orders_.clear();
    idle_.clear();
    std::vector<transfer_id> ids;
    for (auto& [id, a] : active_) ids.push_back(id);
    for (const auto id : ids) {
      auto& a = active_[id];
      // A cancelled or expired one keeps its reason, but the peer did not confirm.
      const bool unconfirmed = a.what.op == transfer_op::write && a.touched && !a.settled;
      if (!a.settled) settle(a, a.cancel_sent ? a.outcome : fail(why), !unconfirmed, done);
      else finish_if_idle(id, done);
    }
    for (auto& [what, on_done] : waiting_)
      done.push_back({std::move(on_done), {.id = what.id, .outcome = fail(why), .path = transfer_path::tcp}});
    waiting_.clear();
  }
  if (on_ended_) on_ended_(*this);
  call(done);
}

void tcp_session::on_broken(tcp_link&, const error& why) { end(why); }

bool tcp_session::tick(time_point now) {
  done_list done;
  std::optional<error> lost;
  bool busy = false;
  {
    std::lock_guard lock{mutex_};
    if (over_) return false;
    busy = !active_.empty();
    std::uint64_t progress = 0;
    for (const auto& l : links_) progress += l->progress();
    if (!busy || progress != seen_progress_) progress_at_ = now;
    seen_progress_ = progress;
    const bool opened = std::all_of(links_.begin(), links_.end(), [](const auto& l) { return l->open(); });
    const auto patience = opened ? node_.options.peer_timeout : node_.options.connect_timeout;
    if (busy && now - progress_at_ > patience)
      lost = error{ec::peer_lost,
                   "node " + to_string(peer()) + (opened ? " stopped answering" : " does not answer")};
    std::vector<transfer_id> late;
    for (const auto& [id, a] : active_) {
      if (a.cancel_sent && !a.settled && now > a.give_up_at)
        lost = error{ec::peer_lost, "node " + to_string(peer()) + " does not confirm a cancelled transfer"};
      if (now > a.what.deadline) late.push_back(id);
    }
    for (const auto id : late) request_end(active_[id], ec::timed_out, done);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (now <= it->first.deadline) {
        ++it;
        continue;
      }
      done.push_back(
          {std::move(it->second),
           {.id = it->first.id, .outcome = fail(ec::timed_out, "the deadline of the transfer passed")}});
      it = waiting_.erase(it);
    }
    if (!orders_.empty() && now >= hold_until_) wake_links(links_.size());
  }
  call(done);
  if (!done.empty()) activate();
  if (lost) end(*lost);
  return busy;
}

// ---- frames out
// -----------------------------------------------------------------------------------------------------

bool tcp_session::next_frame(tcp_link& link, outgoing_frame& out) {
  std::unique_lock lock{mutex_};
  while (!over_ && !orders_.empty() && clock_type::now() >= hold_until_) {
    auto& o = orders_.front();
    const auto it = active_.find(o.id);
    if (o.kind != order_kind::cancel && it == active_.end()) {
      orders_.pop_front();
      continue;
    }
    if (o.kind == order_kind::data) {
      const auto id = o.id;
      if (!make_data_frame(link, o, it->second, out)) continue;
      auto& a = it->second;
      a.touched = true;
      ++a.in_use;
      // The checksum pulls the piece into the cache, where the send finds it; other connections need not
      // wait.
      const bool corrupted = !out.own.empty();
      const auto* source = a.pieces[out.header.index].local;
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
      it->second.touched = true;
      make_read_frame(o, it->second, out);
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

// False if a fault wants nothing to be sent now.
bool tcp_session::make_data_frame(tcp_link& link, order& o, active& a, outgoing_frame& out) {
  const auto index = o.next;
  const auto& p = a.pieces[index];
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
  a.touched = true;
  if (f.what == fault::kind::drop) return false;
  out.header.type = frame_type::write_data;
  out.header.more = !orders_.empty();
  out.header.index = index;
  out.header.count = static_cast<std::uint32_t>(a.pieces.size());
  out.header.payload_bytes = static_cast<std::uint32_t>(p.remote.length);
  out.header.total_bytes = a.bytes;
  out.header.target = p.remote;
  out.header.access_key = p.access_key;
  out.header.tag = a.what.tag;
  out.payload = p.local;
  if (f.what == fault::kind::corrupt && p.remote.length > 0) {
    out.own.assign(p.local, p.local + p.remote.length);
    out.own[p.remote.length / 2] ^= std::byte{1};
  }
  return true;
}

void tcp_session::make_read_frame(const order& o, const active& a, outgoing_frame& out) {
  std::vector<read_entry> entries;
  for (auto i = o.next; i < o.end; ++i) entries.push_back({i, a.pieces[i].remote, a.pieces[i].access_key});
  out.own = encode_read_entries(entries);
  out.payload = out.own.data();
  out.header.type = frame_type::read_request;
  out.header.id = o.id;
  out.header.count = static_cast<std::uint32_t>(entries.size());
  out.header.payload_bytes = static_cast<std::uint32_t>(out.own.size());
}

void tcp_session::on_sent(tcp_link& link, const outgoing_frame& f) {
  if (f.header.type != frame_type::write_data) return;
  done_list done;
  std::lock_guard lock{mutex_};
  const auto it = active_.find(f.header.id);
  if (it == active_.end()) return;
  --it->second.in_use;
  finish_if_idle(f.header.id, done);
  call_later(link, done);
}

// ---- frames in
// ------------------------------------------------------------------------------------------------------

result<frame_sink> tcp_session::on_header(tcp_link&, const frame_header& h) {
  switch (h.type) {
    case frame_type::write_result:
    case frame_type::read_result:
    case frame_type::cancel_result:
      return frame_sink{};
    case frame_type::read_data: {
      std::lock_guard lock{mutex_};
      const auto it = active_.find(h.id);
      if (it == active_.end() || it->second.settled)
        return frame_sink{frame_sink::kind::discard, nullptr, {}};
      auto& a = it->second;
      if (a.what.op != transfer_op::read || h.index >= a.pieces.size() || a.pieces[h.index].arrived ||
          a.pieces[h.index].remote.length != h.payload_bytes)
        return fail(ec::corrupt, "the peer sent data that nobody asked for");
      a.pieces[h.index].arrived = true;
      ++a.in_use;
      return frame_sink{frame_sink::kind::memory, a.pieces[h.index].local, {}};
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
  done_list done;
  std::lock_guard lock{mutex_};
  const auto it = active_.find(h.id);
  if (it == active_.end()) return {};
  auto& a = it->second;
  if (data) {
    if (const auto r = on_read_piece(a, h, sink, intact, done); !r) return r;
  } else if (h.type == frame_type::write_result || h.type == frame_type::read_result) {
    settle(a, h.status == ec::none ? result<void>{} : fail(failure()), true, done);
  } else if (h.type == frame_type::cancel_result && a.cancel_sent) {
    settle(a, a.outcome, true, done);
  }
  call_later(link, done);
  return {};
}

result<void> tcp_session::on_read_piece(active& a, const frame_header& h, const frame_sink&, bool intact,
                                        done_list& done) {
  --a.in_use;
  ++a.arrived;
  const auto id = a.what.id;
  if (!intact) {
    node_.stats.update(peer(), transfer_path::tcp, [](path_stats& s) { ++s.checksum_failures; });
    settle(a,
           fail(ec::corrupt, "piece " + std::to_string(h.index) + " of a read arrived with a wrong checksum"),
           true, done);
  } else if (a.arrived == a.pieces.size() && !a.settled) {
    settle(a, check_expected(a), true, done);
  }
  finish_if_idle(id, done);
  return {};
}

result<void> tcp_session::check_expected(const active& a) const {
  if (!node_.options.checksums) return {};
  for (std::size_t i = 0; i < a.what.slices.size(); ++i) {
    const auto& pair = a.what.slices[i];
    if (!pair.expected_checksum) continue;
    const auto at = node_.regions.resolve(pair.local);
    if (!at) return fail(at.error());
    if (wide_checksum(*at, pair.local.length) == *pair.expected_checksum) continue;
    node_.stats.update(peer(), transfer_path::tcp, [](path_stats& s) { ++s.checksum_failures; });
    return fail(ec::corrupt, "slice " + std::to_string(i) + " does not have the checksum its owner states");
  }
  return {};
}

void tcp_session::on_abandoned(tcp_link&, const frame_header& h, const frame_sink& sink) {
  if (sink.to != frame_sink::kind::memory) return;
  std::lock_guard lock{mutex_};
  // The session ends with the link; its completions are called there.
  if (const auto it = active_.find(h.id); it != active_.end()) --it->second.in_use;
}

}  // namespace mooncaf
