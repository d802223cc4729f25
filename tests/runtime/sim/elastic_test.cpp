#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "runtime/sim/random.hpp"
#include "runtime/sim/report.hpp"
#include "runtime/sim/running_cost.hpp"
#include "runtime/sim/session_workload.hpp"
#include "tests/runtime/sim/world.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

/// A day of two hours with a busy middle.
workload_description day() {
  workload_description d;
  d.requests = 5000;
  d.requests_per_s = 2;
  d.daily = {0.1, 0.1, 0.4, 1.5, 1.5, 0.4};
  d.day_s = 7200;
  d.input_tokens = 12'000;
  d.input_spread = 6000;
  d.output_tokens = 300;
  d.output_spread = 100;
  return d;
}

outcome run_day(const simulation_options& o) {
  REQUIRE(check_options(o));
  const auto source = play_sessions(day(), {o.hardware.block_tokens, o.speed, o.seed, 0});
  auto out = simulation{o}.run(*source);
  REQUIRE(out);
  return std::move(*out);
}

simulation_options scaled() {
  auto o = a800_cluster(2, 2);
  o.ttft_slo_s = 10;
  o.elastic.prefill = {1, 10};
  o.elastic.decode = {1, 6};
  o.elastic.start_s = 60;
  o.price = {10, 5, "EUR"};
  return o;
}

/// Machines of a role that are paid for when a change has happened.
void follow(const machine_change& c, std::map<std::uint32_t, bool>& paid) {
  if (c.what == change_kind::starts) {
    CHECK_FALSE(paid[c.instance]);
    paid[c.instance] = true;
  } else {
    CHECK(paid[c.instance]);
    if (c.what == change_kind::stops) paid[c.instance] = false;
  }
}

}  // namespace

TEST_CASE(
    "a cluster that scales costs less than its peak and keeps the SLOs that a fixed one of its mean misses") {
  const auto o = scaled();
  const auto out = run_day(o);
  const auto cost = cost_of(o, out);
  CHECK(out.all().completed == 5000);
  CHECK(out.slo_share() > 0.9);
  CHECK(cost.machine_hours < 0.75 * cost.peak_hours);
  auto fixed = a800_cluster(static_cast<std::uint32_t>(out.prefill_machine_s / out.span_s + 0.5),
                            static_cast<std::uint32_t>(out.decode_machine_s / out.span_s + 0.5));
  fixed.ttft_slo_s = 10;
  CHECK(run_day(fixed).slo_share() < out.slo_share() - 0.05);
  auto late = o;
  late.elastic.start_s = 900;
  CHECK(run_day(late).slo_share() < out.slo_share());
}

TEST_CASE("what is paid adds up from the changes, and nobody serves before the start-up time is over") {
  const auto o = scaled();
  const auto out = run_day(o);
  std::map<worker_role, std::map<std::uint32_t, bool>> paid;
  std::map<std::pair<worker_role, std::uint32_t>, double> since;
  double sum = 0;
  for (std::uint32_t i = 0; i < 2; ++i) {
    for (const auto role : {worker_role::prefill, worker_role::decode}) {
      paid[role][i] = true;
      since[{role, i}] = out.began_s;
    }
  }
  for (const auto& c : out.changes) {
    follow(c, paid[c.role]);
    auto& from = since[{c.role, c.instance}];
    if (c.what == change_kind::starts) from = c.at_s;
    if (c.what == change_kind::stops) sum += c.at_s - from;
  }
  for (const auto& [role, instances] : paid) {
    for (const auto& [i, yes] : instances) sum += yes ? out.began_s + out.span_s - since[{role, i}] : 0;
  }
  CHECK(sum == doctest::Approx(out.prefill_machine_s + out.decode_machine_s).epsilon(1e-6));
  const auto cost = cost_of(o, out);
  CHECK(cost.total == doctest::Approx((out.prefill_machine_s * 10 + out.decode_machine_s * 5) / 3600));
  CHECK(cost.per_million_tokens * static_cast<double>(out.prompt_tokens + out.output_tokens) * 1e-6 ==
        doctest::Approx(cost.total));
  std::map<std::pair<worker_role, std::uint32_t>, double> starts;
  for (const auto& c : out.changes) {
    if (c.what == change_kind::starts) starts[{c.role, c.instance}] = c.at_s;
    const auto asked = starts.find({c.role, c.instance});
    if (c.what != change_kind::serves || asked == starts.end()) continue;
    CHECK(c.at_s - asked->second >= 60 - 1e-6);
  }
  CHECK(out.most_prefill <= 10);
  CHECK(out.most_decode <= 6);
  const auto table = to_table(o, out);
  CHECK(table.find("the peak's, always ") != std::string::npos);
  CHECK(table.find(" EUR: ") != std::string::npos);
}

TEST_CASE("machines that switch roles follow a load that changes its kind, and none is lost or gained") {
  // Long prompts and short answers, then the other way round.
  std::vector<workload_record> records(2400);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const bool early = i < records.size() / 2;
    records[i].timestamp_ms = static_cast<std::int64_t>(i) * 500;
    records[i].input_tokens = early ? 20'000 : 600;
    records[i].output_tokens = early ? 10 : 1200;
  }
  auto o = a800_cluster(4, 4);
  o.hardware.max_batch = 64;
  o.ttft_slo_s = 5;
  const auto fixed = run(o, records);
  o.elastic.switch_roles = true;
  const auto out = run(o, records);
  CHECK(out.all().completed == records.size());
  CHECK(out.slo_share() > fixed.slo_share());
  const auto stops = std::ranges::count(out.changes, change_kind::stops, &machine_change::what);
  CHECK(stops > 1);
  for (const auto& row : out.history.rows()) {
    CHECK(row.prefill_serving + row.decode_serving <= 8 + 1e-9);
    CHECK(row.paid <= 8 + 1e-9);
    CHECK(row.prefill_serving >= 1);
    CHECK(row.decode_serving >= 1);
  }
  CHECK(out.prefill_machine_s + out.decode_machine_s == doctest::Approx(8 * out.span_s).epsilon(1e-6));
}

TEST_CASE("coupled nodes scale with the load, and what is paid is the sum over the changes") {
  auto o = a800_cluster(2, 2);
  o.coupled = coupled_mode::chunked;
  o.coupled_chunk = 512;
  o.ttft_slo_s = 10;
  o.elastic.nodes = {1, 16};
  o.elastic.start_s = 60;
  const auto out = run_day(o);
  CHECK(out.all().completed == 5000);
  CHECK(out.most_prefill > 4);
  CHECK(out.most_prefill <= 16);
  CHECK(out.most_decode == 0);
  std::map<std::uint32_t, double> since;
  for (std::uint32_t i = 0; i < 4; ++i) since[i] = out.began_s;
  double sum = 0;
  for (const auto& c : out.changes) {
    CHECK(c.role == worker_role::node);
    if (c.what == change_kind::starts) since[c.instance] = c.at_s;
    if (c.what != change_kind::stops) continue;
    sum += c.at_s - since.at(c.instance);
    since.erase(c.instance);
  }
  for (const auto& [node, from] : since) sum += out.began_s + out.span_s - from;
  CHECK(sum == doctest::Approx(out.prefill_machine_s).epsilon(1e-6));
  CHECK(out.prefill_machine_s < 0.8 * out.most_prefill * out.span_s);
  // A cluster that stays as large as it was on average misses more.
  auto fixed = a800_cluster(static_cast<std::uint32_t>(out.prefill_machine_s / out.span_s + 0.5), 0);
  fixed.coupled = o.coupled;
  fixed.coupled_chunk = o.coupled_chunk;
  fixed.ttft_slo_s = 10;
  CHECK(run_day(fixed).slo_share() < out.slo_share());
  CHECK(to_table(o, out).find(" coupled on average, ") != std::string::npos);
}

TEST_CASE("where both roles scale and may switch, a machine goes over sooner than a new one starts") {
  // Long prompts and short answers, then the other way round.
  std::vector<workload_record> records(2400);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const bool early = i < records.size() / 2;
    records[i].timestamp_ms = static_cast<std::int64_t>(i) * 500;
    records[i].input_tokens = early ? 20'000 : 600;
    records[i].output_tokens = early ? 10 : 1200;
  }
  auto o = a800_cluster(4, 1);
  o.hardware.max_batch = 64;
  o.ttft_slo_s = 5;
  o.elastic.prefill = {1, 8};
  o.elastic.decode = {1, 8};
  o.elastic.start_s = 600;
  o.elastic.down_after_s = 30;
  const auto alone = run(o, records);
  o.elastic.switch_roles = true;
  o.elastic.switch_s = 20;
  const auto both = run(o, records);
  CHECK(both.all().completed == records.size());
  CHECK(both.slo_share() > alone.slo_share());
  // Who switches stops in one role and starts in the other at that moment.
  const auto switched = std::ranges::count_if(both.changes, [&](const machine_change& c) {
    return c.what == change_kind::stops && std::ranges::any_of(both.changes, [&](const machine_change& d) {
             return d.what == change_kind::starts && d.at_s == c.at_s && d.role != c.role;
           });
  });
  CHECK(switched > 0);
  for (const auto& row : both.history.rows()) {
    CHECK(row.prefill_serving <= 8);
    CHECK(row.decode_serving <= 8);
  }
}

TEST_CASE("clusters that cannot change as they are told are refused with the reason") {
  const auto said = [](auto&& change) {
    auto o = a800_cluster(4, 4);
    change(o);
    const auto fit = check_options(o);
    REQUIRE_FALSE(fit);
    return fit.error().detail;
  };
  CHECK(said([](auto& o) {
          o.elastic.prefill = {1, 3};
        }) == "the cluster begins with 4 prefill, which is not within 1 to 3");
  CHECK(said([](auto& o) {
          o.elastic.prefill = {1, 8};
          o.elastic.switch_roles = true;
        }).find("a range for both roles") != std::string::npos);
  CHECK(said([](auto& o) { o.elastic.nodes = {1, 8}; }).find("only coupled nodes") != std::string::npos);
  CHECK(said([](auto& o) {
          o.elastic.prefill = {1, 8};
          o.coupled = coupled_mode::chunked;
        }).find("scaled together") != std::string::npos);
  CHECK(said([](auto& o) {
          o.elastic.switch_roles = true;
          o.pipeline = 2;
        }).find("single machines") != std::string::npos);
  CHECK(said([](auto& o) {
          o.elastic.switch_roles = true;
          o.coupled = coupled_mode::chunked;
        }).find("no roles to switch") != std::string::npos);
}
