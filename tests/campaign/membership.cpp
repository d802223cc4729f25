// Who is in the cluster: carries out what `membership_core` wants, as actors/node.cpp does.

#include "runtime/sched/intervals.hpp"
#include "tests/campaign/machine.hpp"

namespace mooncaf::campaign {

namespace {

constexpr duration faulty_report_interval = 250ms;
constexpr duration answer_limit = 5s;
/// The conductor's address, which outlives it: `world::conductor` tells who lives there.
const host_port conductor_place{"the conductor's", 0};

/// The address of a process is its number, from one.
introduction_ptr introduction_of(process who) {
  introduction out;
  out.id = node_of(who);
  out.name = std::to_string(who);
  out.control_port = static_cast<std::uint16_t>(who + 1);
  out.wire = membership::wire_of(who);
  return std::make_shared<const introduction>(std::move(out));
}

std::vector<introduction> introductions_of(const std::vector<node_id>& nodes) {
  std::vector<introduction> out;
  for (const auto id : nodes) out.push_back(*introduction_of(process_of(id)));
  return out;
}

/// One conductor, wherever it is.
conductor_seats seats_of(const roles& what) {
  return {{conductor_place}, what.conductor ? std::optional<std::uint32_t>{0} : std::nullopt};
}

}  // namespace

membership::membership(machine& here)
    : here_(here), core_(introduction_of(here.self), seats_of(here.what), {{}, {}}) {}

void membership::tick() {
  report();
  core_.tick(here_.now());
  act();
  here_.w.net.in(here_.self, here_.w.steady ? mooncaf::report_interval : faulty_report_interval,
                 [this] { tick(); });
}

void membership::add_loads(node_report& mine) const {
  const auto add = [&](const auto& worker, worker_id id) {
    if (!worker) return;
    mine.workers.push_back(worker->load());
    mine.workers.back().id = id;
  };
  add(here_.prefill, prefill_of(here_.self));
  add(here_.decode, decode_of(here_.self));
}

void membership::report() {
  core_.fenced(here_.mail.fenced(), here_.now(), here_.now());
  act();
  if (!conductor_) return;
  auto mine = core_.report();
  mine.has_shard = here_.cache != nullptr;
  mine.shard.slots_total = here_.what.slots;
  if (here_.w.steady) add_loads(mine);
  const auto to = *conductor_;
  here_.w.net.send(here_.self, to, [this, to, mine] {
    auto answer = here_.at(to).conductor->report(mine);
    here_.w.net.send(to, here_.self, [this, to, answer = std::move(answer)] {
      core_.stands(node_of(to), answer.first, introductions_of(answer.second), here_.now());
      act();
    });
  });
}

void membership::drain() {
  core_.drain();
  report();
}

void membership::lost(process other) {
  core_.lost(node_of(other), "the connection broke", here_.now());
  act();
}

std::uint64_t membership::greeted(process other, std::uint64_t meeting) {
  const auto mine = core_.greeted(introduction_of(other), meeting, here_.now());
  act();
  return mine.value();
}

void membership::act() {
  for (auto& action : core_.take_actions()) {
    std::visit([this](auto& what) { carry_out(what); }, action);
  }
}

void membership::carry_out(const membership_action::dial& order) {
  const auto other = order.where == conductor_place ? here_.w.conductor : order.where.port - process{1};
  here_.w.net.dial(here_.self, other, [this, other, greeting = order.greeting](bool connected) {
    if (connected) return greet(greeting, other);
    core_.missed(greeting, {ec::peer_lost, "nobody is there"}, here_.now());
    act();
  });
}

void membership::greet(greeting_ticket greeting, process other) {
  const auto meeting = core_.reached(greeting);
  const auto open = limited([this, greeting] {
    core_.refused(greeting, {ec::timed_out, "no answer"}, here_.now());
    act();
  });
  here_.w.net.send(here_.self, other, [this, other, meeting, greeting, open] {
    const auto theirs = here_.at(other).member.greeted(here_.self, meeting);
    here_.w.net.send(other, here_.self, [this, other, theirs, greeting, open] {
      if (!std::exchange(*open, false)) return;
      core_.answered(greeting, introduction_of(other), theirs, here_.at(other).what.conductor, here_.now());
      act();
    });
  });
}

std::shared_ptr<bool> membership::limited(std::function<void()> too_late) {
  auto open = std::make_shared<bool>(true);
  here_.w.net.in(here_.self, answer_limit, [open, too_late = std::move(too_late)] {
    if (std::exchange(*open, false)) too_late();
  });
  return open;
}

void membership::carry_out(const membership_action::join& order) {
  const auto to = process_of(order.conductor->id);
  const auto failed = [this, to](const error& why) {
    core_.not_joined(node_of(to), why, here_.now());
    act();
  };
  const auto open = limited([failed] { failed({ec::timed_out, "no answer"}); });
  here_.w.net.send(here_.self, to, [this, to, open, failed] {
    auto others = here_.at(to).conductor->join(here_.self);
    here_.w.net.send(to, here_.self, [this, to, open, failed, others = std::move(others)] {
      if (!std::exchange(*open, false)) return;
      if (!others) return failed(others.error());
      core_.joined(node_of(to), introductions_of(*others), here_.now());
      act();
    });
  });
}

void membership::carry_out(const membership_action::follow& order) {
  conductor_.reset();
  if (order.conductor) conductor_ = process_of(order.conductor->id);
  here_.follow(conductor_.has_value());
}

void membership::carry_out(const membership_action::meet& order) {
  here_.local_up(process_of(order.peer->id));
}

void membership::carry_out(const membership_action::part& order) {
  here_.local_down(process_of(order.peer->id));
}

}  // namespace mooncaf::campaign
