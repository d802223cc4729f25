#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/runtime/sched/world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

/// A conductor's core and nodes with a prefill worker N * 10 and a decode worker N * 10 + 1 each.
class elastic_world {
 public:
  explicit elastic_world(std::uint32_t budget = 0)
      : core([budget] {
          auto o = small_options();
          o.elastic.on = true;
          o.elastic.budget = budget;
          o.ttft_slo = 10s;
          return o;
        }()) {}

  void join(std::uint64_t n) {
    REQUIRE(core.add_node(node_id{n}, now));
    REQUIRE(core.add_instance(prefill_instance(n * 10, node_id{n})));
    REQUIRE(core.add_instance(decode_instance(n * 10 + 1, node_id{n})));
  }
  instance_state state(std::uint64_t worker) const {
    for (const auto& i : core.cluster().views(now))
      if (i.id == worker_id{worker}) return i.state;
    return instance_state::lost;
  }
  /// "P", "D", "PD", with a small letter for a role that it leaves.
  std::string roles(std::uint64_t n) const {
    std::string out;
    const auto add = [&](std::uint64_t worker, char plays, char leaves) {
      const auto s = state(worker);
      if (s == instance_state::live) out += plays;
      if (s == instance_state::draining) out += leaves;
    };
    add(n * 10, 'P', 'p');
    add(n * 10 + 1, 'D', 'd');
    return out;
  }
  tl::expected<placement, rejection> place(std::uint64_t request, std::uint32_t tokens = 1000) {
    schedule_request r;
    r.id = request_id{request};
    r.prompt_tokens = tokens;
    r.max_tokens = 100;
    keys = chain(request, tokens / 100);
    r.keys = keys;
    return core.schedule(r, now);
  }
  /// Half a second in which the given workers compute all the time, and so many answers run at decode workers.
  void pass(const std::set<std::uint64_t>& busy, const std::map<std::uint64_t, std::uint32_t>& answers = {},
            bool leads = true) {
    now += 500ms;
    for (const auto& i : core.cluster().views(now)) {
      auto& total = busy_[i.id];
      if (busy.contains(i.id.value)) total += 500ms;
      const auto found = answers.find(i.id.value);
      core.report(i.id, {found == answers.end() ? 0 : found->second, 0, 0, {}, total}, now);
    }
    for (const auto& c : core.assign_roles(now, leads)) changes.push_back(c);
  }

  conductor_core core;
  time_point now = start;
  std::vector<role_change> changes;
  std::vector<block_key> keys;

 private:
  std::map<worker_id, duration> busy_;
};

}  // namespace

TEST_CASE("a node that is alone plays both roles, and shares them with those that join") {
  elastic_world w;
  w.join(1);
  CHECK(w.roles(1) == "PD");
  REQUIRE(w.place(1));
  w.join(2);
  CHECK(w.roles(1) == "pD");  // the prompt that is charged there is finished first
  CHECK(w.roles(2) == "P");
  w.pass({});
  CHECK(w.roles(1) == "pD");
  w.core.first_token(request_id{1}, 1000, 0, 1s, w.now);
  w.pass({});
  CHECK(w.roles(1) == "D");
  w.join(3);
  CHECK(w.roles(3) == "P");
  w.join(4);
  CHECK(w.roles(4) == "D");
}

TEST_CASE("requests go to the node that plays the role") {
  elastic_world w;
  w.join(1);
  w.join(2);
  w.pass({});
  REQUIRE(w.roles(1) == "D");
  REQUIRE(w.roles(2) == "P");
  for (std::uint64_t r = 1; r <= 20; ++r) {
    const auto placed = w.place(r);
    REQUIRE(placed);
    CHECK(placed->prefill == worker_id{20});
    CHECK(placed->decode == worker_id{11});
  }
}

TEST_CASE("the fuller role gets a node, which keeps what it had begun") {
  elastic_world w;
  for (std::uint64_t n = 1; n <= 4; ++n) w.join(n);
  w.pass({});
  REQUIRE((w.roles(1) + w.roles(2) + w.roles(3) + w.roles(4)) == "DPPD");
  for (int i = 0; i < 4; ++i) REQUIRE(w.place(static_cast<std::uint64_t>(100 + i)));
  // Decode batches of 8 are full, and prefill computes a tenth of the time.
  for (int i = 0; i < 50; ++i)
    w.pass(i % 10 == 0 ? std::set<std::uint64_t>{20, 30} : std::set<std::uint64_t>{}, {{11, 8}, {41, 8}});
  CHECK(w.changes.size() <= 6);  // of the joins: the mean is not there yet
  for (int i = 0; i < 250; ++i) w.pass({}, {{11, 8}, {41, 8}});
  const std::uint64_t giver = w.roles(2) == "p" ? 2 : 3;
  CHECK(w.roles(giver) == "p");
  CHECK(w.roles(5 - giver) == "P");
  for (int i = 0; i < 4; ++i)
    w.core.first_token(request_id{static_cast<std::uint64_t>(100 + i)}, 1000, 0, 1s, w.now);
  w.pass({}, {{11, 8}, {41, 8}});
  CHECK(w.roles(giver) == "D");
  const auto& last = w.changes.back();
  CHECK(last.node == node_id{giver});
  CHECK(last.step == role_step::plays);
  CHECK(last.role == worker_role::decode);
  CHECK(last.decode_load > 0.5);
  CHECK(last.prefill_load < 0.2);
  CHECK(w.core.charged_requests() == 4);
}

TEST_CASE("loads that swing faster than the hold change no role") {
  elastic_world w;
  for (std::uint64_t n = 1; n <= 4; ++n) w.join(n);
  for (int i = 0; i < 4; ++i) w.pass({});
  w.changes.clear();
  for (int second = 0; second < 600; ++second) {
    const bool prompts = second / 10 % 2 == 0;
    for (int half = 0; half < 2; ++half) {
      if (prompts) w.pass({20, 30});
      else w.pass({}, {{11, 8}, {41, 8}});
    }
  }
  CHECK(w.changes.empty());
}

TEST_CASE("no more nodes change in an hour than there is a budget for, but a role that is lost is taken") {
  elastic_world w{2};
  for (std::uint64_t n = 1; n <= 8; ++n) w.join(n);
  for (int i = 0; i < 4; ++i) w.pass({});
  const auto answering = [&] {
    std::uint32_t count = 0;
    for (std::uint64_t n = 1; n <= 8; ++n) count += w.roles(n) == "D";
    return count;
  };
  std::map<std::uint64_t, std::uint32_t> answers;
  for (std::uint64_t n = 1; n <= 8; ++n) answers[n * 10 + 1] = 8;
  REQUIRE(answering() == 4);
  for (int i = 0; i < 7000; ++i) w.pass({}, answers);
  CHECK(answering() == 6);
  for (int i = 0; i < 300; ++i) w.pass({}, answers);
  CHECK(answering() == 7);  // the first hour's are spent, and another one's begun
  for (std::uint64_t n = 1; n <= 8; ++n)
    if (w.roles(n) == "P") w.core.remove_node(node_id{n});
  CHECK(answering() == 6);
  std::string roles;
  for (std::uint64_t n = 1; n <= 8; ++n) roles += w.roles(n);
  CHECK(roles.find('P') != std::string::npos);
}

TEST_CASE("a role's last node stays, also where several instances run on it") {
  elastic_world w;
  for (std::uint64_t n = 1; n <= 4; ++n) {
    w.join(n);
    REQUIRE(w.core.add_instance(prefill_instance(n * 10 + 2, node_id{n})));
  }
  for (int i = 0; i < 4; ++i) w.pass({});
  for (int i = 0; i < 1000; ++i) w.pass({}, {{11, 8}, {21, 8}, {31, 8}, {41, 8}});
  std::string roles;
  for (std::uint64_t n = 1; n <= 4; ++n) roles += w.roles(n);
  CHECK(std::ranges::count(roles, 'P') == 1);
  CHECK(std::ranges::count(roles, 'D') == 3);
  w.changes.clear();
  for (int i = 0; i < 200; ++i) w.pass({}, {{11, 8}, {21, 8}, {31, 8}, {41, 8}});
  CHECK(w.changes.empty());
}

TEST_CASE("a role whose last node is lost or told to stop is played by another at once") {
  for (const bool lost : {true, false}) {
    CAPTURE(lost);
    elastic_world w;
    w.join(1);
    w.join(2);
    w.pass({});
    REQUIRE(w.roles(1) == "D");
    if (lost) {
      w.core.remove_node(node_id{1});
    } else {
      for (const std::uint64_t worker : {10, 11})
        REQUIRE(w.core.set_state(worker_id{worker}, instance_state::draining));
    }
    CHECK(w.roles(2) == "PD");
    const auto placed = w.place(1);
    REQUIRE(placed);
    CHECK(placed->decode == worker_id{21});
    if (!lost) continue;
    w.join(1);
    w.pass({});
    // Whoever came back takes prompts, as the other one has answers.
    CHECK(w.roles(1) == "P");
    CHECK(w.roles(2) == "pD");
  }
}

TEST_CASE("a change that is under way is called off where its role is left without a node") {
  elastic_world w;
  for (std::uint64_t n = 1; n <= 4; ++n) w.join(n);
  w.pass({});
  for (int i = 0; i < 4; ++i) REQUIRE(w.place(static_cast<std::uint64_t>(100 + i)));
  for (int i = 0; i < 250; ++i) w.pass({}, {{11, 8}, {41, 8}});
  const std::uint64_t giver = w.roles(2) == "p" ? 2 : 3;
  REQUIRE(w.roles(giver) == "p");
  w.core.remove_node(node_id{5 - giver});
  CHECK(w.roles(giver) == "P");
}

TEST_CASE("a conductor that does not lead sees from reports who plays what") {
  elastic_world w;
  for (std::uint64_t n = 1; n <= 3; ++n) w.join(n);
  for (int i = 0; i < 3; ++i) w.pass({11, 20, 31}, {{11, 2}, {31, 2}}, false);
  CHECK(w.roles(1) == "D");
  CHECK(w.roles(2) == "P");
  CHECK(w.roles(3) == "D");
  w.pass({10, 20, 31}, {{31, 2}}, false);  // the leader has changed the first
  CHECK(w.roles(1) == "P");
  w.changes.clear();
  w.pass({10, 20, 31}, {{31, 2}}, true);
  CHECK(w.changes.empty());
}

TEST_CASE("without the option every worker takes requests, as before") {
  conductor_core core{small_options()};
  REQUIRE(core.add_node(node_id{1}, start));
  REQUIRE(core.add_instance(prefill_instance(10, node_id{1})));
  REQUIRE(core.add_instance(decode_instance(11, node_id{1})));
  REQUIRE(core.add_node(node_id{2}, start));
  REQUIRE(core.add_instance(prefill_instance(20, node_id{2})));
  REQUIRE(core.add_instance(decode_instance(21, node_id{2})));
  CHECK(core.assign_roles(start + 1s, true).empty());
  for (const auto& i : core.cluster().views(start)) CHECK(i.state == instance_state::live);
}

TEST_CASE("whatever comes and goes, no role is without a node, and a change ends") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const auto below = [&](std::uint64_t n) { return random() % n; };
    elastic_world w;
    w.join(1);
    std::set<std::uint64_t> here{1};
    std::vector<std::uint64_t> prompts, answers;
    std::uint64_t next = 1;
    for (int step = 0; step < 400; ++step) {
      const auto n = 1 + below(6);
      switch (below(6)) {
        case 0:
          if (here.insert(n).second) w.join(n);
          break;
        case 1:
          if (here.size() > 1 && here.erase(n) == 1) w.core.remove_node(node_id{n});
          break;
        case 2:
          if (w.place(next)) prompts.push_back(next);
          ++next;
          break;
        case 3:
          if (prompts.empty()) break;
          w.core.first_token(request_id{prompts.back()}, 1000, 0, 1s, w.now);
          answers.push_back(prompts.back());
          prompts.pop_back();
          break;
        case 4:
          if (answers.empty()) break;
          w.core.finished(request_id{answers.back()}, w.now, 10);
          answers.pop_back();
          break;
        default: {
          std::set<std::uint64_t> busy;
          std::map<std::uint64_t, std::uint32_t> running;
          for (const auto node : here) {
            if (below(2) == 0) busy.insert(node * 10);
            running[node * 10 + 1] = static_cast<std::uint32_t>(below(9));
          }
          for (auto i = below(40); i > 0; --i) w.pass(busy, running);
        }
      }
      bool prefill = false, decode = false;
      for (const auto& i : w.core.cluster().views(w.now)) {
        if (i.state != instance_state::live) continue;
        (i.role == worker_role::prefill ? prefill : decode) = true;
      }
      REQUIRE(prefill);
      REQUIRE(decode);
    }
    for (const auto r : prompts) w.core.failed(request_id{r}, w.now);
    for (const auto r : answers) w.core.failed(request_id{r}, w.now);
    for (int i = 0; i < 4; ++i) w.pass({});
    CHECK(w.core.charged_requests() == 0);
    for (const auto n : here) CHECK(w.roles(n) == (here.size() == 1 ? "PD" : w.roles(n).substr(0, 1)));
    for (const auto n : here) CHECK_FALSE(w.roles(n).empty());
  }
}
