// The rails of an outgoing link: making them, losing them, and the end of the link.

#include <algorithm>

#include "transport/rdma/rdma_outbound.hpp"

namespace mooncaf {

// ---- making rails
// ---------------------------------------------------------------------------------------------------

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

// ---- choosing one
// ----------------------------------------------------------------------------------------------------

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

// The rail near the memory with the fewest bytes under way; but pieces that one notice can tell of stay
// together, so that a transfer of a few slices costs one. Null: all that would do are full or not up yet;
// `hopeless`: there is none that could ever do.
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

// ---- losing rails
// ---------------------------------------------------------------------------------------------------

// The queue pair is destroyed here; pieces that it carried wait until the peer has destroyed its end.
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
  for (const auto& item : r.pair->unfinished()) {
    const auto it = active_.find(item.id);
    if (item.what == rdma_item::kind::piece && it != active_.end()) --it->second.in_flight;
  }
  r.pair.reset();
  r.outstanding_bytes = 0;
  r.cut = false;
  r.stage = rail_stage::retiring;
  r.give_up_at = now + node_.options.close_timeout;
  if (was_up) {
    for (auto& [id, j] : active_) {
      j.notices.erase(r.index);
      // What the peer has been told of counts too: its acknowledgement may have been lost with this rail.
      const bool read = j.what.op == transfer_op::read;
      const bool used = std::any_of(j.pieces.begin(), j.pieces.end(), [&](const piece& p) {
        return p.link_number == r.number && !(read && p.delivered);
      });
      if (!used) continue;
      ++j.held;
      r.stranded.insert(id);
    }
  }
  if (tell_peer) control_->send({.type = rdma_control_type::retire_rail, .rail = r.number});
}

// The peer's end is gone: no byte that went over it can land any more.
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
    const auto it = active_.find(id);
    if (it == active_.end()) continue;
    auto& j = it->second;
    --j.held;
    if (j.settled) {
      finish_if_idle(id);
    } else if (j.what.op == transfer_op::read) {
      repeat_lost(j);
    } else if (!std::exchange(j.asking, true)) {
      control_->send({.type = rdma_control_type::query, .id = id});
    }
  }
}

// Queues again what went over rails that are gone.
void rdma_outbound::repeat_lost(job& j) {
  if (j.held > 0) return;  // once for all of them
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
  call_done();
}

// With no rail left that could be tried now, waiting helps nobody: another path may do.
void rdma_outbound::check_hope() {
  if (active_.empty() || ending_) return;
  const auto now = clock_type::now();
  for (const auto& r : rails_)
    if (r->stage != rail_stage::idle || (r->health.may_try(now) && shared_.rails[r->index]->up)) return;
  end({ec::unavailable,
       "no rail to node " + to_string(peer()) + " works; the last one: " + last_rail_error_.detail});
}

// ---- time
// ------------------------------------------------------------------------------------------------------------

void rdma_outbound::arm() {
  for (const auto& r : rails_)
    if (r->stage == rail_stage::up) r->pair->arm();
}

bool rdma_outbound::tick(time_point now) {
  if (over_) return false;
  if (ending_) {
    if (now > ending_until_) complete_all(ending_cause_, false);
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
  const auto progress = completions_ + control_->progress();
  if (idle() || progress != seen_progress_) progress_at_ = now;
  seen_progress_ = progress;
  const auto patience = control_->open() ? node_.options.peer_timeout : node_.options.connect_timeout;
  if (now - progress_at_ > patience) {
    end({control_->open() ? ec::peer_lost : ec::unavailable,
         "node " + to_string(peer()) + " stopped answering"});
    return true;
  }
  std::vector<transfer_id> late;
  for (const auto& [id, j] : active_)
    if (now > j.what.deadline) late.push_back(id);
  for (const auto id : late)
    if (const auto it = active_.find(id); it != active_.end()) request_end(it->second, ec::timed_out);
  std::erase_if(waiting_, [&](auto& w) {
    if (now <= w.first.deadline) return false;
    done_.push_back(
        {std::move(w.second),
         {.id = w.first.id, .outcome = fail(ec::timed_out, "the deadline of the transfer passed")}});
    return true;
  });
  pump();
  call_done();
  return !idle();
}

// ---- the end
// ---------------------------------------------------------------------------------------------------------

void rdma_outbound::end(const error& why) {
  if (ending_) return;
  ending_ = true;
  ending_cause_ = why;
  for (const auto& r : rails_) {
    r->pair.reset();
    r->stage = rail_stage::idle;
  }
  if (on_ended_) on_ended_(*this);
  const bool under_way =
      std::any_of(active_.begin(), active_.end(), [](const auto& e) { return e.second.touched; });
  const bool fenced = !ever_connected_ || !under_way || control_->closed_by_peer();
  if (fenced || !control_->open()) return complete_all(why, fenced);
  ending_until_ = clock_type::now() + node_.options.close_timeout;
  control_->send({.type = rdma_control_type::goodbye});
}

void rdma_outbound::end_now(const error& why) {
  end(why);
  complete_all(ending_cause_, !ever_connected_);
}

// If it was closed: a dead process takes no bytes, and a living peer destroys its queue pairs before it
// closes.
void rdma_outbound::on_link_broken(const error& why) {
  const bool never_opened = !ever_connected_ && why.code == ec::peer_lost;
  end(never_opened ? error{ec::unavailable, why.detail} : why);
  complete_all(ending_cause_, control_->closed_by_peer());
}

void rdma_outbound::complete_all(const error& why, bool confirmed) {
  if (std::exchange(over_, true)) return;
  const auto self = shared_from_this();
  while (!active_.empty()) {
    auto ended = active_.extract(active_.begin());
    auto& j = ended.mapped();
    const bool unfenced = !confirmed && j.what.op == transfer_op::write && j.touched;
    done_.push_back({std::move(j.on_done),
                     {.id = j.what.id,
                      .outcome = j.settled ? j.outcome : fail(why),
                      .bytes = j.settled && j.outcome ? j.bytes : 0,
                      .path = transfer_path::rdma,
                      .fenced = !unfenced},
                     std::move(ended)});
  }
  for (auto& [what, on_done] : waiting_)
    done_.push_back({std::move(on_done), {.id = what.id, .outcome = fail(why), .path = transfer_path::rdma}});
  waiting_.clear();
  orders_.clear();
  repeats_.clear();
  if (control_) control_->close(why);
  if (on_over_) on_over_(*this);
  call_done();
}

}  // namespace mooncaf
