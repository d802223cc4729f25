#include <doctest/doctest.h>

#include <map>
#include <random>

#include "tests/runtime/sched/world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

conductor_options options_of(const elastic_node_options& scale, bool coupled = false) {
  auto o = small_options();
  o.scale = scale;
  o.coupled = coupled;
  o.ttft_slo = 10s;
  return o;
}

/// A conductor's core, prefill nodes of two instances that share `work` (1: what a node can do), and an operator who obeys after a while.
class scaled_world {
 public:
  explicit scaled_world(const elastic_node_options& scale) : core(options_of(scale)) {}

  void join() {
    const auto n = ++last_;
    REQUIRE(core.add_node(node_id{n}, now));
    for (int i = 0; i < 2; ++i) REQUIRE(core.add_instance(prefill_instance(n * 10 + i, node_id{n})));
    nodes_[n] = {};
  }
  void leave() {
    static_cast<void>(core.remove_node(node_id{nodes_.begin()->first}));
    nodes_.erase(nodes_.begin());
  }
  std::size_t running() const { return nodes_.size(); }

  /// Half a second. @returns what the conductor asks for, 0: nothing.
  std::uint32_t pass(double work) {
    now += 500ms;
    const double share = nodes_.empty() ? 0 : std::min(1.0, work / static_cast<double>(nodes_.size()));
    for (auto& [n, busy] : nodes_) {
      busy += from_seconds(0.5 * share);
      for (int i = 0; i < 2; ++i) core.report(worker_id{n * 10 + i}, {0, 0, 0, {}, busy}, now);
    }
    const auto wish = core.wish_nodes(now);
    if (wish.empty()) return 0;
    ++wishes;
    CHECK(wish.front().decode == 0);
    return wish.front().prefill;
  }
  /// `span` of it. @returns the last number that was asked for.
  std::uint32_t pass(double work, duration span) {
    std::uint32_t last = 0;
    for (const auto end = now + span; now < end;)
      if (const auto asked = pass(work)) last = asked;
    return last;
  }

  conductor_core core;
  time_point now = start;
  int wishes = 0;

 private:
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, duration> nodes_;
};

constexpr elastic_node_options up_to_eight{.prefill = {2, 8}};

}  // namespace

TEST_CASE("more nodes are asked for while the load stays, and once") {
  scaled_world w{up_to_eight};
  for (int i = 0; i < 2; ++i) w.join();
  CHECK(w.pass(2, 4min) == 0);  // it does not know yet what else is being started
  CHECK(w.pass(2, 2min) == 3);  // 2 / 0.7
  CHECK(w.pass(2, 2min) == 0);  // the third is on its way
  w.join();
  CHECK(w.pass(2, 20min) == 0);  // 0.67 of each
  CHECK(w.wishes == 1);
}

TEST_CASE("an order that nobody obeyed is given again") {
  scaled_world w{up_to_eight};
  for (int i = 0; i < 2; ++i) w.join();
  w.pass(2, 6min);
  CHECK(w.wishes == 1);
  CHECK(w.pass(2, 6min) == 3);
  CHECK(w.wishes == 2);
}

TEST_CASE("fewer are asked for after a while, and not again while they go") {
  scaled_world w{up_to_eight};
  for (int i = 0; i < 6; ++i) w.join();
  CHECK(w.pass(4, 20min) == 0);
  CHECK(w.pass(1, 4min) == 0);
  CHECK(w.pass(1, 4min) == 2);
  CHECK(w.pass(1, 3min) == 0);  // they drain
  while (w.running() > 2) w.leave();
  CHECK(w.pass(1, 20min) == 0);
  CHECK(w.pass(0, 20min) == 0);  // two there must be
}

TEST_CASE("what an operator adds stays for as long as it would take to let it go") {
  scaled_world w{up_to_eight};
  for (int i = 0; i < 2; ++i) w.join();
  CHECK(w.pass(1, 20min) == 0);
  for (int i = 0; i < 3; ++i) w.join();
  CHECK(w.pass(1, 4min) == 0);
  CHECK(w.pass(1, 4min) == 2);
}

TEST_CASE("load that flaps asks for what its peaks need, and then for nothing") {
  scaled_world w{up_to_eight};
  for (int i = 0; i < 2; ++i) w.join();
  w.pass(1, 5min);
  for (int i = 0; i < 60; ++i) {  // an hour
    for (auto asked : {w.pass(4, 30s), w.pass(0.2, 30s)})
      while (asked > w.running()) w.join();
  }
  CHECK(w.running() <= 5);
  CHECK(w.wishes <= 3);
}

TEST_CASE("whoever obeys at last has as many nodes as the load needs, and never too few or too many") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const auto below = [&](std::uint64_t n) { return random() % n; };
    scaled_world w{up_to_eight};
    for (auto n = 2 + below(6); n > 0; --n) w.join();
    std::size_t asked = w.running();
    double work = 0;
    for (int phase = 0; phase < 12; ++phase) {
      work = static_cast<double>(below(60)) / 10;
      const bool obeys = below(4) != 0;
      for (auto minutes = 5 + below(10); minutes > 0; --minutes) {
        if (const auto wish = w.pass(work, 1min)) {
          CHECK(wish >= 2);
          CHECK(wish <= 8);
          asked = wish;
        }
        if (!obeys) continue;
        if (w.running() < asked) w.join();
        if (w.running() > asked) w.leave();
      }
    }
    for (int minute = 0; minute < 40; ++minute) {
      if (const auto wish = w.pass(work, 1min)) asked = wish;
      while (w.running() < asked) w.join();
      while (w.running() > asked) w.leave();
    }
    const auto each = work / static_cast<double>(w.running());
    CHECK((each <= 0.77 + 1e-9 || w.running() == 8));  // the target and its tolerance
    CHECK((each >= 0.35 || w.running() == 2));         // one fewer would be above them
  }
}

TEST_CASE("a coupled node is as full as the fuller of its two halves") {
  conductor_core core{options_of({.nodes = {1, 4}}, true)};
  REQUIRE(core.add_node(node_id{1}, start));
  REQUIRE(core.add_instance(prefill_instance(10, node_id{1})));
  REQUIRE(core.add_instance(decode_instance(11, node_id{1})));
  std::string asked;
  duration busy{};
  for (auto now = start; now < start + 8min; now += 500ms) {
    busy += 500ms;
    core.report(worker_id{10}, {0, 0, 0, {}, busy}, now);
    core.report(worker_id{11}, {0, 0, 0, {}, busy}, now);
    for (const auto& wish : core.wish_nodes(now)) asked = counts_of(wish);
  }
  CHECK(asked == "coupled=2");
}

TEST_CASE("nodes that play one role at a time are as many as both roles need") {
  auto o = options_of({.nodes = {1, 8}});
  o.elastic.on = true;
  conductor_core core{o};
  for (std::uint64_t n = 1; n <= 2; ++n) {
    REQUIRE(core.add_node(node_id{n}, start));
    REQUIRE(core.add_instance(prefill_instance(n * 10, node_id{n})));
    REQUIRE(core.add_instance(decode_instance(n * 10 + 1, node_id{n})));
  }
  std::uint32_t asked = 0;
  duration busy{};
  for (auto now = start; now < start + 8min; now += 500ms) {
    busy += 500ms;
    for (const auto& i : core.cluster().views(now))
      core.report(i.id, {0, 0, 0, {}, i.role == worker_role::prefill ? busy : duration{}}, now);
    static_cast<void>(core.assign_roles(now, true));
    for (const auto& wish : core.wish_nodes(now)) asked = wish.nodes;
  }
  CHECK(asked == 3);  // two for prompts, since one is full, and one for answers
}
