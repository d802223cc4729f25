#include "runtime/sim/planner.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "runtime/sim/plan_report.hpp"
#include "runtime/sim/price_list.hpp"
#include "runtime/sim/random.hpp"
#include "tests/runtime/sim/world.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

plan_problem a800_problem(std::uint32_t nodes) {
  plan_problem p;
  p.base = a800_cluster(1, 1);
  p.base.jitter = 0.1;
  p.kinds = {{"a800", p.base.hardware, 10}};
  p.nodes = nodes;
  return p;
}

plan_answer planned(const plan_problem& p, const std::vector<workload_record>& records) {
  auto a = plan(p, records);
  REQUIRE(a);
  return std::move(*a);
}

/// Small machines of two kinds, a workload, SLOs and prices, drawn from the seed.
struct small_problem {
  std::vector<workload_record> records;
  plan_problem asked;

  small_problem(std::uint64_t seed, plan_goal goal) {
    random_source random{seed};
    workload_options w;
    w.kind = static_cast<workload_kind>(random.below(3));
    w.requests = goal == plan_goal::goodput ? 400 : 250;
    w.rate = 1 + 2 * random.uniform();
    w.seed = seed;
    records = all_of(w);
    asked = a800_problem(goal == plan_goal::goodput ? 3 + static_cast<std::uint32_t>(random.below(4)) : 7);
    asked.goal = goal;
    asked.seeds = 1;
    asked.headroom = 1;
    asked.load = 0.3 + random.uniform();
    asked.target = 0.9 + 0.09 * random.uniform();
    asked.coupled_chunks = {512};
    asked.pipelines = random.below(3) == 0 ? std::vector<std::uint32_t>{1, 2} : std::vector<std::uint32_t>{1};
    asked.base.ttft_slo_s = 3 + 20 * random.uniform();
    asked.base.tbt_slo_s = 0.06 + 0.1 * random.uniform();
    asked.base.jitter = 0.05;
    auto other = *builtin_profile("h800x8-llama70b");
    asked.kinds.push_back({"h800", other, 10 + 20 * random.uniform()});
  }

  /// Every cluster of at most (of exactly, where machines are given) so many machines.
  std::vector<plan_cluster> all_clusters() const {
    std::vector<plan_cluster> all;
    const auto add = [&](const plan_cluster& c) {
      if (asked.goal == plan_goal::goodput ? c.machines() == asked.nodes : c.machines() <= asked.nodes) {
        all.push_back(c);
      }
    };
    for (std::uint32_t prefill_kind = 0; prefill_kind < 2; ++prefill_kind) {
      for (std::uint32_t prefill = 1; prefill <= asked.nodes; ++prefill) {
        plan_cluster c{
            prefill_kind, prefill_kind, prefill, 1, 0, asked.coupled_chunks[0], asked.base.policy, 1};
        add(c);
        c.chunk = 0;
        for (const auto pipeline : asked.pipelines) {
          for (c.decode_kind = 0; c.decode_kind < 2; ++c.decode_kind) {
            c.pipeline = pipeline;
            for (c.decode = 1; c.decode < asked.nodes; ++c.decode) add(c);
          }
        }
      }
    }
    return all;
  }
};

}  // namespace

TEST_CASE("the cheapest cluster of a search is that of trying them all") {
  int feasible = 0;
  for (std::uint64_t seed = 1; seed <= 22; ++seed) {
    const small_problem small{seed, seed % 2 == 0 ? plan_goal::cost : plan_goal::nodes};
    const auto price = [&](const plan_cluster& c) {
      return small.asked.goal == plan_goal::nodes ? c.machines() : cost_of(small.asked, c);
    };
    double least = std::numeric_limits<double>::infinity();
    plan_cluster best;
    for (const auto& c : small.all_clusters()) {
      if (price(c) >= least) continue;
      if (meets(options_of(small.asked, c), small.records, small.asked.target, small.asked.load)) {
        least = price(c);
        best = c;
      }
    }
    plan_judge judge{small.asked, small.records};
    const auto found = best_cluster(judge);
    INFO("seed ", seed, ": ", found ? describe(small.asked, *found) : "none",
         ", tried: ", describe(small.asked, best));
    CHECK(found.has_value() == (least < std::numeric_limits<double>::infinity()));
    if (!found) continue;
    ++feasible;
    CHECK(price(*found) == doctest::Approx(least));
    CHECK(meets(options_of(small.asked, *found), small.records, small.asked.target, small.asked.load));
  }
  CHECK(feasible >= 20);
}

TEST_CASE("the cluster that carries most by a search carries as much as the best of trying them all") {
  int missed = 0;
  for (std::uint64_t seed = 101; seed <= 120; ++seed) {
    const small_problem small{seed, plan_goal::goodput};
    double most = 0;
    plan_judge all{small.asked, small.records};
    plan_cluster best;
    for (const auto& c : small.all_clusters()) {
      // What fails a little above the best so far is not better, and need not be known exactly.
      if (most > 0 && !meets(options_of(small.asked, c), small.records, small.asked.target, most * 1.01))
        continue;
      const double carries = all.capacity(c, most > 0 ? most : 1);
      if (carries > most) best = c;
      most = std::max(most, carries);
    }
    plan_judge judge{small.asked, small.records};
    const auto found = best_cluster(judge);
    INFO("seed ", seed, ": ", found ? describe(small.asked, *found) : "none",
         ", tried: ", describe(small.asked, best), " carries ", most);
    REQUIRE(found.has_value() == (most > 0));
    if (!found) continue;
    CHECK(found->machines() == small.asked.nodes);
    // By one ruler: a load that fails may lie below one that holds, and each search meets others. Known
    // within 2 %.
    const double share = all.capacity(*found, most) / most;
    CHECK(share >= 0.92);
    missed += share < 0.98;
  }
  CHECK(missed <= 2);
}

namespace {

/// A problem of few machines of which policy, admission, memory, disk and network are to be chosen, too.
small_problem with_parts(std::uint64_t seed, plan_goal goal) {
  small_problem small{seed, goal};
  random_source random{seed * 7919};
  auto& p = small.asked;
  p.kinds.resize(1);
  p.pipelines = {1};
  p.nodes = 5;
  p.load = 0.2 + 0.4 * random.uniform();
  p.part_hour = {0.001 + 0.02 * random.uniform(), 0.0005 * random.uniform(), 0.01 * random.uniform()};
  p.policies = {placement_policy::kvcache_centric, placement_policy::load_balancing};
  p.admissions = {admission_policy::none, admission_policy::early};
  p.cache_factors = {1, 0.25};
  p.ssd_gb = {0, 2000};
  p.nic_gbit = {-1, 100};
  return small;
}

/// Every cluster of such a problem.
std::vector<plan_cluster> all_with_parts(const small_problem& small) {
  const auto& p = small.asked;
  std::vector<plan_cluster> all;
  for (auto c : small.all_clusters()) {
    if (c.prefill_kind != 0 || c.decode_kind != 0) continue;
    for (const auto policy : p.policies) {
      c.policy = policy;
      for (const auto admission : p.admissions) {
        c.admission = admission;
        for (const double cache : p.cache_factors) {
          c.cache_factor = cache;
          for (const double ssd : p.ssd_gb) {
            c.ssd_gb = ssd;
            for (const double nic : p.nic_gbit) {
              c.nic_gbit = nic;
              all.push_back(c);
            }
          }
        }
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE(
    "machines, policy, admission, memory, disk and network, found one after the other, are the cheapest of "
    "all") {
  // More does not always carry more in a run of so few requests: the search may pass by the cheapest, or by all.
  int feasible = 0, missed = 0;
  std::vector<std::uint64_t> seeds{274, 367, 586, 892};  // missed once
  for (std::uint64_t seed = 201; seed <= 234; ++seed) seeds.push_back(seed);
  for (const auto seed : seeds) {
    const auto small = with_parts(seed, plan_goal::cost);
    auto all = all_with_parts(small);
    std::ranges::sort(all, {}, [&](const plan_cluster& c) { return cost_of(small.asked, c); });
    const auto cheapest = std::ranges::find_if(all, [&](const plan_cluster& c) {
      return meets(options_of(small.asked, c), small.records, small.asked.target, small.asked.load);
    });
    plan_judge judge{small.asked, small.records};
    const auto found = best_cluster(judge);
    INFO("seed ", seed);
    CHECK((!found || cheapest != all.end()));
    missed += !found && cheapest != all.end();
    if (!found) continue;
    ++feasible;
    CHECK(judge.holds(*found, small.asked.load));
    const double more = cost_of(small.asked, *found) / cost_of(small.asked, *cheapest);
    CHECK(more < 1.07);
    missed += more > 1 + 1e-9;
  }
  CHECK(feasible >= 20);
  CHECK(missed <= 2);
}

TEST_CASE("machines are counted, not pipeline groups") {
  const auto records = conversation_like(400);
  for (const auto goal : {plan_goal::goodput, plan_goal::nodes}) {
    auto p = a800_problem(8);
    p.pipelines = {4};
    p.coupled = false;
    p.goal = goal;
    p.load = 0.3;
    const auto a = planned(p, records);
    REQUIRE(a.found);
    CHECK(a.cluster.pipeline == 4);
    CHECK(a.cluster.machines() == a.cluster.prefill * 4 + a.cluster.decode);
    CHECK(a.cluster.machines() <= 8);
    CHECK(options_of(p, a.cluster).machines() == a.cluster.machines());
    CHECK(to_text(p, a, "").find("the 4 machines of a group are devices of one host") != std::string::npos);
    for (const auto& at : a.around) CHECK(at.cluster.machines() == a.cluster.machines());
  }
}

TEST_CASE(
    "a plan stands back from the cliff by its headroom, with every seed, and says what pushes it over") {
  const auto records = conversation_like(1500);
  auto p = a800_problem(8);
  const auto a = planned(p, records);
  REQUIRE(a.found);
  REQUIRE(a.carries.size() == p.seeds);
  CHECK(std::ranges::is_sorted(a.carries));
  CHECK(a.planned_load == doctest::Approx(a.carries.front() / p.headroom));
  CHECK(a.planned_share >= p.target);
  const auto risk = [&](const std::string& what) {
    const auto at = std::ranges::find(a.risks, what, &plan_risk::what);
    REQUIRE(at != a.risks.end());
    return *at;
  };
  // Each is worse than what was planned, by about what it takes away.
  CHECK(risk("steps 20 % slower").carries < a.carries.front());
  CHECK(risk("steps 20 % slower").carries > a.carries.front() / 1.5);
  CHECK(risk("prompts 20 % longer").carries < a.carries.front());
  CHECK(risk("one prefill machine less").carries < a.carries.back());
  CHECK(a.overload.size() == 4);
  // Every part is shown with what it is worth, the chosen one among the others, and none of them is better.
  REQUIRE(a.worth.size() == std::size(all_plan_parts));
  for (const auto& w : a.worth) {
    CHECK(w.points.size() > 1);
    CHECK(std::ranges::count(w.points, a.cluster, &plan_point::cluster) == 1);
  }
  CHECK(a.worth.front().points.size() == 4);
}

TEST_CASE(
    "a load is carried with headroom by every seed, and one machine less of what was found would not do") {
  const auto records = conversation_like(1000);
  auto p = a800_problem(32);
  p.goal = plan_goal::nodes;
  p.load = 1.2;
  const auto a = planned(p, records);
  REQUIRE(a.found);
  CHECK(a.planned_load == p.load);
  CHECK(a.carries.front() >= p.load * p.headroom * 0.98);
  plan_judge judge{p, records};
  CHECK(judge.holds_always(a.cluster, p.load * p.headroom));
  auto fewer = a.cluster;
  --(a.cluster.coupled() || fewer.decode == 1 ? fewer.prefill : fewer.decode);
  CHECK_FALSE(judge.holds_always(fewer, p.load * p.headroom));
}

TEST_CASE("costs add up: machines, their cache, tokens at the planned load") {
  const auto records = conversation_like(600);
  auto p = a800_problem(8);
  p.kinds[0].node_hour = 12;
  p.part_hour.cache_gb = 0.01;
  plan_cluster c{0, 0, 3, 2, 2, 0, placement_policy::kvcache_centric, 0.5};
  const double gb = 0.5 * 3e6 * 327'680 * 1e-9;
  CHECK(cost_of(p, c) == doctest::Approx(6 * (12 + gb * 0.01) + 2 * 12));
  p.part_hour = {0.01, 0.001, 0.1};
  CHECK(cost_of(p, c) == doctest::Approx(6 * (12 + gb * 0.01) + 2 * 12 + 8 * 800 * 0.1));
  c.ssd_gb = 2000;
  c.nic_gbit = 100;
  CHECK(cost_of(p, c) == doctest::Approx(6 * (12 + gb * 0.01 + 2) + 2 * 12 + 8 * 10));
  const auto o = options_of(p, c);
  CHECK(o.hardware.ssd_tokens == static_cast<std::uint64_t>(2000e9 / 327'680));
  CHECK(o.hardware.nic_bytes_per_s == doctest::Approx(12.5e9));
  const auto a = planned(p, records);
  REQUIRE(a.found);
  CHECK(a.cost_per_hour == doctest::Approx(cost_of(p, a.cluster)));
  double in = 0, out = 0;
  for (const auto& r : records) in += r.input_tokens, out += r.output_tokens;
  CHECK(a.cost_per_million_tokens * (in + out) == doctest::Approx(a.cost_per_million_output_tokens * out));
  CHECK(a.cost_per_million_tokens * (in + out) / 1e6 ==
        doctest::Approx(a.cost_per_hour / 3600 * a.trace_lasts_s));
}

TEST_CASE("a longer prompt shares what it shared, and its new text with nobody") {
  std::vector<workload_record> records(2);
  records[0].input_tokens = records[1].input_tokens = 1000;
  records[0].hash_ids = {1, 2};
  records[1].hash_ids = {1, 3};
  const auto longer = lengthened(records, 0.6, 512);
  CHECK(longer[0].input_tokens == 1600);
  REQUIRE(longer[0].hash_ids.size() == 4);
  CHECK(longer[0].hash_ids[0] == longer[1].hash_ids[0]);
  for (int i = 1; i < 4; ++i) CHECK(longer[0].hash_ids[i] != longer[1].hash_ids[i]);
}

TEST_CASE(
    "a price list with a mistake is refused with its line, and a machine without price with those that have "
    "one") {
  const auto detail = [](const char* text) {
    const auto p = parse_prices(text, "p.toml");
    REQUIRE_FALSE(p);
    return p.error().detail;
  };
  CHECK(detail("[node_hour]\na800 = \"much\"\n") == "p.toml:2: a800: a number expected");
  CHECK(detail("[node_hour]\na800 = 0\n").find("p.toml:2: a800: 0 is no price") == 0);
  CHECK(detail("node_hour = 3\n").find("p.toml:1: node_hour: no such key") == 0);
  const auto good =
      parse_prices("currency = \"EUR\"\ncache_gb_hour = 0.01\n[node_hour]\na800 = 3.5\n", "p.toml");
  REQUIRE(good);
  CHECK(*good->price_of("a800") == 3.5);
  CHECK(good->currency == "EUR");
  CHECK(good->price_of("b200").error().detail == "no price for 'b200'; [node_hour] has a800");
  CHECK(kind_name("/some/where/here.toml") == "here");
}

TEST_CASE("a plan's progress says what is done and never more than what is expected in all") {
  auto p = a800_problem(8);
  p.curves = true;
  p.policies = {placement_policy::kvcache_centric, placement_policy::load_balancing};
  std::vector<std::string> phases;
  std::uint64_t most = 0, last = 0;
  const auto a = plan(p, conversation_like(300), [&](const plan_step& at, const plan_cluster& c) {
    if (phases.empty() || phases.back() != at.doing) phases.emplace_back(at.doing);
    CHECK(at.runs == last++);
    CHECK(at.expected > at.runs);
    if (at.runs == 0) CHECK(at.expected > 50);  // it does not begin with "1 of 1"
    CHECK(c.machines() > 0);
    most = std::max(most, at.expected);
  });
  REQUIRE(a);
  CHECK(a->runs == last);
  CHECK(phases == std::vector<std::string>{"machines", "policy, admission, memory, disk, network",
                                           "admission", "other seeds", "what pushes it over",
                                           "what is around it"});
  // An estimate, but no wild one.
  CHECK(most < 2.5 * static_cast<double>(last));
}

TEST_CASE(
    "a plan's curves: the share inside the SLOs falls with the load, and more traffic takes more machines") {
  const auto records = conversation_like(600);
  auto p = a800_problem(32);
  p.goal = plan_goal::nodes;
  p.seeds = 1;
  p.curves = true;
  const auto a = planned(p, records);
  REQUIRE(a.found);
  REQUIRE(a.cliff.size() > 4);
  CHECK(a.cliff.front().share >= p.target);
  CHECK(a.cliff.back().share < a.cliff.front().share);
  REQUIRE(a.sizes.size() > 2);
  plan_judge judge{p, records};
  for (std::size_t i = 0; i < a.sizes.size(); ++i) {
    const auto& s = a.sizes[i];
    CHECK(judge.holds_always(s.cluster, s.load * p.headroom));
    if (i > 0) CHECK(s.cluster.machines() >= a.sizes[i - 1].cluster.machines());
  }
  const auto page = to_html(p, a, "EUR", "A <plan>");
  CHECK(page.find("A &lt;plan>") == std::string::npos);
  CHECK(page.find("<h1>A &lt;plan&gt;</h1>") != std::string::npos);
  CHECK(page.find("<td>Buy</td><td>" + std::to_string(a.cluster.machines()) + " machines: ") !=
        std::string::npos);
  for (const char* outside : {"src=", "href=", "import ", "url("})
    CHECK(page.find(outside) == std::string::npos);
}

TEST_CASE("models are told apart by name, and by the shape of their KV where nobody says one") {
  const auto of = [](const char* name) {
    auto p = builtin_profile(name);
    REQUIRE(p);
    return *p;
  };
  CHECK(serve_one_model(of("a800x8-llama70b"), of("h100x4-llama3-70b-fp8-kv8")));
  CHECK_FALSE(serve_one_model(of("h200-llama8b"), of("h100x2-qwen3-32b")));
  auto unnamed = of("h200-llama8b");
  unnamed.model.clear();
  CHECK(serve_one_model(unnamed, of("h100-llama3-8b")));
  CHECK_FALSE(serve_one_model(unnamed, of("a800x8-llama70b")));
  CHECK(parse_profile(to_toml(of("h200-llama8b")), "p.toml")->model == "llama3-8b");
}
