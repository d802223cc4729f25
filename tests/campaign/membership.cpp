// Who is in the cluster, and who may write whose memory: twins of actors/node.cpp and actors/messenger.cpp.

#include <algorithm>

#include "tests/campaign/machine.hpp"

namespace mooncaf::campaign {

namespace {

constexpr duration report_interval = 250ms;
constexpr duration answer_limit = 5s;
constexpr duration pin_limit = 10s;
constexpr duration read_limit = 20s;

}  // namespace

// ---- membership
// ---------------------------------------------------------------------------------------------------------

membership::membership(machine& here)
    : here_(here), roster_(node_of(here.self), here.self + 1), join_wait_(200ms, 2s, here.self + 1) {}

void membership::start() {
  if (here_.what.conductor) {
    conductor_process_ = here_.self;
    join();
  }
  tick();
}

void membership::tick() {
  report();
  look_for_conductor();
  call_members();
  here_.w.net.in(here_.self, report_interval, [this] { tick(); });
}

void membership::report() {
  // Peers that the data plane has shut out are greeted anew.
  const auto fenced = here_.mail.fenced();
  for (const auto p : fenced) {
    const auto peer = peers_.find(p);
    if (peer == peers_.end() || peer->second.second >= here_.now()) continue;
    roster_.lost(node_of(p), here_.now());
    part(p);
  }
  if (!conductor_) return;
  node_report mine;
  mine.node = node_of(here_.self);
  mine.roster = version_;
  mine.unreachable = roster_.unreachable();
  mine.has_shard = here_.cache != nullptr;
  mine.shard.slots_total = here_.what.slots;
  const auto to = *conductor_process_;
  here_.w.net.send(here_.self, to, [this, to, mine] {
    auto answer = here_.at(to).conductor->report(mine);
    here_.w.net.send(to, here_.self,
                     [this, answer = std::move(answer)] { stand(answer.first, answer.second); });
  });
}

void membership::look_for_conductor() {
  if (conductor_ || joining_ || here_.what.conductor || here_.now() < join_at_) return;
  joining_ = true;
  conductor_process_ = here_.w.conductor;
  greet(
      *conductor_process_, [this] { join(); }, [this] { conductor_missed(); });
}

void membership::conductor_missed() {
  joining_ = false;
  join_at_ = here_.now() + join_wait_.next();
}

void membership::join() {
  joining_ = true;
  const auto to = *conductor_process_;
  auto open = std::make_shared<bool>(true);
  here_.w.net.in(here_.self, answer_limit, [this, open] {
    if (std::exchange(*open, false)) conductor_missed();
  });
  here_.w.net.send(here_.self, to, [this, to, open] {
    auto others = here_.at(to).conductor->join(here_.self);
    here_.w.net.send(to, here_.self, [this, open, others = std::move(others)] {
      if (!std::exchange(*open, false)) return;
      if (!others) return conductor_missed();
      joining_ = false;
      join_wait_.reset();
      version_ = 0;
      follow(true);
      learn(*others, true);
    });
  });
}

void membership::stand(const standing& how, const std::vector<node_id>& others) {
  if (!how.member) {
    if (conductor_ && !joining_) join();
    return;
  }
  version_ = how.version;
  if (how.news) learn(others, false);
}

void membership::follow(bool there) {
  conductor_ = there;
  here_.follow(there);
}

void membership::learn(const std::vector<node_id>& others, bool joined) {
  roster_.set_members(others, joined, here_.now());
  call_members();
}

void membership::call_members() {
  for (const auto id : roster_.due(here_.now())) {
    const auto p = process_of(id);
    if (p == conductor_process_ && !conductor_) {
      roster_.missed(id, here_.now());  // `look_for_conductor` calls it
    } else {
      greet(
          p, [] {}, [this, id] { roster_.missed(id, here_.now()); });
    }
  }
}

void membership::greet(process other, std::function<void()> answered, std::function<void()> missed) {
  here_.w.net.dial(here_.self, other,
                   [this, other, answered = std::move(answered), missed = std::move(missed)](bool ok) {
                     if (!ok) return missed();
                     const auto meeting = roster_.meeting_with(node_of(other));
                     auto open = std::make_shared<bool>(true);
                     here_.w.net.in(here_.self, answer_limit, [open, missed] {
                       if (std::exchange(*open, false)) missed();
                     });
                     here_.w.net.send(here_.self, other, [this, other, meeting, open, answered] {
                       const auto theirs = here_.at(other).member.greeted(here_.self, meeting);
                       here_.w.net.send(other, here_.self, [this, other, meeting, theirs, open, answered] {
                         if (!std::exchange(*open, false)) return;
                         meet(other, theirs);
                         if (other != here_.self) roster_.met(node_of(other), meeting);
                         answered();
                       });
                     });
                   });
}

std::uint64_t membership::greeted(process other, std::uint64_t meeting) {
  if (meet(other, meeting)) roster_.begin_anew(node_of(other));
  return roster_.meeting_with(node_of(other));
}

bool membership::meet(process other, std::uint64_t meeting) {
  if (other == here_.self) return false;
  const auto known = peers_.find(other);
  const bool had_lost_us = known != peers_.end();
  if (had_lost_us) {
    if (meeting <= known->second.first) return false;
    roster_.was_lost_by(node_of(other), here_.now());
    part(other);
  }
  peers_.emplace(other, std::pair{meeting, here_.now()});
  roster_.met(node_of(other));
  here_.local_up(other);
  return had_lost_us;
}

void membership::lost(process other) {
  if (!peers_.contains(other)) return;
  roster_.lost(node_of(other), here_.now());
  part(other);
}

void membership::part(process other) {
  peers_.erase(other);
  here_.local_down(other);
  if (other == conductor_process_) follow(false);
}

// ---- transfers
// ------------------------------------------------------------------------------------------------------------

bool courier::peer_known(process peer) const {
  const auto i = admitted_.find(peer);
  return peer == here_.self || (i != admitted_.end() && i->second);
}

std::uint64_t courier::fences_of(process peer) const {
  const auto i = closed_.find(peer);
  return i == closed_.end() ? 0 : i->second;
}

void courier::up(process peer) {
  std::erase(fenced_, peer);
  if (const auto i = shutting_.find(peer); i != shutting_.end()) {
    i->second.next = true;
  } else {
    admitted_[peer] = open_to_[peer] = true;
  }
}

void courier::down(process peer) {
  std::erase(fenced_, peer);
  admitted_[peer] = false;
  // What was under way to it has failed here, and may land there all the same.
  std::vector<std::uint64_t> failed;
  for (const auto& [id, t] : under_way_) {
    if (t.to == peer) failed.push_back(id);
  }
  for (const auto id : failed) end(id, false, false);
  const auto [i, first] = shutting_.try_emplace(peer);
  i->second.next = false;
  if (first) shut(peer);
}

void courier::fence(process peer, std::uint64_t fences, std::function<void()> answered) {
  if (fences_of(peer) > fences) return answered();
  const auto [i, first] = shutting_.try_emplace(peer);
  i->second.waiting.push_back(std::move(answered));
  if (!first) return;
  admitted_[peer] = false;
  fenced_.push_back(peer);
  shut(peer);
}

void courier::shut(process peer) {
  here_.w.net.in(here_.self, here_.w.luck.between(100us, 50ms), [this, peer] {
    if (here_.w.net.paused(peer) && peer % 2 == 0) {
      // It maps our memory, and neither stopped nor died: tried again.
      here_.w.net.in(here_.self, 1s, [this, peer] { shut(peer); });
      return;
    }
    ++closed_[peer];
    open_to_[peer] = false;
    auto gone = shutting_.extract(peer);
    for (auto& answered : gone.mapped().waiting) answered();
    if (gone.mapped().next) admitted_[peer] = open_to_[peer] = true;
  });
}

std::uint64_t courier::write(process to, std::function<void()> land, ended_fn ended) {
  const auto id = next_++;
  auto dropped = std::make_shared<bool>(false);
  under_way_[id] = {to, std::move(ended), dropped};
  auto& there = here_.at(to).mail;
  const bool accepted = here_.w.net.alive(to) && peer_known(to) && there.open_to_[here_.self];
  if (!accepted) {
    here_.w.net.in(here_.self, 1ms, [this, id] { end(id, false, true); });
    return id;
  }
  const auto wait = here_.w.luck.between(20us, here_.w.luck.chance(3) ? 400ms : 2ms);
  here_.w.time.after(wait, [this, id, to, session = there.fences_of(here_.self), land = std::move(land),
                            dropped] { arrive(id, to, session, land, dropped); });
  return id;
}

void courier::arrive(std::uint64_t id, process to, std::uint64_t session, std::function<void()> land,
                     std::shared_ptr<bool> dropped) {
  auto& net = here_.w.net;
  if (*dropped) return;
  if (!net.passes(here_.self, to) && net.alive(to)) {
    here_.w.time.after(100ms, [this, id, to, session, land = std::move(land), dropped] {
      arrive(id, to, session, land, dropped);
    });
    return;
  }
  // A peer that was shut out writes nothing any more, whatever was under way.
  const bool lands = net.alive(to) && here_.at(to).mail.fences_of(here_.self) == session;
  if (lands) land();
  net.in(here_.self, here_.w.luck.between(10us, 200us), [this, id, lands] { end(id, lands, true); });
}

void courier::cancel(std::uint64_t id) {
  const auto i = under_way_.find(id);
  if (i == under_way_.end() || here_.w.luck.chance(30)) return;  // too late
  *i->second.dropped = true;
  here_.w.net.in(here_.self, 20us, [this, id] { end(id, false, true); });
}

void courier::end(std::uint64_t id, bool landed, bool fenced) {
  if (auto t = under_way_.extract(id)) t.mapped().ended(landed, fenced);
}

void courier::fetch(const fetch_plan& plan, std::function<void(const remote_blocks&)> answered,
                    progress_fn landed) {
  const auto from = process_of(plan.source);
  stopped_.erase(plan.id.owner());
  if (!peer_known(from)) {
    here_.w.net.in(here_.self, 10us, [answered] { answered({}); });
    return;
  }
  here_.ask(
      from, pin_limit,
      [this, from, plan, answered, landed](std::function<void(network::action)> reply) {
        here_.at(from).cache->pin_remote(
            plan.id.reader(), plan.keys, plan.worth_ns,
            [this, from, plan, answered, landed, reply](const remote_blocks& held) {
              reply([this, from, plan, answered, landed, held] {
                if (landed) return read_layers(plan, held, fences_of(from), answered, landed);
                read(plan, held, fences_of(from), answered);
              });
            },
            [answered, reply](const error&) { reply([answered] { answered({}); }); });
      },
      [this, from, reader = plan.id.reader(), answered] {
        here_.w.net.send(here_.self, from, [&m = here_.at(from), reader] { m.cache->release(reader); });
        answered({});
      });
}

void courier::read(const fetch_plan& plan, remote_blocks held, std::uint64_t session,
                   std::function<void(const remote_blocks&)> answered) {
  const auto from = process_of(plan.source);
  const auto finish = [this, from, reader = plan.id.reader(), answered](const remote_blocks& got) {
    here_.w.net.send(here_.self, from, [&m = here_.at(from), reader] { m.cache->release(reader); });
    answered(got);
  };
  const auto began = here_.now();
  auto done = std::make_shared<remote_blocks>();
  auto next = std::make_shared<std::function<void(std::size_t)>>();
  const std::weak_ptr<std::function<void(std::size_t)>> self = next;
  *next = [this, self, plan, held = std::move(held), session, from, finish, done, began](std::size_t i) {
    const auto again = self.lock();
    const bool all = i >= held.blocks.size() || i >= plan.skip + plan.slots.size();
    if (all || stopped_.contains(plan.id.owner())) return finish(*done);
    here_.w.net.in(here_.self, here_.w.luck.between(50us, here_.w.luck.chance(5) ? 500ms : 1ms),
                   [this, again, &plan, &held, session, from, finish, done, began, i] {
                     const bool lost = !here_.w.net.alive(from) || !peer_known(from) ||
                                       fences_of(from) != session || here_.now() - began > read_limit;
                     if (lost) return finish(*done);
                     if (!here_.w.net.passes(from, here_.self)) return (*again)(i);
                     const auto& block = held.blocks[i];
                     auto& slot = here_.cache->at(plan.slots[i - plan.skip]);
                     slot = here_.at(from).cache->at(static_cast<slot_index>(block.offset));
                     if (slot != block.checksum) return finish(*done);
                     done->blocks.push_back(block);
                     (*again)(i + 1);
                   });
  };
  (*next)(plan.skip);
}

void courier::read_layers(const fetch_plan& plan, const remote_blocks& held, std::uint64_t session,
                          std::function<void(const remote_blocks&)> answered, progress_fn landed) {
  const auto from = process_of(plan.source);
  const auto finish = [this, from, reader = plan.id.reader(), answered](const remote_blocks& got) {
    here_.w.net.send(here_.self, from, [&m = here_.at(from), reader] { m.cache->release(reader); });
    answered(got);
  };
  const auto wanted = plan.skip + plan.slots.size();
  if (held.blocks.size() < wanted) return finish({});
  const auto began = here_.now();
  auto next = std::make_shared<std::function<void(std::uint32_t)>>();
  const std::weak_ptr<std::function<void(std::uint32_t)>> self = next;
  *next = [this, self, plan, held, session, from, wanted, finish, landed, began](std::uint32_t in) {
    const bool lost = !here_.w.net.alive(from) || !peer_known(from) || fences_of(from) != session ||
                      here_.now() - began > read_limit;
    if (lost || stopped_.contains(plan.id.owner())) return finish({});
    if (!here_.w.net.passes(from, here_.self)) {
      here_.w.net.in(here_.self, 1ms, [again = self.lock(), in] { (*again)(in); });
      return;
    }
    remote_blocks right;
    if (in == layers) {  // they make sense together alone
      for (auto i = plan.skip; i < wanted; ++i) {
        auto& slot = here_.cache->at(plan.slots[i - plan.skip]);
        slot = here_.at(from).cache->at(static_cast<slot_index>(held.blocks[i].offset));
        if (slot == held.blocks[i].checksum && right.blocks.size() == i - plan.skip)
          right.blocks.push_back(held.blocks[i]);
      }
    }
    if (in > 0) landed(in);
    if (in < layers) {
      here_.w.net.in(here_.self, here_.w.luck.between(50us, here_.w.luck.chance(5) ? 500ms : 2ms),
                     [again = self.lock(), in] { (*again)(in + 1); });
      return;
    }
    here_.w.net.in(here_.self, here_.w.luck.between(100us, 10ms), [finish, right] { finish(right); });
  };
  (*next)(0);
}

}  // namespace mooncaf::campaign
