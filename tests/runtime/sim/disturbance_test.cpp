#include "runtime/sim/disturbance.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "runtime/sim/random.hpp"
#include "runtime/sim/report.hpp"
#include "runtime/sim/running_cost.hpp"
#include "runtime/sim/session_workload.hpp"
#include "tests/runtime/sim/world.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

std::vector<disturbance> parsed(const std::string& text) {
  auto all = parse_disturbances(text, "d");
  REQUIRE_MESSAGE(all, all.error().detail);
  return std::move(*all);
}

simulation_options disturbed_cluster(std::uint32_t prefill, std::uint32_t decode, const std::string& text) {
  auto o = a800_cluster(prefill, decode);
  o.disturbances = parsed(text);
  REQUIRE(check_options(o));
  return o;
}

std::string seconds(std::uint64_t s) { return std::to_string(s) + "s"; }

/// Up to six lines that fit the cluster.
std::string random_lines(random_source& random, std::uint32_t prefill, std::uint32_t decode, bool coupled) {
  std::string text;
  for (auto n = 1 + random.below(6); n > 0; --n) {
    text += seconds(random.below(200)) + " " + seconds(1 + random.below(120)) + " ";
    const bool prefills = random.below(2) == 0;
    const auto count = coupled ? prefill + decode : prefills ? prefill : decode;
    const auto whom = std::string{coupled    ? "node "
                                  : prefills ? "prefill "
                                             : "decode "} +
                      (random.below(2) == 0 ? std::string{"all"} : std::to_string(random.below(count)));
    const auto factor = " x" + std::to_string(0.1 + 4 * random.uniform());
    const auto unseen = random.below(2) == 0 ? "" : " unseen " + seconds(1 + random.below(20));
    switch (random.below(6)) {
      case 4:
        text += "fail " + whom + unseen;
        break;
      case 5:
        text += "fail " + whom + " mtbf " + seconds(10 + random.below(100)) + " mttr " +
                seconds(1 + random.below(60)) + unseen;
        break;
      case 0:
        text += "slow " + whom + factor;
        break;
      case 1:
        text += "link " + whom + factor;
        break;
      case 2:
        text += (random.below(2) == 0 ? "restart one_by_one " : "restart ") + whom;
        break;
      default:
        text += "burst" + factor;
    }
    text += "\n";
  }
  return text;
}

/// What goes wrong, in a cluster that may be coupled, scale, or switch roles: all of it follows from the
/// seed.
simulation_options random_world(std::uint64_t seed, std::string& text) {
  random_source random{seed};
  const auto prefill = 1 + static_cast<std::uint32_t>(random.below(5));
  const auto decode = 1 + static_cast<std::uint32_t>(random.below(5));
  auto o = a800_cluster(prefill, decode);
  if (random.below(3) == 0) o.coupled = static_cast<coupled_mode>(1 + random.below(3));
  const bool coupled = o.coupled != coupled_mode::off;
  text = random_lines(random, prefill, decode, coupled);
  o.disturbances = parsed(text);
  if (!coupled) o.pipeline = 1 + static_cast<std::uint32_t>(random.below(3));
  const auto range = [&](std::uint32_t now) {
    return instance_range{1 + static_cast<std::uint32_t>(random.below(now)),
                          now + static_cast<std::uint32_t>(random.below(5))};
  };
  switch (random.below(5)) {
    case 1:
      if (coupled) break;
      o.elastic.switch_roles = true;
      o.pipeline = 1;
      break;
    case 2:
      if (!coupled) o.elastic.prefill = range(prefill);
      else o.elastic.nodes = range(prefill + decode);
      break;
    case 3:
    case 4:  // as many of either role as it takes, without and with giving machines from one to the other
      if (coupled) break;
      o.elastic.prefill = range(prefill);
      o.elastic.decode = range(decode);
      o.elastic.switch_roles = random.below(2) == 0;
      if (o.elastic.switch_roles) o.pipeline = 1;
  }
  o.elastic.start_s = 30 * random.uniform();
  o.elastic.switch_s = 30 * random.uniform();
  o.elastic.target = 0.2 + random.uniform();
  o.elastic.down_after_s = 60 * random.uniform();
  o.elastic.every_s = 1 + 10 * random.uniform();
  o.admission = static_cast<admission_policy>(random.below(8));
  o.policy = static_cast<placement_policy>(random.below(4));
  o.hardware.dram_tokens = 200'000u << random.below(4);
  o.hardware.ssd_tokens = random.below(2) == 0 ? 0 : 1'000'000;
  o.hardware.device_link_bytes_per_s = random.below(2) == 0 ? 0 : 20e9;
  o.jitter = 0.1;
  o.seed = seed;
  o.price = {12, 7, "EUR"};
  return o;
}

/// A trace, or conversations that wait for their answers, as they come or with a number of users.
std::unique_ptr<trace_source> random_source_of(std::uint64_t seed, std::uint32_t block_tokens,
                                               const std::vector<workload_record>& records) {
  random_source random{~seed};
  workload_description d;
  d.requests = 400;
  d.requests_per_s = 3;
  d.turns = 1 + 4 * random.uniform();
  d.think_s = 10;
  d.input_tokens = 8000;
  d.input_spread = 4000;
  switch (random.below(4)) {
    case 0:
      d.users = 1 + static_cast<std::uint32_t>(random.below(60));
      break;
    case 1:
      d.daily = {0.2, 2, 1};
      d.day_s = 100;
      break;
    default:
      return replay_of(records);
  }
  return play_sessions(d, {block_tokens, 1, seed, 0});
}

/// Seconds of machines, from when they were asked for and let go.
double paid_seconds(const simulation_options& o, const outcome& out, worker_role role, std::uint32_t begin) {
  double sum = begin * out.span_s;
  const double end = out.began_s + out.span_s;
  for (const auto& c : out.changes) {
    if (c.role != role) continue;
    if (c.what == change_kind::starts) sum += end - c.at_s;
    if (c.what == change_kind::stops) sum -= end - c.at_s;
  }
  return sum * (role == worker_role::prefill ? o.pipeline : 1);
}

void check_costs(const simulation_options& o, const outcome& out) {
  if (o.coupled != coupled_mode::off) {
    CHECK(out.prefill_machine_s ==
          doctest::Approx(paid_seconds(o, out, worker_role::node, o.prefill + o.decode)));
    CHECK(out.decode_machine_s == 0);
  } else {
    CHECK(out.prefill_machine_s == doctest::Approx(paid_seconds(o, out, worker_role::prefill, o.prefill)));
    CHECK(out.decode_machine_s == doctest::Approx(paid_seconds(o, out, worker_role::decode, o.decode)));
  }
  const auto cost = cost_of(o, out);
  CHECK(cost.total == doctest::Approx((out.prefill_machine_s * 12 + out.decode_machine_s * 7) / 3600));
  CHECK(cost.total <= cost.peak_total * (1 + 1e-9));
  CHECK(cost.machine_hours <= cost.peak_hours * (1 + 1e-9));
}

/// An instance computes nothing meanwhile. Seconds on the clock of the history.
void check_idle(const outcome& out, worker_role role, std::uint32_t instance, double from, double until) {
  const auto column = instance + (role == worker_role::decode ? out.prefill_instances : 0);
  double before = 0;
  for (const auto& row : out.history.rows()) {
    INFO("role ", static_cast<int>(role), " instance ", instance, " from ", from, " until ", until, " row ",
         before, "..", row.at);
    // A row is about the time since the one before; what happens at its very ends may be told in either.
    if (before > from && row.at < until) CHECK(row.busy[column] == 0);
    before = row.at;
  }
}

/// Nobody computes who is away or dead, let go, or not there yet.
void check_absences(const outcome& out) {
  for (const auto& a : out.absences) check_idle(out, a.role, a.instance, a.from_s, a.until_s);
  for (auto gone = out.changes.begin(); gone != out.changes.end(); ++gone) {
    if (gone->what != change_kind::stops) continue;
    const auto back = std::find_if(gone, out.changes.end(), [&](const machine_change& c) {
      return c.role == gone->role && c.instance == gone->instance && c.what == change_kind::serves;
    });
    const double until = back == out.changes.end() ? out.began_s + out.span_s : back->at_s;
    check_idle(out, gone->role, gone->instance, gone->at_s, until);
  }
}

}  // namespace

TEST_CASE("whatever goes wrong and changes, requests end once, the dead compute nothing, and costs add up") {
  std::size_t absences = 0, failures = 0, failed = 0, resumed = 0, changes = 0;
  std::size_t of_nodes = 0, of_both = 0;  // changes of coupled nodes; where roles switch and scale together
  const char* only = std::getenv("MOONCAF_SIM_SEED");  // plays one of them again
  const auto first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const auto last = only != nullptr ? first : 400;
  for (auto seed = first; seed <= last; ++seed) {
    std::string text;
    const auto o = random_world(seed, text);
    INFO("seed ", seed, ": ", describe(o), std::string{o.elastic.switch_roles ? ", roles switch" : ""},
         std::string{o.elastic.scales() ? ", scales" : ""}, "\n", text);
    REQUIRE(check_options(o));
    simulation s{o};
    const auto records = conversation_like(400, seed);
    const auto out = s.run(*random_source_of(seed, o.hardware.block_tokens, records));
    REQUIRE(out);
    const auto c = out->all();
    CHECK(c.arrived == 400);
    CHECK(c.completed + c.rejected() + c.failed == c.arrived);
    CHECK(s.live_requests() == 0);
    CHECK(s.conductor().charged_requests() == 0);
    CHECK(out->busiest <= 1 + 1e-9);
    CHECK(out->ttft.count() <= c.arrived);
    CHECK(out->computed_tokens <= out->prompt_tokens);
    check_costs(o, *out);
    check_absences(*out);
    failed += c.failed;
    resumed += out->pause.count();
    absences += out->absences.size();
    changes += out->changes.size();
    if (o.elastic.nodes.most > 0) of_nodes += out->changes.size();
    if (o.elastic.switch_roles && o.elastic.scales()) of_both += out->changes.size();
    for (const auto& a : out->absences) failures += a.failed;
  }
  if (only != nullptr) return;
  CHECK(absences > 1000);
  CHECK(failures > 800);
  CHECK(failed > 0);
  CHECK(resumed > 1000);
  CHECK(changes > 1000);
  CHECK(of_nodes > 100);
  CHECK(of_both > 100);
}

TEST_CASE("random failures and scaling follow from the seed, byte by byte") {
  const auto records = conversation_like(300);
  for (const std::uint64_t seed : {3, 14, 15, 92}) {
    std::string text;
    const auto o = random_world(seed, text);
    INFO("seed ", seed, "\n", text);
    CHECK(to_json(o, run(o, records)) == to_json(o, run(o, records)));
  }
}

TEST_CASE("the same disturbances give the same bytes, and those after the last request change nothing") {
  const auto records = conversation_like(300);
  const auto o = disturbed_cluster(3, 2, "20s 30s slow prefill 1 x3\n40s 10s restart decode 0\n");
  CHECK(to_json(o, run(o, records)) == to_json(o, run(o, records)));
  const auto late = disturbed_cluster(3, 2, "90000s 30s slow prefill 1 x3\n");
  CHECK(run(late, records).span_s == run(a800_cluster(3, 2), records).span_s);
}

TEST_CASE("slow decode makes gaps longer while it lasts, a slow link the hand-over") {
  const auto records = conversation_like(300);
  const auto usual = run(a800_cluster(4, 4), records);
  const auto slow = run(disturbed_cluster(4, 4, "0s 100000s slow decode all x3\n"), records);
  CHECK(slow.gap.mean() > 2.9 * usual.gap.mean());
  const auto first_half = run(disturbed_cluster(4, 4, "0s 45s slow decode all x3\n"), records);
  CHECK(first_half.gap.mean() > 1.2 * usual.gap.mean());
  CHECK(first_half.gap.mean() < 0.9 * slow.gap.mean());
  const auto link = run(disturbed_cluster(4, 4, "0s 100000s link decode all x0.01\n"), records);
  CHECK(link.handover.mean() > 2 * usual.handover.mean());
  CHECK(link.gap.mean() < 1.2 * usual.gap.mean());
}

TEST_CASE(
    "a rolling restart loses no request, takes one instance after the other, and their memory with them") {
  const auto records = conversation_like(800);
  const auto usual = run(a800_cluster(4, 4), records);
  const auto rolled = run(disturbed_cluster(4, 4, "60s 20s restart one_by_one prefill all\n"), records);
  CHECK(rolled.all().completed == 800);
  REQUIRE(rolled.absences.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& a = rolled.absences[i];
    CHECK(a.instance == i);
    CHECK(a.until_s - a.from_s == doctest::Approx(20));
    if (i > 0) CHECK(a.from_s >= rolled.absences[i - 1].until_s);
  }
  CHECK(rolled.hit_share() < usual.hit_share());
  CHECK(rolled.ttft.mean() > usual.ttft.mean());
  const auto table = to_table(disturbed_cluster(4, 4, "60s 20s restart one_by_one prefill all\n"), rolled);
  CHECK(table.find("disturbed            60s 20s restart one_by_one prefill all\naway ") !=
        std::string::npos);
}

TEST_CASE("a burst plays the trace faster for a while: what comes after it comes earlier by what was saved") {
  const auto all = parsed("100s 10s burst x3\n200s 10s burst x2  # and again\n");
  CHECK(with_bursts(all, 50) == 50);
  CHECK(with_bursts(all, 115) == doctest::Approx(105));
  CHECK(with_bursts(all, 130) == doctest::Approx(110));
  CHECK(with_bursts(all, 200) == doctest::Approx(180));
  CHECK(with_bursts(all, 300) == doctest::Approx(270));
}

TEST_CASE("a line that is none is refused with its number and what is wrong, and reads back as it is shown") {
  const auto said = [](const std::string& text) {
    const auto all = parse_disturbances(text, "d");
    REQUIRE_FALSE(all);
    return all.error().detail;
  };
  CHECK(said("# nothing\n\n5 60s slow prefill 1 x2\n") ==
        "d:3: '5' is not a time of at most 250h with its unit: when it begins");
  CHECK(said("5s 0s slow prefill 1 x2") == "d:1: it must last longer than 0s");
  CHECK(said("5s 1s break prefill 1") == "d:1: 'break' is none of slow, link, restart, burst, fail");
  CHECK(said("5s 1s slow router 1 x2") == "d:1: 'router' is none of prefill, decode, node");
  CHECK(said("5s 1s fail prefill 1 mtbf 20s").find("d:1: mtbf TIME needs mttr TIME") == 0);
  CHECK(said("5s 1s fail prefill 1 mtbf 1ms mttr 1s") == "d:1: mtbf and mttr must be at least 1s");
  CHECK(said("5s 1s fail prefill 1 unseen x") ==
        "d:1: 'x' is not a time of at most 250h with its unit: how long nobody notices");
  CHECK(said("5s 1s slow prefill 3-1 x2").find("d:1: '3-1' is not all, a number") == 0);
  CHECK(said("5s 1s slow prefill 1 2") == "d:1: '2' is not x0.001 to x1000: how much");
  CHECK(said("5s 1s restart prefill 1 x2") == "d:1: 'x2' is one word too many");
  for (const char* line :
       {"5s 1s slow prefill 1 x2.5", "1m 500ms link decode 0-3 x0.1", "1s 2s restart one_by_one prefill all",
        "1s 2s burst x3.0", "1s 2s slow node 1 x2", "1s 2s fail decode 1-2 unseen 15s",
        "1s 2h fail node all mtbf 30m mttr 90s unseen 1s"}) {
    CHECK(to_string(parsed(line).front()) == to_string(parsed(to_string(parsed(line).front())).front()));
  }
  auto o = a800_cluster(2, 2);
  o.disturbances = parsed("5s 1s slow prefill 2 x2");
  CHECK(check_options(o).error().detail.find("there is no such instance") != std::string::npos);
  o.disturbances = parsed("5s 1s slow prefill 0-2 x2");
  CHECK(check_options(o).error().detail.find("there is no such instance: 0 to 1 are there") !=
        std::string::npos);
  o.disturbances = parsed("5s 1s slow prefill all x2");
  CHECK(check_options(o));
  o.disturbances = parsed("5s 1s slow node 1 x2");
  CHECK(check_options(o).error().detail.find("no node is both") != std::string::npos);
  o.coupled = coupled_mode::chunked;
  CHECK(check_options(o));
  o.disturbances = parsed("5s 1s slow prefill 1 x2");
  CHECK(check_options(o).error().detail.find("coupled nodes are called node") != std::string::npos);
}

TEST_CASE("who dies in mid-answer is answered after a pause, with the tokens it had") {
  const auto records = conversation_like(400);
  std::uint64_t tokens = 0;
  for (const auto& r : records) tokens += r.output_tokens;
  const auto usual = run(a800_cluster(4, 4), records);
  CHECK(usual.output_tokens == tokens);
  const auto died = run(disturbed_cluster(4, 4, "60s 30s fail decode 1\n"), records);
  CHECK(died.all().completed == 400);
  CHECK(died.output_tokens == tokens);  // none twice, none left out
  CHECK(died.ttft.count() == 400);
  CHECK(died.attempts_lost > 0);
  CHECK(died.pause.count() > 0);
  CHECK(died.pause.max() < 30);
  CHECK(died.prompt_tokens > usual.prompt_tokens);  // lost ones are prefilled again
  REQUIRE(died.absences.size() == 1);
  CHECK(died.absences[0].failed);
  CHECK(died.absences[0].until_s - died.absences[0].from_s == doctest::Approx(30));
}

TEST_CASE("a machine that falls silent costs more than one whose connections break") {
  const auto records = conversation_like(400);
  const auto seen = run(disturbed_cluster(4, 4, "60s 2m fail decode 1\n"), records);
  const auto silent = run(disturbed_cluster(4, 4, "60s 2m fail decode 1 unseen 15s\n"), records);
  CHECK(silent.all().completed == 400);
  CHECK(silent.pause.max() > 15);
  CHECK(silent.attempts_lost > seen.attempts_lost);  // more were sent there meanwhile
  CHECK(silent.all().slo_met < seen.all().slo_met);
}

TEST_CASE("a prefill machine dies with its cache, and comes back without it") {
  const auto records = conversation_like(800);
  const auto usual = run(a800_cluster(2, 4), records);
  const auto died = run(disturbed_cluster(2, 4, "100s 20s fail prefill 0\n"), records);
  CHECK(died.all().completed == 800);
  CHECK(died.hit_share() < usual.hit_share());
  CHECK(died.computed_tokens > usual.computed_tokens);
}

TEST_CASE(
    "without an instance requests wait a quarter of a minute, and are told so then, as by the gateway") {
  const auto records = conversation_like(300);
  const auto short_one = run(disturbed_cluster(1, 2, "30s 10s fail prefill 0\n"), records);
  CHECK(short_one.all().completed == 300);
  const auto long_one = run(disturbed_cluster(1, 2, "30s 40s fail prefill 0\n"), records);
  CHECK(long_one.all().rejected_placement > 0);
  CHECK(long_one.all().completed + long_one.all().rejected_placement == 300);
  // Answers that had begun wait as long as it takes.
  const auto decode = run(disturbed_cluster(2, 1, "30s 40s fail decode 0\n"), records);
  CHECK(decode.pause.max() > 40);
  CHECK(decode.all().failed == 0);
}

TEST_CASE("whoever kills four machines is not given a fifth") {
  std::string text;
  for (unsigned i = 0; i < 8; ++i) text.append(seconds(10 + 5 * i)).append(" 1s fail decode all\n");
  std::vector<workload_record> records(1);
  records[0].input_tokens = 1000;
  records[0].output_tokens = 4000;
  auto o = disturbed_cluster(2, 2, text);
  o.max_tokens = 4096;
  const auto out = run(o, records);
  CHECK(out.all().failed == 1);
  CHECK(out.attempts_lost == 4);
}

TEST_CASE("coupled nodes are slow, restart and die") {
  const auto records = conversation_like(400);
  auto o = a800_cluster(3, 3);
  o.coupled = coupled_mode::chunked;
  const auto usual = run(o, records);
  o.disturbances = parsed("0s 10000s slow node all x2\n");
  CHECK(run(o, records).gap.mean() > 1.5 * usual.gap.mean());
  o.disturbances = parsed("5s 2s restart one_by_one node all\n");
  const auto rolled = run(o, records);
  CHECK(rolled.absences.size() == 6);
  CHECK(rolled.all().completed == 400);
  CHECK(rolled.attempts_lost == 0);
  o.disturbances = parsed("60s 20s fail node 0-2\n");
  const auto died = run(o, records);
  CHECK(died.absences.size() == 3);
  CHECK(died.all().completed == 400);
  CHECK(died.output_tokens == usual.output_tokens);
  CHECK(died.attempts_lost > 0);
}
