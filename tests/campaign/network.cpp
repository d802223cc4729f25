#include "tests/campaign/network.hpp"

namespace mooncaf::campaign {

namespace {

constexpr duration silence = 3s;  ///< that breaks a connection (actors/cluster/system.hpp)

}  // namespace

// ---- processes
// ----------------------------------------------------------------------------------------------------------

process network::start() {
  nodes_.emplace_back();
  return nodes_.size() - 1;
}

void network::kill(process who) {
  nodes_[who].alive = false;
  nodes_[who].waiting.clear();
  for (process other = 0; other < nodes_.size(); ++other) {
    if (other != who) break_link(who, other, 50ms);
  }
}

void network::pause(process who) {
  auto& n = nodes_[who];
  n.paused = true;
  time_.after(silence, [this, who, turn = ++n.pauses] {
    if (!nodes_[who].paused || nodes_[who].pauses != turn) return;
    for (process other = 0; other < nodes_.size(); ++other) {
      if (other != who) break_link(who, other, 500ms);
    }
  });
}

void network::resume(process who) {
  auto& n = nodes_[who];
  n.paused = false;
  auto waiting = std::exchange(n.waiting, {});
  for (auto& what : waiting) {
    if (!nodes_[who].alive) return;
    what();
  }
}

void network::run_in(process who, action what) {
  auto& n = nodes_[who];
  if (!n.alive) return;
  if (n.paused) return n.waiting.push_back(std::move(what));
  what();
}

void network::in(process who, duration later, action what) {
  time_.after(later, [this, who, what = std::move(what)]() mutable { run_in(who, std::move(what)); });
}

// ---- connections
// -----------------------------------------------------------------------------------------------------------

bool network::connected(process here, process other) const {
  return here == other || between(here, other).thinks_open[here > other];
}

bool network::passes(process from, process to) const {
  return from == to || !between(from, to).blocked[from > to];
}

void network::dial(process from, process to, std::function<void(bool)> answer) {
  const bool refused = !nodes_[to].alive;
  const bool silent = !refused && !(passes(from, to) && passes(to, from));
  in(from, silent ? silence : luck_.between(1ms, 20ms), [this, from, to, answer = std::move(answer)] {
    if (!nodes_[to].alive || !passes(from, to) || !passes(to, from)) return answer(false);
    auto& l = between(from, to);
    const bool healthy = l.open && l.thinks_open[0] && l.thinks_open[1];
    if (!healthy) {
      // The other end may not have noticed that the old connection broke: it hears of that first, or never.
      if (l.thinks_open[to > from] && luck_.chance(50)) tell_lost(to, from, l.epoch);
      l.open = true;
      ++l.epoch;
      l.thinks_open = {true, true};
      l.last = {};
      l.held = {};
    }
    answer(true);
  });
}

void network::send(process from, process to, action what) {
  if (from == to) {
    auto& last = nodes_[from].last;
    last = std::max(last, time_.now() + luck_.between(1us, 50us));
    return in(from, last - time_.now(), std::move(what));
  }
  auto& l = between(from, to);
  if (!l.thinks_open[from > to] || !l.open) return;
  if (l.blocked[from > to]) return l.held[from > to].push_back(std::move(what));
  pass(from, to, std::move(what));
}

void network::send_of_attempt(process from, process to, action what) {
  if (swallows_ == 0 || !luck_.chance(swallows_)) send(from, to, std::move(what));
}

void network::pass(process from, process to, action what) {
  auto& l = between(from, to);
  auto& last = l.last[from > to];
  last = std::max(last, time_.now() + l.extra + luck_.between(20us, luck_.chance(5) ? 100ms : 2ms));
  time_.at(last, [this, from, to, epoch = l.epoch, what = std::move(what)]() mutable {
    const auto& now = between(from, to);
    if (now.open && now.epoch == epoch) run_in(to, std::move(what));
  });
}

void network::cut(process a, process b, bool forth, bool back) {
  auto& l = between(a, b);
  const bool cut_already = l.blocked[0] || l.blocked[1];
  l.blocked[a > b] = l.blocked[a > b] || forth;
  l.blocked[b > a] = l.blocked[b > a] || back;
  if (cut_already) return;
  time_.after(silence, [this, a, b, turn = ++l.cuts] {
    const auto& now = between(a, b);
    if (now.cuts == turn && (now.blocked[0] || now.blocked[1])) break_link(a, b, 1s);
  });
}

void network::heal(process a, process b) {
  auto& l = between(a, b);
  l.blocked = {};
  ++l.cuts;
  auto held = std::exchange(l.held, {});
  for (auto& what : held[0]) pass(std::min(a, b), std::max(a, b), std::move(what));
  for (auto& what : held[1]) pass(std::max(a, b), std::min(a, b), std::move(what));
}

void network::slow(process a, process b, duration extra) { between(a, b).extra = extra; }

void network::break_link(process a, process b, duration notice) {
  auto& l = between(a, b);
  l.held = {};
  if (!l.open) return;
  l.open = false;
  for (const auto& [here, other] : {std::pair{a, b}, std::pair{b, a}}) {
    in(here, luck_.between(1ms, notice),
       [this, here = here, other = other, epoch = l.epoch] { tell_lost(here, other, epoch); });
  }
}

void network::tell_lost(process here, process other, std::uint32_t epoch) {
  auto& l = between(here, other);
  if (l.epoch != epoch || !l.thinks_open[here > other]) return;
  l.thinks_open[here > other] = false;
  if (nodes_[here].alive) on_lost(here, other);
}

}  // namespace mooncaf::campaign
