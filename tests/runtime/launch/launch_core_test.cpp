#include "runtime/launch/launch_core.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

using namespace mooncaf;
using namespace mooncaf::launch;

namespace {

planned_host host(const std::string& name, std::vector<std::pair<std::string, std::uint32_t>> nodes) {
  planned_host h;
  h.entry.name = name;
  for (const auto& [node, stage] : nodes) {
    h.nodes.push_back({node, "", node + " as planned", stage, false, {}, 0, {}});
    if (stage == 0) h.entry.counts["conductor"] = 1;
  }
  return h;
}

launch_plan small_plan() {
  launch_plan plan{
      "chat",
      {host("a", {{"front", 0}}), host("b", {{"pool", 1}, {"p0", 2}}), host("c", {{"d0", 2}, {"g", 3}})}};
  plan.hosts[0].gateways = {"http://a:8000"};
  return plan;
}

/// Hosts that do what they are asked to, or fail as a script or chance has it; a host that fails may have carried out
/// some of it.
struct scripted_world {
  explicit scripted_world(const launch_plan& p) : plan(p), runs(p.hosts.size()) {}

  void run(launch_core& core) {
    for (auto batch = core.begin(); !batch.empty();) {
      std::vector<launch_action> next;
      for (const auto& a : batch) next = carry_out(core, a);
      batch = std::move(next);
    }
  }

  std::vector<launch_action> carry_out(launch_core& core, const launch_action& a) {
    const bool bad = fails(a);
    said.push_back(plan.hosts[a.host].entry.name + std::to_string(static_cast<int>(a.step)));
    if (a.step == launch_step::examine) {
      if (bad) return core.examined(a.host, fail(ec::unavailable, "unreachable"));
      return core.examined(a.host,
                           host_facts{"1",
                                      runs[a.host],
                                      {},
                                      ~std::uint64_t{0},
                                      {},
                                      !without_model.contains(a.host),
                                      !without_model.contains(a.host) && !with_slice.contains(a.host)});
    }
    if (a.step == launch_step::fetch) {
      for (const auto s : a.sources) CHECK((!without_model.contains(s) && !with_slice.contains(s)));
      CHECK(!a.sources.empty());
      if (bad) return core.fetched(a.host, fail(ec::unavailable, "the link is cut"));
      without_model.erase(a.host);
      return core.fetched(a.host, {});
    }
    CHECK_MESSAGE((without_model.empty() || a.step == launch_step::restore),
                  "a cluster starts without a model");
    if (!bad || a.step == launch_step::restore) runs[a.host] = a.nodes;
    else if (!a.nodes.empty()) runs[a.host].insert(*a.nodes.begin());
    if (a.step == launch_step::restore)
      return core.restored(a.host,
                           cannot_restore ? result<void>{fail(ec::unavailable, "gone")} : result<void>{});
    for (const auto& [name, text] : a.nodes) {
      const bool led = !runs[0].empty();
      CHECK_MESSAGE((led || name == "front"), name << " was started before the conductor");
    }
    return core.carried(a.host, bad ? result<void>{fail(ec::unavailable, "exit status 5")} : result<void>{});
  }

  const launch_plan& plan;
  std::vector<node_texts> runs;
  std::vector<std::string> said;
  std::set<std::size_t> without_model{};  ///< hosts
  std::set<std::size_t> with_slice{};     ///< hosts that have what they read, and no more
  bool cannot_restore = false;
  std::function<bool(const launch_action&)> fails = [](const launch_action&) { return false; };
};

std::vector<node_texts> as_planned(const launch_plan& plan) {
  std::vector<node_texts> all(plan.hosts.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const auto& n : plan.hosts[i].nodes) all[i][n.name] = n.text;
  return all;
}

}  // namespace

TEST_CASE("all hosts are examined before anything starts, and the conductor starts first") {
  const auto plan = small_plan();
  scripted_world world{plan};
  launch_core core{plan, "1", false};
  world.run(core);
  CHECK(core.runs());
  CHECK(world.runs == as_planned(plan));
  CHECK(world.said == std::vector<std::string>{"a0", "b0", "c0", "a1", "b1", "b1", "c1", "c1", "a1"});
}

TEST_CASE("a host of another version is named, and nothing starts") {
  const auto plan = small_plan();
  scripted_world world{plan};
  launch_core core{plan, "2", false};
  world.run(core);
  CHECK_FALSE(core.runs());
  CHECK(core.problems().size() == 3);
  CHECK(world.runs == std::vector<node_texts>(3));
}

TEST_CASE("whatever fails at any step, what ran before runs again and nothing else does") {
  const auto plan = small_plan();
  std::mt19937 random{7};
  int gave_up = 0;
  for (int round = 0; round < 2000; ++round) {
    scripted_world world{plan};
    // An earlier cluster, perhaps with a process that the file has no more.
    if (round % 3 == 1) world.runs = {{{"front", "old"}}, {{"p0", "old"}, {"p1", "old"}}, {}};
    const auto before = world.runs;
    world.fails = [&](const launch_action&) { return random() % 8 == 0; };
    launch_core core{plan, "1", false};
    world.run(core);
    REQUIRE(core.done());
    CHECK(world.runs == (core.runs() ? as_planned(plan) : before));
    CHECK(core.runs() == core.problems().empty());
    gave_up += core.runs() ? 0 : 1;
  }
  CHECK(gave_up > 200);
  CHECK(gave_up < 1800);
}

TEST_CASE("a host that cannot be put back is said, and not called unchanged") {
  const auto plan = small_plan();
  for (const bool stuck : {false, true}) {
    scripted_world world{plan};
    world.fails = [](const launch_action& a) { return a.host == 2 && a.step == launch_step::carry; };
    world.cannot_restore = stuck;
    launch_core core{plan, "1", false};
    world.run(core);
    CHECK_FALSE(core.runs());
    CHECK(core.put_back() == !stuck);
    CHECK((core.problems().back().what == "could not be put back: gone") == stuck);
  }
}

TEST_CASE("with keep_going the other hosts go on, but not without the conductor") {
  const auto plan = small_plan();
  for (const std::size_t bad : {0u, 1u}) {
    scripted_world world{plan};
    world.fails = [&](const launch_action& a) { return a.host == bad && a.step == launch_step::examine; };
    launch_core core{plan, "1", true};
    world.run(core);
    CHECK(core.runs() == (bad != 0));
    CHECK(world.runs[1].empty());
    CHECK(world.runs[2].empty() == (bad == 0));
    CHECK(core.problems().at(0).what == "unreachable");
  }
}

TEST_CASE("with keep_going a gateway that cannot serve for want of a host is said, and what runs stays") {
  const auto plan = small_plan();
  scripted_world world{plan};
  world.fails = [](const launch_action& a) { return a.last; };
  launch_core core{plan, "1", true};
  world.run(core);
  CHECK(core.runs());
  CHECK(core.problems().size() == 1);
  CHECK(world.runs == as_planned(plan));
}

TEST_CASE("whenever the operator interrupts, what ran before runs again") {
  const auto plan = small_plan();
  for (std::size_t after = 0; after < 9; ++after) {
    scripted_world world{plan};
    launch_core core{plan, "1", false};
    world.fails = [&](const launch_action&) {
      if (world.said.size() == after) core.cancel();
      return false;
    };
    world.run(core);
    CHECK_FALSE(core.runs());
    CHECK(world.runs == std::vector<node_texts>(3));
  }
}

TEST_CASE("hosts without the model get it from those that have it before anything starts") {
  auto plan = small_plan();
  for (auto& h : plan.hosts) h.model = "/models/M.gguf";
  plan.hosts[2].model = "/data/M.gguf";
  scripted_world world{plan};
  world.without_model = {1, 2};
  SUBCASE("from the one that has it") {
    launch_core core{plan, "1", false};
    world.run(core);
    CHECK(core.runs());
    CHECK(world.runs == as_planned(plan));
    CHECK(world.without_model.empty());
  }
  SUBCASE("of a host that has a part of it, enough for itself, others get nothing") {
    world.without_model = {1};
    world.with_slice = {2};
    launch_core core{plan, "1", false};
    world.run(core);
    CHECK(core.runs());
    CHECK(world.without_model.empty());
  }
  SUBCASE("a file of another name is another model") {
    plan.hosts[0].model = "/models/other.gguf";
    launch_core core{plan, "1", false};
    world.run(core);
    CHECK_FALSE(core.runs());
    REQUIRE(core.problems().size() == 2);
    CHECK(core.problems()[0].what == "has no model /models/M.gguf, and no other host has one of that name");
    for (const auto& runs : world.runs) CHECK(runs.empty());
  }
  SUBCASE("a fetch that fails ends it, and nothing was started") {
    world.fails = [](const launch_action& a) { return a.step == launch_step::fetch && a.host == 2; };
    launch_core core{plan, "1", false};
    world.run(core);
    CHECK_FALSE(core.runs());
    REQUIRE(core.problems().size() == 1);
    CHECK(core.problems()[0].host == 2);
    for (const auto& runs : world.runs) CHECK(runs.empty());
  }
  SUBCASE("nothing is fetched for a cluster that will not start") {
    world.fails = [](const launch_action& a) { return a.step == launch_step::examine && a.host == 1; };
    world.without_model = {2};
    launch_core core{plan, "1", false};
    world.run(core);
    CHECK_FALSE(core.runs());
    CHECK(world.without_model.contains(2));
  }
}
