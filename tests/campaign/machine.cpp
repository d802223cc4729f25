#include "tests/campaign/machine.hpp"

namespace mooncaf::campaign {

namespace {

constexpr duration sweep_interval = 500ms;
constexpr duration message_delay = 10us;  ///< between actors of a process
constexpr duration flush_limit = 2s;
constexpr duration look_interval = 20ms;  ///< at what a process that drains still holds

}  // namespace

machine::machine(world& w_, process self_, const roles& what_, disk* ssd)
    : w(w_), self(self_), what(what_), member(*this), mail(*this) {
  if (what.slots > 0) {
    cache = std::make_unique<shard>(w.net, w.time, w.luck, self, what.slots, ssd);
    if (w.steady) cache->on_news([this] { send_events(); });
    keeper = std::make_unique<keeper_twin>(*this);
  }
  if (what.prefill) prefill = std::make_unique<prefill_twin>(*this);
  if (what.decode) decode = std::make_unique<decode_twin>(*this);
  if (what.gateway) gateway = std::make_unique<gateway_twin>(*this);
  if (what.conductor) conductor = std::make_unique<conductor_twin>(*this);
}

void machine::start() {
  if (gateway) local_up(self);
  member.start();
  tick();
}

void machine::leave() {
  leaving = true;
  const auto die = [this] {
    if (!w.net.alive(self)) return;
    if (gateway) gateway->core.close();
    w.net.kill(self);
  };
  w.net.in(self, flush_limit, die);
  if (!cache) return die();
  cache->flush(die);
}

void machine::drain(duration limit) {
  leaving = true;
  drains_.emplace(drain_parts{gateway != nullptr, prefill || decode}, limit);
  drains_->begin(now());
  go_on_draining();
}

/// actors/process/process_drain.cpp.
void machine::go_on_draining() {
  for (const auto order : drains_->take_orders()) {
    switch (order) {
      case drain_order::close_front:
        closed = true;
        break;
      case drain_order::announce:
        member.drain();
        break;
      case drain_order::hand_over:
        if (prefill) prefill->leave();
        if (decode) decode->leave();
        break;
      case drain_order::leave:
        return leave();
    }
  }
  w.net.in(self, look_interval, [this] {
    const auto standing = member.standing();
    const auto held = (prefill ? prefill->size() : 0) + (decode ? decode->size() : 0);
    drains_->look({gateway ? gateway->core.size() : 0, 0, held, standing.announced, standing.last}, now());
    go_on_draining();
  });
}

void machine::lost(process other) {
  if (conductor) {
    conductor->core.leave(node_of(other), now());
    conductor->act();
  }
  std::vector<std::function<void()>> orphans;
  for (auto i = questions_.begin(); i != questions_.end();) {
    const bool hit = i->second.to == other;
    if (hit) orphans.push_back(std::move(i->second.failed));
    i = hit ? questions_.erase(i) : std::next(i);
  }
  for (auto& failed : orphans) failed();
  member.lost(other);
}

void machine::local_up(process peer) {
  w.net.in(self, message_delay, [this, peer] {
    if (peer != self) mail.up(peer);
    if (keeper && peer != self) {
      keeper->core.peer_up(node_of(peer));
      keeper->act();
    }
    if (!gateway) return;
    std::vector<worker_id> workers;
    if (at(peer).prefill) workers.push_back(prefill_of(peer));
    if (at(peer).decode) workers.push_back(decode_of(peer));
    gateway->core.peer_up(node_of(peer), std::move(workers), now());
    gateway->act();
  });
}

void machine::local_down(process peer) {
  w.net.in(self, message_delay, [this, peer] {
    mail.down(peer);
    if (keeper) keeper->core.peer_down(node_of(peer));
    if (gateway) {
      gateway->core.peer_down(node_of(peer), now());
      gateway->act();
    }
    if (prefill) prefill->peer_lost(peer);
    if (decode) decode->peer_lost(peer);
  });
}

void machine::follow(bool there) {
  w.net.in(self, message_delay, [this, there] {
    if (gateway) gateway->core.set_conductor(there, 0, now());
    if (there) send_snapshot();
  });
}

void machine::send_snapshot() {
  if (!cache) return;
  announces_ = true;
  cache->store().drain_events();  // the snapshot says it all
  const auto held = cache->store().snapshot();
  block_event_batch batch;
  batch.node = node_of(self);
  batch.snapshot = true;
  batch.first_seq = held.sequence;
  for (const auto& e : held.blocks) batch.events.push_back(e);
  w.net.send(self, w.conductor, [this, to = w.conductor, batch = std::move(batch)] {
    at(to).conductor->core.blocks(batch);
    at(to).conductor->act();
  });
}

void machine::send_events() {
  if (!announces_ || (w.steady && !prefill)) return;
  const auto events = cache->store().drain_events();
  if (events.empty()) return;
  block_event_batch batch;
  batch.node = node_of(self);
  batch.first_seq = events.front().sequence;
  for (const auto& e : events) batch.events.push_back(e);
  w.net.send(self, w.conductor, [this, to = w.conductor, batch = std::move(batch)] {
    at(to).conductor->core.blocks(batch);
    at(to).conductor->act();
  });
}

void machine::tick() {
  if (cache) {
    std::vector<std::uint64_t> owners;
    if (prefill) owners = prefill->sweep();
    if (decode) {
      const auto more = decode->sweep();
      owners.insert(owners.end(), more.begin(), more.end());
    }
    if (const auto copying = keeper->core.at_work()) owners.push_back(*copying);
    if (!owners.empty()) cache->renew(std::move(owners));
    cache->expire();
    send_events();
  }
  if (conductor) {
    conductor->core.tick(now());
    conductor->act();
  }
  w.net.in(self, sweep_interval, [this] { tick(); });
}

void machine::ask(process to, duration limit, std::function<void(std::function<void(network::action)>)> there,
                  std::function<void()> failed) {
  const auto id = next_question_++;
  questions_[id] = {to, std::move(failed)};
  if (!w.net.connected(self, to)) {
    // As a request to an actor that is gone: its failure comes as a message.
    limit = message_delay;
  }
  w.net.in(self, limit, [this, id] {
    if (auto q = questions_.extract(id)) q.mapped().failed();
  });
  w.net.send(self, to, [this, to, id, there = std::move(there)] {
    there([this, to, id](network::action answer) {
      w.net.send(to, self, [this, id, answer = std::move(answer)] {
        if (questions_.erase(id)) answer();
      });
    });
  });
}

// ---- the conductor
// --------------------------------------------------------------------------------------------------------

conductor_twin::conductor_twin(machine& here)
    : core(here.w.core, here.w.queue, here.w.journal), here_(here) {}

void conductor_twin::ask(const schedule_job& job, std::function<void(const placement_msg&)> answered) {
  const auto asked = next_++;
  questions_.emplace(asked, std::move(answered));
  core.ask(job, asked, here_.now());
  act();
}

void conductor_twin::act() {
  for (auto& action : core.take_actions()) {
    if (auto* answer = std::get_if<answer_question>(&action)) {
      if (auto asked = questions_.extract(answer->asked)) asked.mapped()(answer->where);
    } else if (auto* follow = std::get_if<follow_shard>(&action)) {
      const auto who = process_of(follow->node);
      here_.w.net.send(here_.self, who, [&m = here_.at(who)] { m.send_snapshot(); });
    } else if (auto* copy = std::get_if<copy_blocks>(&action)) {
      const auto who = process_of(copy->target);
      here_.w.net.send(here_.self, who, [&m = here_.at(who), order = std::move(copy->order)] {
        m.keeper->core.take(order);
        m.keeper->act();
      });
    }
  }
}

member_card conductor_twin::card_of(process who) const {
  const auto& node = here_.at(who);
  member_card card;
  card.id = node_of(who);
  card.has_shard = node.cache != nullptr;
  card.keeps_copies = node.keeper != nullptr;
  if (const auto& steady = here_.w.steady) {
    const auto add = [&](instance_desc desc, worker_id id) {
      desc.id = id;
      desc.node = card.id;
      card.workers.push_back(std::move(desc));
    };
    if (node.prefill) add(steady->prefill, prefill_of(who));
    if (node.decode) add(steady->decode, decode_of(who));
    return card;
  }
  const auto tokens = node.what.slots * block_tokens;
  if (node.prefill)
    card.workers.push_back({prefill_of(who), card.id, worker_role::prefill, 64, prefill_samples, 0});
  if (node.decode)
    card.workers.push_back({decode_of(who), card.id, worker_role::decode, 4, prefill_samples, tokens});
  return card;
}

result<std::vector<node_id>> conductor_twin::join(process who) {
  const auto card = card_of(who);
  if (core.is_member(card.id)) core.leave(card.id, here_.now());
  if (auto added = core.join(card, here_.now()); !added) return tl::unexpected(added.error());
  act();
  std::vector<node_id> others;
  for (process p = 0; p < here_.w.net.size(); ++p) {
    if (p != who && core.is_member(node_of(p))) others.push_back(node_of(p));
  }
  return others;
}

std::pair<standing, std::vector<node_id>> conductor_twin::report(const node_report& message) {
  const auto how = core.report(message, here_.now());
  act();
  std::vector<node_id> others;
  for (process p = 0; how.news && p < here_.w.net.size(); ++p) {
    if (node_of(p) != message.node && core.is_member(node_of(p))) others.push_back(node_of(p));
  }
  return {how, others};
}

// ---- a gateway
// ------------------------------------------------------------------------------------------------------------

namespace {

gateway_limits limits_of(const world& w) {
  if (!w.steady) return {64, 120s, 30s, 1s};
  return {std::size_t{1} << 20, 1h, w.core.ttft_slo, w.core.tbt_slo};
}

}  // namespace

gateway_twin::gateway_twin(machine& here)
    : core(node_of(here.self), here.w.root, here.w.layout, limits_of(here.w), *this), here_(here) {
  here_.w.net.in(here_.self, gateway_tick, [this] { tick(); });
}

void gateway_twin::tick() {
  core.tick(here_.now());
  act();
  here_.w.net.in(here_.self, gateway_tick, [this] { tick(); });
}

void gateway_twin::act() {
  for (auto& action : core.take_actions()) std::visit([this](auto& what) { carry_out(what); }, action);
}

void gateway_twin::carry_out(schedule_job& job) {
  const auto id = job.id;
  const auto to = here_.w.conductor;
  // CAF fails no request whose receiver is gone: only time does.
  auto open = std::make_shared<bool>(true);
  here_.w.net.in(here_.self, schedule_limit, [this, id, open] {
    if (!std::exchange(*open, false)) return;
    core.unanswered(id, {ec::timed_out, "request_timeout"}, here_.now());
    act();
  });
  here_.w.net.send(here_.self, to, [this, to, open, job = std::move(job)] {
    here_.at(to).conductor->ask(job, [this, to, open, id = job.id](const placement_msg& where) {
      here_.w.net.send(to, here_.self, [this, open, id, where] {
        if (!std::exchange(*open, false)) return;
        core.answered(id, where, here_.now());
        act();
      });
    });
  });
}

void gateway_twin::carry_out(const request_event& event) {
  here_.w.net.send(here_.self, here_.w.conductor, [this, to = here_.w.conductor, event] {
    here_.at(to).conductor->core.event(event, here_.now());
    here_.at(to).conductor->act();
  });
}

void gateway_twin::carry_out(const work_order& order) {
  const auto decode = process_of(order.placement.decode), prefill = process_of(order.placement.prefill);
  auto& net = here_.w.net;
  net.send_of_attempt(here_.self, decode, [&m = here_.at(decode), order] { m.decode->take(order); });
  net.send_of_attempt(here_.self, prefill, [&m = here_.at(prefill), order] { m.prefill->take(order); });
}

void gateway_twin::carry_out(const worker_roll& roll) {
  const auto to = process_of(roll.worker);
  here_.w.net.send(here_.self, to, [this, to, roll] {
    auto& there = here_.at(to);
    const bool decode = roll.worker == decode_of(to);
    auto answer = decode ? there.decode->answer_roll(roll.call) : there.prefill->answer_roll(roll.call);
    here_.w.net.send(to, here_.self, [this, worker = roll.worker, answer = std::move(answer)] {
      core.rolled(worker, answer, here_.now());
      act();
    });
  });
}

void gateway_twin::carry_out(const stop_order& order) {
  const auto to = process_of(order.worker);
  here_.w.net.send_of_attempt(here_.self, to, [&m = here_.at(to), order] {
    if (order.role == worker_role::decode) return m.decode->cancel(order.id);
    m.prefill->cancel(order.id, [](bool) {});
  });
}

}  // namespace mooncaf::campaign
