// The last minutes, played again: whether a play finds what really happened, and what admission makes of it.

#include "runtime/sim/shadow_play.hpp"

#include <map>

#include "runtime/sched/shadow_core.hpp"
#include "tests/bench/sim_hindsight.hpp"
#include "tests/runtime/sim/world.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

/// Agents beyond what the cluster carries: whether a turn is refused decides what the next one finds in the cache.
family_member crowded(std::uint64_t seed, double speed, std::uint64_t requests = 3000) {
  family_member m;
  m.options = a800_cluster(4, 4);
  m.options.ttft_slo_s = 10;
  m.options.tbt_slo_s = 0.07;
  m.options.max_tokens = 8192;
  m.options.jitter = 0.13;
  m.options.speed = speed;
  m.options.prefill_calibration = 1.69;  // the scheduler is told something else than what is
  m.options.decode_calibration = 1.47;
  m.workload.kind = workload_kind::agent;
  m.workload.requests = requests;
  m.workload.rate = 10;
  m.workload.seed = seed;
  m.records = all_of(m.workload);
  return m;
}

double share_of(const family_member& m, const admission_rule& rule) {
  auto o = m.options;
  o.admission = rule.policy;
  o.slo_share = rule.slo_share;
  return run(o, m.records).slo_share();
}

/// What the conductor of such a run remembers at its end; the queue was in force all the time.
shadow_question remembered(const family_member& m) {
  auto o = m.options;
  o.admission = admission_policy::adaptive;
  o.shadow_every_s = 1e6;
  simulation lived{o};
  REQUIRE(lived.run(*replay_of(m.records)));
  return recall(lived.conductor(), time_point{from_seconds(1e4)});
}

}  // namespace

TEST_CASE(
    "a play of what a conductor remembers finds the share that each rule really keeps inside its SLOs") {
  const auto m = crowded(3, 2.2);
  const auto question = remembered(m);
  REQUIRE(question.worth_playing());
  const auto rules = rules_to_play();
  for (const auto& p : play_rules(question, rules)) {
    const double played = static_cast<double>(p.met) / static_cast<double>(p.judged);
    const double truth = share_of(m, p.rule);
    INFO(text_of(p.rule), ": played ", played, ", in truth ", truth);
    // The whole run begins with empty caches, the minutes that are remembered do not.
    CHECK(played == doctest::Approx(truth).epsilon(0.15));
  }
}

TEST_CASE(
    "the requests of a play are those that came, with their prefixes; other laps have blocks of their own") {
  const auto m = crowded(5, 1);
  const auto question = remembered(m);
  const shadow_play play{question};
  const auto& played = play.records();
  CHECK(played.size() > 1.5 * static_cast<double>(question.requests.size()));
  CHECK(played.size() < 1.9 * static_cast<double>(question.requests.size()));
  std::size_t judged = 0;
  std::map<std::uint64_t, std::uint64_t> prompts;  // first blocks by how often they are one
  for (std::size_t i = 0; i < played.size(); ++i) {
    if (i > 0) CHECK(played[i].timestamp_ms >= played[i - 1].timestamp_ms);
    const double at = static_cast<double>(played[i].timestamp_ms) * 1e-3;
    judged += at >= play.options().judged_from_s && at < play.options().judged_to_s;
    if (!played[i].hash_ids.empty()) ++prompts[played[i].hash_ids.front()];
  }
  CHECK(judged == question.requests.size());
  CHECK(prompts.size() > 80);  // 40 system prompts, three laps
  CHECK(prompts.size() <= 120);
}

TEST_CASE("a rule that is better for a workload is found, and costs little where there is none") {
  // Wait for a place until late, or refuse at once: on this one refusing is ahead.
  std::string changes;
  auto m = member_of_wide_family(2030, 800, changes);
  auto o = m.options;
  o.admission = admission_policy::adaptive;
  const auto adapted = run(o, m.records);
  const double queue = share_of(m, {admission_policy::queue}),
               priced = share_of(m, {admission_policy::priced});
  INFO("queue ", queue, ", priced ", priced, ", adaptive ", adapted.slo_share());
  CHECK(priced > 1.05 * queue);
  CHECK(adapted.slo_share() > queue + 0.6 * (priced - queue));
  CHECK_FALSE(adapted.rules.empty());

  const auto light = crowded(7, 0.5, 800);
  o = light.options;
  o.admission = admission_policy::adaptive;
  CHECK(run(o, light.records).slo_share() >= 0.99 * share_of(light, {admission_policy::queue}));
}

TEST_CASE("plays that find nothing better leave a run as it would be without them, bit by bit") {
  std::string changes;
  const auto m = member_of_wide_family(5006, 800, changes);
  auto o = m.options;
  o.admission = admission_policy::queue;
  const auto fixed = run(o, m.records);
  o.admission = admission_policy::adaptive;
  const auto adapted = run(o, m.records);
  REQUIRE(adapted.rules.empty());
  CHECK(adapted.all().slo_met == fixed.all().slo_met);
  CHECK(adapted.span_s == fixed.span_s);
  CHECK(adapted.ttft.mean() == fixed.ttft.mean());
}

TEST_CASE("what one more instance or more requests would be worth is what they really are worth") {
  auto m = crowded(3, 2.2);
  const auto question = remembered(m);
  const auto played = play_all(question, {}, [] { return false; });
  REQUIRE(played.what_ifs.size() == 5);
  const double now = share_of(m, question.rule);
  for (const auto& p : played.what_ifs) {
    auto other = m;
    auto& there = other.options;
    switch (p.what) {
      case what_if::more_prefill:
        ++there.prefill;
        break;
      case what_if::more_decode:
        ++there.decode;
        break;
      case what_if::prefill_decodes:
        --there.prefill, ++there.decode;
        break;
      case what_if::decode_prefills:
        ++there.prefill, --there.decode;
        break;
      case what_if::more_load:
        there.speed *= 1.1;
        break;
    }
    const double share = static_cast<double>(p.met) / static_cast<double>(p.judged);
    const double truth = share_of(other, question.rule);
    INFO(to_string(p.what), ": played ", share, ", in truth ", truth, ", now ", now);
    CHECK(share == doctest::Approx(truth).epsilon(0.15));
  }
  CHECK(play_all(question, rules_to_play(), [] { return true; }).rules.empty());

  auto alone = question;
  alone.prefill.resize(1);
  alone.decode = 1;
  const shadow_play small{alone};
  CHECK_FALSE(small.with(what_if::prefill_decodes, {}));
  CHECK_FALSE(small.with(what_if::decode_prefills, {}));
  CHECK(small.with(what_if::more_decode, {}));
}
