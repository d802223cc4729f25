#include "transport/rdma/rdma_outbound.hpp"

#include <algorithm>

#include "transport/copy/stream_copy.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {

rdma_outbound::rdma_outbound(rdma_node& shared, std::shared_ptr<const peer_info> peer, event_handler on_ended,
                             event_handler on_over)
    : shared_(shared),
      node_(shared.node),
      peer_(std::move(peer)),
      on_ended_(std::move(on_ended)),
      on_over_(std::move(on_over)),
      book_(node_, peer_->address.node, transfer_path::rdma) {}

// Connects the control link; queue pairs are made with the first transfer. Its handlers hold this object
// weakly, since the object owns the link.
result<void> rdma_outbound::open() {
  pair_rails();
  if (rails_.empty()) return fail(last_rail_error_);
  const auto session = make_random_u64();
  const auto nonce = make_nonce();
  if (!session || !nonce) return fail(ec::io_error, "the system gives no random bytes");
  const auto at = resolve_tcp(peer_->address.host, peer_->address.rdma_port);
  if (!at) return fail(at.error());
  auto fd = connect_tcp(*at);
  if (!fd) return fail(ec::unavailable, fd.error().detail);
  tune_tcp(fd->get(), node_.options.peer_timeout);
  const link_identity self{link_kind::rdma, node_.options.node,        node_.incarnation, *session,
                           peer(),          peer_->address.incarnation};
  const std::weak_ptr<rdma_outbound> weak = shared_from_this();
  control_ = std::make_shared<control_link>(
      [weak](const rdma_control& c) {
        if (const auto self_alive = weak.lock()) self_alive->on_control(c);
      },
      [weak](const error& why) {
        if (const auto self_alive = weak.lock()) self_alive->on_link_broken(why);
      });
  auto link = std::make_shared<tcp_link>(
      *shared_.loop, std::move(*fd), handshake::initiator(node_.options.cluster_secret.own(), *nonce, self),
      control_);
  control_->attach(link);
  link->start();
  return {};
}

bool rdma_outbound::update(const std::shared_ptr<const peer_info>& peer) {
  if (peer == peer_) return true;
  if (peer->address != peer_->address) return false;
  peer_ = peer;
  return true;
}

void rdma_outbound::on_control(const rdma_control& c) {
  switch (c.type) {
    case rdma_control_type::rail_connected:
      on_rail_connected(c);
      break;
    case rdma_control_type::rail_retired:
      on_rail_retired(c);
      break;
    case rdma_control_type::map_reply:
      on_map_reply(c);
      break;
    case rdma_control_type::query_reply:
      on_query_reply(c);
      break;
    case rdma_control_type::ack:
      if (auto* const j = book_.find(c.id))
        book_.settle(*j, c.status == ec::none ? result<void>{} : fail(c.status, c.detail));
      break;
    default:
      return end({ec::corrupt, "the peer sent what only an initiator may say"});
  }
  pump();
  tell_done();
}

// ---- orders in ----

void rdma_outbound::submit(transfer what, completion_handler on_done) {
  if (auto* const j = book_.submit(std::move(what), std::move(on_done))) start(*j);
  tell_done();
}

void rdma_outbound::start(job& j) {
  if (const auto ok = cut(j); !ok) return book_.settle(j, ok);
  if (j.pieces.empty()) return book_.settle(j, {});
  // All at once, so that thousands of regions do not cost thousands of round trips one after another.
  for (const auto& pair : j.what.slices) ask_for(pair.remote.region);
  if (j.what.repeated && j.what.op == transfer_op::write) {
    j.asking = true;
    control_->send({.type = rdma_control_type::query, .id = j.what.id});
    return;
  }
  enqueue(j);
}

result<void> rdma_outbound::cut(job& j) const {
  j.summed = node_.options.checksums;
  const auto step_bytes = shared_.options().slice_bytes;
  for (const auto& pair : j.what.slices) {
    const auto local = node_.regions.locate(pair.local);
    if (!local) return fail(local.error());
    const auto registered = shared_.memory.find(pair.local.region);
    if (!registered || !registered->reachable())
      return fail(ec::unsupported, "no NIC of this node has region " + to_string(pair.local.region));
    j.summed &= local->kind == memory_kind::host;
    for (std::uint64_t at = 0; at < pair.local.length; at += step_bytes)
      j.pieces.push_back(
          {local->at + at,
           registered.get(),
           {pair.remote.region, pair.remote.offset + at, std::min(step_bytes, pair.local.length - at)}});
  }
  // A write without bytes still has to land.
  if (j.pieces.empty() && j.what.op == transfer_op::write) j.pieces.emplace_back();
  if (j.pieces.size() > transfer_pieces_max)
    return fail(ec::invalid_argument, "transfer of " + std::to_string(j.pieces.size()) + " pieces, at most " +
                                          std::to_string(transfer_pieces_max) + " are allowed");
  return {};
}

void rdma_outbound::cancel(transfer_id id) {
  if (auto* const j = book_.cancel(id)) request_end(*j, ec::cancelled);
  tell_done();
}

// Pieces that were posted go on until the NICs are done with them; the rest never leaves.
void rdma_outbound::request_end(job& j, ec why) {
  if (j.touched && j.what.op == transfer_op::write)
    control_->send({.type = rdma_control_type::abandon, .id = j.what.id});
  book_.settle(j, fail(end_cause(why)));
}

// ---- posting ----

bool rdma_outbound::pump() {
  if (ending_) return false;
  bool worked = false;
  while (auto* const j = book_.next()) start(*j);
  if (book_.idle()) return false;
  connect_rails(clock_type::now());
  for (const auto id : std::exchange(unsent_notices_, {}))
    if (auto* const j = book_.find(id)) send_notices(*j, true);
  constexpr int pieces_per_turn = 64;  // then completions and other peers get theirs
  for (int i = 0; i < pieces_per_turn; ++i) {
    const auto s = post_next();
    if (s == step::waits) break;
    worked = true;
  }
  flush_rails();
  check_hope();
  return worked;
}

// Posts one piece: first of the pieces to repeat, then of the oldest transfer. Pieces wait in their line for
// keys, for room on a rail, or for the end of an injected delay.
rdma_outbound::step rdma_outbound::post_next() {
  const bool repeat = !repeats_.empty();
  if (!repeat && orders_.empty()) return step::waits;
  const auto id = repeat ? repeats_.front().first : orders_.front();
  auto* const found = book_.find(id);
  const auto drop = [&] {
    if (repeat) repeats_.pop_front();
    else orders_.pop_front();
    return step::dropped;
  };
  if (!found || found->settled()) return drop();
  auto& j = *found;
  if (j.asking && !repeat) {
    j.queued = false;  // comes back with the answer; others need not wait for it
    return drop();
  }
  if (j.asking || clock_type::now() < j.hold_until) return step::waits;
  const auto index = repeat ? repeats_.front().second : j.next;
  const auto& p = j.pieces[index];
  const auto* m = mapped(j, p);
  if (!m) return j.settled() ? drop() : step::waits;
  bool hopeless = false;
  auto* r = choose_rail(j, p, *m, hopeless);
  if (hopeless) {
    book_.settle(j, fail(ec::unsupported, "no rail reaches both regions of a slice"));
    return drop();
  }
  if (!r) return step::waits;
  bool corrupt = false;
  if (!repeat)
    if (const auto s = apply_fault(j, index, *r, corrupt); s != step::posted) return s;
  if (repeat) {
    repeats_.pop_front();
    --j.to_repeat;
  } else if (++j.next == j.pieces.size()) {
    orders_.pop_front();
  }
  post(j, index, *r, *m, corrupt);
  if (repeat) shared_.figures.update(r->index, [](rail_stats& s) { ++s.retries; });
  return step::posted;
}

rdma_outbound::step rdma_outbound::apply_fault(job& j, std::uint32_t index, rail& r, bool& corrupt) {
  const auto f = node_.next_fault(transfer_path::rdma, j.what.id, index);
  corrupt = f.what == fault::kind::corrupt;
  if (f.what == fault::kind::delay && j.hold_until == time_point{}) {
    j.hold_until = clock_type::now() + f.wait;
    return step::waits;
  }
  if (f.what == fault::kind::cut) {
    r.cut = true;
    return step::waits;
  }
  if (f.what == fault::kind::drop) {
    j.touched = true;
    j.lost = true;
    if (++j.next == j.pieces.size()) orders_.pop_front();
    return step::dropped;
  }
  return step::posted;
}

void rdma_outbound::post(job& j, std::uint32_t index, rail& r, const mapped_region& m, bool corrupt) {
  auto& p = j.pieces[index];
  const auto length = static_cast<std::uint32_t>(p.remote.length);
  const bool write = j.what.op == transfer_op::write;
  j.touched = true;
  p.link_number = r.number;
  if (length > 0) {
    rdma_order o{!write, p.local, 0, m.base + p.remote.offset, 0, length};
    o.device = p.registered->kind == memory_kind::device;
    key_pair(r, p, m, o.local_key, o.remote_key);
    if (corrupt && !o.device) o.local = altered_copy(j, p, r, o.local_key);
    r.pair->add(o, {.id = j.what.id, .piece = index, .bytes = length, .posted = clock_type::now()});
    r.outstanding_bytes += length;
    book_.hold(j);
  }
  if (!write) return;
  auto& n = j.notices[r.index];
  // The checksum is that of the source, even where a fault makes other bytes leave.
  const auto sum = j.summed && length > 0 ? wide_checksum(p.local, length) : 0;
  n.pieces.push_back({index, p.remote, sum});
  if (j.all_posted() || n.pieces.size() == rdma_notice::pieces_max) send_notices(j, j.all_posted());
}

// A copy that differs in one byte, for the fault injector.
std::byte* rdma_outbound::altered_copy(job& j, const piece& p, const rail& r, std::uint32_t& key) {
  std::vector<std::byte> copy{p.local, p.local + p.remote.length};
  copy[copy.size() / 2] ^= std::byte{1};
  auto mr = shared_.rails[r.index]->device->register_memory(copy);
  if (!mr) return p.local;
  key = (*mr)->lkey;
  auto* at = copy.data();
  j.altered.emplace_back(std::move(copy), std::move(*mr));
  return at;
}

// Sends notices on the rails of the pieces that they tell of, behind those pieces. @param all  also notices
// that could still grow.
void rdma_outbound::send_notices(job& j, bool all) {
  std::vector<std::byte> bytes;
  for (auto& [index, n] : j.notices) {
    if (n.pieces.empty() || (!all && n.pieces.size() < rdma_notice::pieces_max)) continue;
    const auto at =
        std::find_if(rails_.begin(), rails_.end(), [i = index](const auto& r) { return r->index == i; });
    auto& r = **at;
    if (r.stage != rail_stage::up) continue;  // its pieces will be repeated
    if (!r.pair->message_room()) {
      unsent_notices_.insert(j.what.id);
      continue;
    }
    n.id = j.what.id;
    n.tag = j.what.tag;
    n.total_bytes = j.bytes();
    n.total_pieces = static_cast<std::uint32_t>(j.pieces.size());
    n.has_checksums = j.summed;
    encode_notice(n, bytes);
    rdma_item item{.id = j.what.id};
    for (const auto& p : n.pieces) item.covered.push_back(p.index);
    n.pieces.clear();
    r.pair->add_message(bytes, std::move(item));
    node_.stats.update(peer(), transfer_path::rdma, [](path_stats& s) { ++s.control_messages; });
  }
}

void rdma_outbound::flush_rails() {
  for (const auto& r : rails_) {
    if (r->stage != rail_stage::up) continue;
    if (const auto ok = r->pair->flush(); !ok) rail_failed(*r, ok.error(), true);
    else if (std::exchange(r->cut, false)) r->pair->break_now();
  }
}

// Asks the peer for the keys of one of its regions, unless they are known. @returns null if the peer never
// announced the region.
rdma_outbound::mapped_region* rdma_outbound::ask_for(region_id region) {
  const auto known = peer_->regions.find(region);
  if (known == peer_->regions.end()) return nullptr;
  const auto key = known->second.access_key;
  auto [it, fresh] = mapped_.try_emplace(region);
  auto& m = it->second;
  if (!fresh && (m.pending || m.access_key == key)) return &m;
  m = {};
  m.access_key = key;
  node_.stats.update(peer(), transfer_path::rdma, [](path_stats& s) { ++s.control_messages; });
  control_->send({.type = rdma_control_type::map_request, .region = region, .access_key = key});
  return &m;
}

// @returns null while the keys of the piece's region are pending, or if they are refused: then the job is
// settled.
const rdma_outbound::mapped_region* rdma_outbound::mapped(job& j, const piece& p) {
  static const mapped_region nowhere;
  if (p.remote.length == 0) return &nowhere;
  const auto* m = ask_for(p.remote.region);
  if (!m) {
    book_.settle(
        j, fail(ec::not_found, "node " + to_string(peer()) + " has no region " + to_string(p.remote.region)));
    return nullptr;
  }
  if (m->pending) return nullptr;
  const bool refused = m->refusal.code != ec::none;
  const result<void> ok = refused ? fail(m->refusal) : check_bounds(p.remote, m->length, "remote");
  if (ok) return m;
  if (refused) mapped_.erase(p.remote.region);  // it may be told otherwise next time
  book_.settle(j, ok);
  return nullptr;
}

void rdma_outbound::on_map_reply(const rdma_control& c) {
  const auto it = mapped_.find(c.region);
  if (it == mapped_.end()) return;
  auto& m = it->second;
  m.pending = false;
  m.refusal = {c.status, c.detail};
  m.base = c.base;
  m.length = c.length;
  m.keys = c.keys;
}

// ---- outcomes ----

bool rdma_outbound::poll() {
  if (ending_) return false;
  bool worked = false;
  for (const auto& r : rails_) {
    if (r->stage != rail_stage::up) continue;
    const auto n = r->pair->poll(*r);
    if (!n) {
      rail_failed(*r, n.error(), true);
      worked = true;
    } else if (*n > 0) {
      completions_ += *n;
      worked = true;
    }
    if (ending_) break;
  }
  worked |= pump();
  tell_done();
  return worked;
}

void rdma_outbound::on_item_done(rail& r, const rdma_item& item) {
  auto* const j = book_.find(item.id);
  if (item.what == rdma_item::kind::piece) {
    r.outstanding_bytes -= item.bytes;
    r.health.worked();
    const bool write = !j || j->what.op == transfer_op::write;
    shared_.figures.update(r.index, [&](rail_stats& s) {
      ++s.slices;
      (write ? s.bytes_written : s.bytes_read) += item.bytes;
      s.latency.add(to_seconds(clock_type::now() - item.posted));
    });
  }
  if (!j) return;
  if (item.what == rdma_item::kind::message) {
    for (const auto index : item.covered)
      if (index < j->pieces.size()) j->pieces[index].delivered = true;
    return;
  }
  if (j->what.op == transfer_op::read) {
    j->pieces[item.piece].delivered = true;
    if (++j->delivered == j->pieces.size() && !j->settled())
      book_.settle(*j, check_stated_sums(node_, transfer_path::rdma, j->what));
  }
  book_.release(*j);
}

void rdma_outbound::on_message(std::span<const std::byte> bytes) {
  const auto m = parse_message(bytes);
  if (!m || m->is_notice)
    return;  // the peer is authenticated, so this is a bug of its, and no reason to end the link
  if (auto* const j = book_.find(m->ack.id))
    book_.settle(*j, m->ack.outcome.code == ec::none ? result<void>{} : fail(m->ack.outcome));
}

void rdma_outbound::on_query_reply(const rdma_control& c) {
  auto* const found = book_.find(c.id);
  if (!found || found->settled()) return;
  auto& j = *found;
  j.asking = false;
  if (c.status == ec::none) return book_.settle(j, {});
  if (c.status == ec::overloaded) return;  // all of it is there; the acknowledgement will come
  if (c.status != ec::not_found) return book_.settle(j, fail(c.status, c.detail));
  if (j.touched) repeat_lost(j);
  enqueue(j);
}

void rdma_outbound::enqueue(job& j) {
  if (j.next == j.pieces.size() || std::exchange(j.queued, true)) return;
  orders_.push_back(j.what.id);
}

// Last in every entry point: a submitter may bring the next transfer.
void rdma_outbound::tell_done() {
  const auto self = shared_from_this();
  book_.take().tell();
}

}  // namespace mooncaf
