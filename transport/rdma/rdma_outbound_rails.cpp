// The rails of an outgoing link: making them, losing them, and the end of the link.

#include <algorithm>

#include "transport/rdma/rdma_outbound.hpp"

namespace mooncaf {

// ---- making rails ----

void rdma_outbound::pair_rails() {
  const auto& remote = peer_->address.rdma_rails;
  for (std::size_t i = 0; i < shared_.rails.size(); ++i) {
    const auto other = counterpart(shared_.rails[i]->location, i, remote, kernel_route_source);
    if (!other) continue;
    auto r = std::make_unique<rail>(*this, i, shared_.options());
    r->remote = *other;
    rails_.push_back(std::move(r));
  }
}

bool rdma_outbound::connect_rails(time_point now) {
  bool some = false;
  for (const auto& r : rails_) {
    if (r->stage != rail_stage::idle || !r->health.may_try(now) || !shared_.rails[r->index]->up) continue;
    connect_rail(*r, now);
    some = true;
  }
  return some;
}

void rdma_outbound::connect_rail(rail& r, time_point now) {
  auto pair = queue_pair::make(*shared_.rails[r.index], shared_.options());
  if (!pair) {
    last_rail_error_ = {ec::unavailable, pair.error().detail};
    r.health.failed(now);
    return;
  }
  r.pair = std::move(*pair);
  r.number = next_number_++;
  r.stage = rail_stage::connecting;
  r.give_up_at = now + node_.options.connect_timeout;
  control_->send({.type = rdma_control_type::connect_rail,
                  .rail = r.number,
                  .remote_rail = static_cast<std::uint32_t>(r.remote),
                  .endpoint = r.pair->endpoint()});
}

rdma_outbound::rail* rdma_outbound::by_number(std::uint32_t number) {
  for (const auto& r : rails_)
    if (r->number == number) return r.get();
  return nullptr;
}

void rdma_outbound::on_rail_connected(const rdma_control& c) {
  auto* r = by_number(c.rail);
  if (!r || r->stage != rail_stage::connecting || ending_) return;
  if (c.status != ec::none) {
    last_rail_error_ = {ec::unavailable, c.detail};
    r->pair.reset();
    r->stage = rail_stage::idle;
    r->health.failed(clock_type::now());
    return;
  }
  ever_connected_ = true;
  if (const auto ok = r->pair->connect(c.endpoint); !ok) return rail_failed(*r, ok.error(), true);
  r->stage = rail_stage::up;
  r->give_up_at = time_point::max();
  r->pair->arm();
}

// ---- choosing one ----

bool rdma_outbound::key_pair(const rail& r, const piece& p, const mapped_region& m, std::uint32_t& local,
                             std::uint32_t& remote) const {
  if (p.remote.length == 0) return true;
  const auto device = shared_.memory.device_number(*shared_.rails[r.index]->device);
  const auto& mr = p.registered->by_device[device];
  if (!mr || r.remote >= m.keys.size() || m.keys[r.remote] == 0) return false;
  local = mr->lkey;
  remote = m.keys[r.remote];
  return true;
}

// Chooses the rail near the memory with the fewest bytes under way; but pieces that one notice can tell of
// stay together, so that a transfer of a few slices costs one. Null: all that would do are full or not up
// yet; `hopeless`: there is none that could ever do.
rdma_outbound::rail* rdma_outbound::choose_rail(const job& j, const piece& p, const mapped_region& m,
                                                bool& hopeless) {
  const int numa = p.registered ? p.registered->numa_node : -1;
  rail* best = nullptr;
  bool best_near = false;
  hopeless = true;
  bool near_busy = false;
  std::uint32_t local = 0;
  std::uint32_t remote = 0;
  for (const auto& r : rails_) {
    if (!key_pair(*r, p, m, local, remote)) continue;
    hopeless = false;
    if (r->stage != rail_stage::up) continue;
    const bool near = shared_.topology.is_near(shared_.rails[r->index]->device->name, numa);
    if (r->pair->room() == 0 || !r->pair->message_room()) {
      near_busy |= near;
      continue;
    }
    const auto told = j.notices.find(r->index);
    if (told != j.notices.end() && !told->second.pieces.empty()) return r.get();
    if (best && (best_near > near || (best_near == near && best->outstanding_bytes <= r->outstanding_bytes)))
      continue;
    best = r.get();
    best_near = near;
  }
  // A far rail helps when no near one works, not when it is merely busy.
  return best && !best_near && near_busy ? nullptr : best;
}

// ---- losing rails ----

// Destroys this end's queue pair. Pieces that it carried wait until the peer has destroyed its own.
void rdma_outbound::rail_failed(rail& r, const error& why, bool tell_peer) {
  if (r.stage != rail_stage::up && r.stage != rail_stage::connecting) return;
  const bool was_up = r.stage == rail_stage::up;
  const auto now = clock_type::now();
  const bool refused = r.pair->access_refused();
  if (refused) mapped_.clear();  // a key is stale: ask again
  else r.health.failed(now);
  last_rail_error_ = {ec::unavailable, "rail " + shared_.rails[r.index]->name() + ": " + why.detail};
  shared_.figures.update(r.index, [&](rail_stats& s) {
    ++s.failures;
    s.last_error = why.detail;
  });
  if (was_up) strand_jobs(r);
  for (const auto& item : r.pair->unfinished()) {
    auto* const j = book_.find(item.id);
    if (item.what == rdma_item::kind::piece && j) book_.release(*j);
  }
  r.pair.reset();
  r.outstanding_bytes = 0;
  r.cut = false;
  r.stage = rail_stage::retiring;
  r.give_up_at = now + node_.options.close_timeout;
  if (tell_peer) control_->send({.type = rdma_control_type::retire_rail, .rail = r.number});
}

// Holds every transfer that the rail carried some of. A piece that the peer was told of counts, too: its
// acknowledgement may have been lost with this rail.
void rdma_outbound::strand_jobs(rail& r) {
  book_.each([&](job& j) {
    j.notices.erase(r.index);
    const bool read = j.what.op == transfer_op::read;
    const bool used = std::any_of(j.pieces.begin(), j.pieces.end(), [&](const piece& p) {
      return p.link_number == r.number && !(read && p.delivered);
    });
    if (!used) return;
    ++j.retiring;
    book_.hold(j);
    r.stranded.insert(j.what.id);
  });
}

// The peer has destroyed its end: no byte that went over this rail can land any more.
void rdma_outbound::on_rail_retired(const rdma_control& c) {
  auto* r = by_number(c.rail);
  if (!r || ending_) return;
  // Unasked: the peer noticed first.
  if (r->stage == rail_stage::up || r->stage == rail_stage::connecting)
    rail_failed(*r, {ec::io_error, c.detail}, false);
  if (r->stage == rail_stage::retiring) retired(*r);
}

void rdma_outbound::retired(rail& r) {
  r.stage = rail_stage::idle;
  r.give_up_at = time_point::max();
  r.number = 0;
  for (const auto id : std::exchange(r.stranded, {})) {
    auto* const found = book_.find(id);
    if (!found) continue;
    auto& j = *found;
    --j.retiring;
    book_.release(j);
    if (j.settled()) continue;
    if (j.what.op == transfer_op::read) {
      repeat_lost(j);
    } else if (!std::exchange(j.asking, true)) {
      control_->send({.type = rdma_control_type::query, .id = id});
    }
  }
}

// Queues the pieces again that went over rails which are gone.
void rdma_outbound::repeat_lost(job& j) {
  if (j.retiring > 0) return;  // the last rail to retire repeats the pieces of all of them
  for (std::uint32_t i = 0; i < j.next; ++i) {
    auto& p = j.pieces[i];
    if (p.delivered || p.link_number == 0 || by_number(p.link_number)) continue;
    p.link_number = 0;
    repeats_.emplace_back(j.what.id, i);
    ++j.to_repeat;
  }
}

void rdma_outbound::port_changed(const local_rail& changed) {
  for (const auto& r : rails_) {
    if (shared_.rails[r->index].get() != &changed) continue;
    if (changed.up) r->health.forgive();
    else if (!ending_) rail_failed(*r, {ec::unavailable, "the port went down"}, true);
  }
  pump();
  tell_done();
}

// Ends the link when no rail is left that could be tried now: its transfers may go over another path.
void rdma_outbound::check_hope() {
  if (book_.idle() || ending_) return;
  const auto now = clock_type::now();
  for (const auto& r : rails_)
    if (r->stage != rail_stage::idle || (r->health.may_try(now) && shared_.rails[r->index]->up)) return;
  end({ec::unavailable,
       "no rail to node " + to_string(peer()) + " works; the last one: " + last_rail_error_.detail});
}

// ---- time ----

void rdma_outbound::arm() {
  for (const auto& r : rails_)
    if (r->stage == rail_stage::up) r->pair->arm();
}

// Ends all that have waited for too long: the goodbye, a rail that connects or retires, the peer, a transfer.
bool rdma_outbound::tick(time_point now) {
  if (over_) return false;
  if (ending_) {
    if (now > ending_->until) complete_all(ending_->cause, false);
    return !over_;
  }
  for (const auto& r : rails_) {
    if (now <= r->give_up_at) continue;
    if (r->stage == rail_stage::retiring) {
      end({ec::peer_lost, "node " + to_string(peer()) + " does not confirm the end of a queue pair"});
      return true;
    }
    rail_failed(*r, {ec::timed_out, "the peer does not answer"}, true);
  }
  const auto patience = control_->open() ? node_.options.peer_timeout : node_.options.connect_timeout;
  if (book_.stalled(now, completions_ + control_->progress(), patience)) {
    end({control_->open() ? ec::peer_lost : ec::unavailable,
         "node " + to_string(peer()) + " stopped answering"});
    return true;
  }
  for (const auto id : book_.late(now))
    if (auto* const j = book_.find(id)) request_end(*j, ec::timed_out);
  pump();
  tell_done();
  return !idle();
}

// ---- the end ----

void rdma_outbound::end(const error& why) {
  if (ending_) return;
  ending_ = farewell{why};
  for (const auto& r : rails_) {
    r->pair.reset();
    r->stage = rail_stage::idle;
  }
  if (on_ended_) on_ended_(*this);
  bool under_way = false;
  book_.each([&](const job& j) { under_way |= j.touched; });
  const bool fenced = !ever_connected_ || !under_way || control_->closed_by_peer();
  if (fenced || !control_->open()) return complete_all(why, fenced);
  ending_->until = clock_type::now() + node_.options.close_timeout;
  control_->send({.type = rdma_control_type::goodbye});
}

void rdma_outbound::end_now(const error& why) {
  end(why);
  complete_all(ending_->cause, !ever_connected_);
}

// A link that the peer's side closed is a fence: a dead process takes no bytes, and a living peer destroys
// its queue pairs before it closes.
void rdma_outbound::on_link_broken(const error& why) {
  const bool never_opened = !ever_connected_ && why.code == ec::peer_lost;
  end(never_opened ? error{ec::unavailable, why.detail} : why);
  complete_all(ending_->cause, control_->closed_by_peer());
}

void rdma_outbound::complete_all(const error& why, bool confirmed) {
  if (std::exchange(over_, true)) return;
  const auto self = shared_from_this();
  book_.end(why, [&](const job& j) { return confirmed || !j.touched || j.what.op == transfer_op::read; });
  orders_.clear();
  repeats_.clear();
  if (control_) control_->close(why);
  if (on_over_) on_over_(*this);
  tell_done();
}

}  // namespace mooncaf
