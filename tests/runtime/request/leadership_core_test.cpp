// Who may place: a cluster of conductors and nodes on virtual time, whose messages are lost, late, doubled and
// out of order, whose processes stop, go on, die and come back, and whose clocks disagree.

#include "runtime/request/leadership_core.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr duration timeout = 600ms;

/// Processes with a voter each, the first of them with a conductor; the place of a conductor outlives it.
struct cluster {
  struct process {
    node_id id;
    std::optional<std::uint32_t> place;
    duration offset{};  ///< of its clock, whose rate differs by up to 2 %
    double rate = 1;
    time_point stopped_until{};
    std::unique_ptr<leadership_voter> voter;
    std::unique_ptr<leadership_core> core;  ///< of a conductor
    time_point next_tick{}, born{};
    std::uint64_t obeyed = 0;  ///< the highest term of a leader that it heard of
  };
  std::map<std::size_t, last_lead> written;  ///< by place: of the conductors there, on their disk

  cluster(std::uint32_t conductors, std::uint32_t others, std::uint64_t seed = 1) : luck(seed) {
    places = conductors;
    for (std::uint32_t i = 0; i < conductors + others; ++i) start(i);
  }

  void start(std::size_t at) {
    auto p = std::make_shared<process>();
    p->id = node_id{next_id++};
    if (at < places) p->place = static_cast<std::uint32_t>(at);
    p->offset = std::chrono::milliseconds(below(2'000'000));
    p->rate = 0.98 + 0.04 * below(1000) / 1000.0;
    p->next_tick = p->born = now;
    const auto last = written[at];
    p->voter =
        std::make_unique<leadership_voter>(timeout, p->place ? local(*p) + timeout : time_point{}, last);
    if (p->place) p->core = std::make_unique<leadership_core>(p->id, *p->place, places, timeout, last);
    if (at < processes.size()) processes[at] = p;
    else processes.push_back(p);
    for (auto& other : processes) {
      if (p->core) p->core->joined(other->id, other->place);
      if (other->core && other != p) other->core->joined(p->id, p->place);
    }
  }
  /// Everybody notices at once, or when the links are silent for long: the conductors forget it.
  void kill(std::size_t at) {
    const auto dead = std::exchange(processes[at], std::make_shared<process>());
    for (auto& other : processes) {
      if (other->core) other->core->left(dead->id);
    }
  }
  bool alive(std::size_t at) const { return processes[at]->voter != nullptr; }

  std::uint64_t below(std::uint64_t n) { return luck() % n; }
  time_point local(const process& p) const {
    return time_point{} + p.offset +
           duration{static_cast<std::int64_t>(now.time_since_epoch().count() * p.rate)};
  }
  /// They differ by more than any leader lasts.
  std::uint64_t wall(const process& p) const {
    return static_cast<std::uint64_t>(local(p).time_since_epoch() / std::chrono::microseconds(1));
  }
  bool cut(std::size_t from, std::size_t to) const { return cuts.contains({from, to}); }

  /// A message on its way, which reaches the process that lived there when it was sent.
  void send(std::size_t from, std::size_t to, std::function<void(process&)> what) {
    if (cut(from, to) || below(100) < lost_percent) return;
    const int copies = below(100) < doubled_percent ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const auto late = below(100) < late_percent ? below(2000) : below(3);
      under_way.emplace(now + std::chrono::milliseconds(late),
                        [to, receiver = processes[to], what, this] { deliver(to, receiver, what); });
    }
  }
  void deliver(std::size_t to, const std::shared_ptr<process>& receiver,
               const std::function<void(process&)>& what) {
    if (processes[to] != receiver || !receiver->voter) return;
    if (receiver->stopped_until > now) {  // its mailbox waits
      under_way.emplace(receiver->stopped_until, [=, this] { deliver(to, receiver, what); });
      return;
    }
    what(*receiver);
  }

  std::size_t index_of(node_id id) const {
    const auto at = std::ranges::find_if(processes, [&](const auto& p) { return p->voter && p->id == id; });
    return static_cast<std::size_t>(at - processes.begin());
  }

  void send_claims(std::size_t from) {
    auto& p = *processes[from];
    for (auto& order : p.core->take_claims()) {
      const auto to = index_of(order.to);
      order.claim.clock_us = wall(p);
      if (to == processes.size()) continue;
      send(from, to,
           [=, this, sent = local(p), claim = order.claim, sender = processes[from]](process& voter) {
             const auto vote = voter.voter->claimed(claim, local(voter));
             if (vote.granted && voter.core) voter.core->heard(claim, local(voter));
             if (vote.granted && claim.leads) voter.obeyed = std::max(voter.obeyed, claim.term);
             send(to, from, [=, this, id = voter.id](process& asker) {
               if (&asker != sender.get()) return;
               asker.core->answered(id, claim, sent, vote, local(asker));
               send_claims(from);
             });
           });
    }
  }

  std::vector<std::size_t> leaders() const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < processes.size(); ++i) {
      const auto& p = *processes[i];
      if (p.core && p.core->leads(local(p))) out.push_back(i);
    }
    return out;
  }

  /// What must hold at every moment.
  void check() {
    const auto now_leading = leaders();
    REQUIRE(now_leading.size() <= 1);
    if (now_leading.empty()) return;
    const auto& leader = *processes[now_leading.front()];
    const auto term = leader.core->term();
    const auto [known, fresh] = owner.emplace(term, *leader.place);
    REQUIRE(known->second == *leader.place);
    // A conductor that came since makes a quorum with those that were cut off, and none of them knows the term.
    if (std::ranges::all_of(processes, [&](const auto& p) { return !p->core || p->born < last_led; }))
      REQUIRE(term >= last_term);
    last_term = term;
    last_led = now;
    check_right(leader);
  }

  /// Whoever has the right knows of all that had it before, and writes down that it has it.
  void check_right(const process& leader) {
    const auto right = leader.core->right();
    if (right.until <= local(leader)) return;
    REQUIRE(right.term == leader.core->term());
    if (right.term == last_right) return;
    REQUIRE(right.led_before >= last_right);
    REQUIRE(right.numbers_from >= last_clock);
    last_clock = wall(leader);
    written[*leader.place] = {right.term, last_clock};
    latest_known += right.led_before == last_right;
    last_right = right.term;
    ++rights;
  }

  void pass(duration time) {
    for (const auto end = now + time; now < end; now += 1ms) {
      while (!under_way.empty() && under_way.begin()->first <= now) {
        auto next = under_way.extract(under_way.begin());
        next.mapped()();
        check();
      }
      for (std::size_t i = 0; i < processes.size(); ++i) {
        auto& p = *processes[i];
        if (!p.core || p.stopped_until > now || p.next_tick > now) continue;
        p.next_tick = now + p.core->interval();
        p.core->tick(local(p));
        send_claims(i);
      }
      check();
    }
  }
  /// @returns how long it took.
  duration until_led(duration limit) {
    const auto began = now;
    while (leaders().empty() && now - began < limit) pass(1ms);
    return now - began;
  }
  leadership_core& core(std::size_t at) { return *processes[at]->core; }
  std::string why_not(std::size_t at) { return core(at).why_not(local(*processes[at])); }
  /// Nothing passes between one side and the other.
  void part(const std::set<std::size_t>& side) {
    for (std::size_t a = 0; a < processes.size(); ++a) {
      for (std::size_t b = 0; b < processes.size(); ++b) {
        if (side.contains(a) != side.contains(b)) cuts.emplace(a, b);
      }
    }
  }

  std::mt19937_64 luck;
  std::uint32_t places = 0;
  std::uint64_t next_id = 100;
  time_point now{1000s};
  std::vector<std::shared_ptr<process>> processes;
  std::set<std::pair<std::size_t, std::size_t>> cuts;
  std::multimap<time_point, std::function<void()>> under_way;
  std::uint64_t lost_percent = 0, doubled_percent = 0, late_percent = 0;
  std::uint64_t last_term = 0, last_right = 0, rights = 0;
  std::uint64_t last_clock = 0;    ///< the wall clock of whoever had the right last, when it did
  std::uint64_t latest_known = 0;  ///< rights that came with the term of the last one
  time_point last_led{};
  std::map<std::uint64_t, std::uint32_t> owner;  ///< of each term
};

using places = std::vector<std::size_t>;

}  // namespace

TEST_CASE("a conductor alone leads from the first moment, and claims nothing") {
  leadership_core core{node_id{1}, 0, 1, timeout};
  CHECK(core.leads({}));
  core.joined(node_id{2}, {});
  core.tick(time_point{1h});
  CHECK(core.take_claims().empty());
  CHECK(core.why_not({}).empty());
}

TEST_CASE("the first of the list leads, and the oldest of the others when it dies") {
  cluster c{3, 5};
  c.pass(3s);
  CHECK(c.leaders() == places{0});
  CHECK(c.why_not(1) ==
        "this conductor stands by; the one of node " + to_string(c.processes[0]->id) + " led last");
  for (const std::size_t next : {1, 2}) {
    c.kill(next - 1);
    CHECK(c.until_led(5s) <= 800ms);
    CHECK(c.leaders() == places{next});
    c.pass(2s);
    for (std::size_t i = next; i < c.processes.size(); ++i)
      CHECK(c.processes[i]->voter->leader() == c.processes[next]->id);
  }
}

TEST_CASE("a conductor that comes back stands by, and takes over when the other dies") {
  cluster c{2, 6};
  c.pass(3s);
  c.kill(0);
  CHECK(c.until_led(5s) <= 800ms);
  c.start(0);
  c.pass(10s);
  CHECK(c.leaders() == places{1});
  c.kill(1);
  CHECK(c.until_led(5s) <= 800ms);
  CHECK(c.leaders() == places{0});
}

TEST_CASE("a conductor that has just come back does not keep the others from leading") {
  cluster c{3, 2};
  c.pass(3s);
  c.kill(0);
  CHECK(c.until_led(5s) <= 800ms);
  c.pass(1s);
  c.start(0);
  c.pass(50ms);
  c.kill(1);
  CHECK(c.until_led(10s) <= 3s);
  CHECK(c.leaders() == places{2});
}

TEST_CASE("of conductors that were all stopped the one that led last leads, and knows that it did") {
  for (const std::size_t last : {0, 1, 2}) {
    CAPTURE(last);
    cluster c{3, 2};
    c.pass(3s);
    for (std::size_t i = 0; i < last; ++i) {
      c.kill(i);
      c.pass(2s);
    }
    for (std::size_t i = 0; i < last; ++i) c.start(i);
    c.pass(2s);
    REQUIRE(c.leaders() == places{last});
    const auto term = c.core(last).term();
    for (std::size_t i = 0; i < 5; ++i) c.kill(i);
    for (std::size_t i = 0; i < 5; ++i) c.start(i);
    c.pass(6s);
    REQUIRE(c.leaders() == places{last});
    CHECK(c.core(last).right().led_before == term);
    CHECK(c.core(last).term() > term);
  }
}

TEST_CASE("a leader that is stopped has nothing to say when it goes on, and disturbs nobody") {
  cluster c{2, 6};
  c.pass(3s);
  REQUIRE(c.leaders() == places{0});
  c.processes[0]->stopped_until = c.now + 5s;
  c.pass(4999ms);
  CHECK(c.leaders() == places{1});
  const auto term = c.core(1).term();
  for (int i = 0; i < 3000; ++i) {
    c.pass(1ms);
    REQUIRE(c.leaders() == places{1});
  }
  CHECK(c.core(1).term() == term);
}

TEST_CASE("a minority says so, and heals") {
  cluster c{2, 6};
  c.pass(3s);
  REQUIRE(c.leaders() == places{0});
  c.part({0, 2, 3});
  c.pass(10s);
  CHECK(c.leaders() == places{1});
  CHECK(c.why_not(0) ==
        "this conductor is cut off from most of the cluster: 3 of 8 voters follow it, and more "
        "than half must");
  c.cuts.clear();
  c.pass(2s);
  CHECK(c.leaders().size() == 1);
  SUBCASE("where neither side is most of it nobody leads") {
    c.part({0, 2, 3, 4});
    c.pass(30s);
    CHECK(c.leaders().empty());
    c.cuts.clear();
    CHECK(c.until_led(5s) <= 2s);
  }
}

TEST_CASE("losses one after the other leave a leader to the last, at once they take all conductors") {
  cluster c{2, 6};
  c.pass(3s);
  SUBCASE("one after the other") {
    for (std::size_t i = 7; i >= 2; --i) {
      c.kill(i);
      c.pass(500ms);
      REQUIRE(c.leaders() == places{0});
    }
  }
  SUBCASE("at once") {
    for (std::size_t i = 7; i >= 3; --i) c.kill(i);
    c.pass(1s);
    REQUIRE(c.leaders() == places{0});
    c.pass(2s);
    CHECK(c.core(0).standing(c.local(*c.processes[0])).voters == 3);
    // … after which the electorate is the processes that are left.
    c.kill(0);
    CHECK(c.until_led(5s) <= 800ms);
  }
  SUBCASE("the leader among them") {
    for (const std::size_t i : {0, 2, 3, 4, 5}) c.kill(i);
    c.pass(30s);
    CHECK(c.leaders().empty());
    c.start(0);
    CHECK(c.until_led(10s) <= 5s);
  }
}

TEST_CASE("a cluster begins with all of its conductors, and says for whom it waits") {
  cluster c{2, 3};
  c.kill(1);
  c.pass(10s);
  CHECK(c.leaders().empty());
  CHECK(c.why_not(0) ==
        "this conductor knows of no leader, and leads only with all 2 conductors of the list; 1 "
        "follow it");
  c.start(1);
  CHECK(c.until_led(10s) <= 3s);
}

TEST_CASE(
    "whatever happens to messages, processes and clocks, at most one leads, and one does when it is over") {
  std::uint64_t led = 0, changes = 0, rights = 0, latest = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 luck{seed};
    const auto conductors = 2 + luck() % 2;
    cluster c{static_cast<std::uint32_t>(conductors), static_cast<std::uint32_t>(2 + luck() % 6), seed};
    for (int step = 0; step < 25; ++step) {
      const auto victim = luck() % c.processes.size();
      switch (luck() % 8) {
        case 0:
          c.lost_percent = luck() % 40;
          break;
        case 1:
          c.late_percent = luck() % 30;
          break;
        case 2:
          c.doubled_percent = luck() % 30;
          break;
        case 3: {
          std::set<std::size_t> side;
          for (std::size_t i = 0; i < c.processes.size(); ++i) {
            if (luck() % 2) side.insert(i);
          }
          c.part(side);
          break;
        }
        case 4:
          c.cuts.emplace(victim, luck() % c.processes.size());
          break;
        case 5:
          c.cuts.clear();
          break;
        case 6:
          c.processes[victim]->stopped_until = c.now + std::chrono::milliseconds(luck() % 3000);
          break;
        default:
          if (c.alive(victim)) c.kill(victim);
          else c.start(victim);
      }
      c.pass(std::chrono::milliseconds(luck() % 1500));
      led += c.leaders().size();
    }
    c.lost_percent = c.late_percent = c.doubled_percent = 0;
    c.cuts.clear();
    for (std::size_t i = 0; i < c.processes.size(); ++i) {
      if (!c.alive(i)) c.start(i);
    }
    c.pass(10s);
    REQUIRE(c.leaders().size() == 1);
    const auto& leader = *c.processes[c.leaders().front()];
    for (const auto& p : c.processes) CHECK(p->voter->leader() == leader.id);
    changes += c.owner.size();
    rights += c.rights;
    latest += c.latest_known;
  }
  CHECK(rights > 100);
  CHECK(latest > rights / 2);
  CHECK(led > 300);
  CHECK(changes > 100);
}
