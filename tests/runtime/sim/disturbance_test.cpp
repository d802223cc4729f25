#include "runtime/sim/disturbance.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "runtime/sim/random.hpp"
#include "runtime/sim/report.hpp"
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

/// Up to four lines that fit the cluster.
std::string random_lines(random_source& random, std::uint32_t prefill, std::uint32_t decode) {
  std::string text;
  for (auto n = 1 + random.below(4); n > 0; --n) {
    text += std::to_string(random.below(200)) + "s " + std::to_string(1 + random.below(120)) + "s ";
    const bool prefills = random.below(2) == 0;
    const auto count = prefills ? prefill : decode;
    const auto whom = (prefills ? "prefill " : "decode ") +
                      (random.below(2) == 0 ? std::string{"all"} : std::to_string(random.below(count)));
    const auto factor = " x" + std::to_string(0.1 + 4 * random.uniform());
    switch (random.below(4)) {
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

}  // namespace

TEST_CASE("whatever goes wrong, every request ends exactly once, and nobody computes who is away") {
  std::size_t absences = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    random_source random{seed};
    const auto prefill = 1 + static_cast<std::uint32_t>(random.below(5));
    const auto decode = 1 + static_cast<std::uint32_t>(random.below(5));
    const auto text = random_lines(random, prefill, decode);
    INFO("seed ", seed, ": ", prefill, " + ", decode, "\n", text);
    auto o = disturbed_cluster(prefill, decode, text);
    o.admission = static_cast<admission_policy>(random.below(8));
    o.policy = static_cast<placement_policy>(random.below(4));
    o.hardware.dram_tokens = 200'000u << random.below(4);
    o.hardware.ssd_tokens = random.below(2) == 0 ? 0 : 1'000'000;
    o.jitter = 0.1;
    simulation s{o};
    const auto out = s.run(*replay_of(conversation_like(400, seed)));
    REQUIRE(out);
    const auto c = out->all();
    CHECK(c.arrived == 400);
    CHECK(c.completed + c.rejected() == c.arrived);
    CHECK(s.live_requests() == 0);
    CHECK(s.conductor().charged_requests() == 0);
    CHECK(out->busiest <= 1 + 1e-9);
    for (const auto& a : out->absences) {
      ++absences;
      const auto column = a.instance + (a.prefill ? 0 : prefill);
      double before = 0;
      for (const auto& row : out->history.rows()) {
        // A row is about the time since the one before.
        if (before >= a.from_s && row.at <= a.until_s) CHECK(row.busy[column] == 0);
        before = row.at;
      }
    }
  }
  CHECK(absences > 20);
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
  CHECK(said("5s 1s break prefill 1") == "d:1: 'break' is none of slow, link, restart, burst");
  CHECK(said("5s 1s slow router 1 x2") == "d:1: 'router' is neither prefill nor decode");
  CHECK(said("5s 1s slow prefill 3-1 x2").find("d:1: '3-1' is not all, a number") == 0);
  CHECK(said("5s 1s slow prefill 1 2") == "d:1: '2' is not x0.001 to x1000: how much");
  CHECK(said("5s 1s restart prefill 1 x2") == "d:1: 'x2' is one word too many");
  for (const char* line : {"5s 1s slow prefill 1 x2.5", "1m 500ms link decode 0-3 x0.1",
                           "1s 2s restart one_by_one prefill all", "1s 2s burst x3.0"}) {
    CHECK(to_string(parsed(line).front()) == to_string(parsed(to_string(parsed(line).front())).front()));
  }
  auto o = a800_cluster(2, 2);
  o.disturbances = parsed("5s 1s slow prefill 2 x2");
  CHECK(check_options(o).error().detail.find("there is no such instance") != std::string::npos);
}
