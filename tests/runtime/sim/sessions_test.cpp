#include <doctest/doctest.h>

#include <array>
#include <map>

#include "runtime/sim/session_workload.hpp"
#include "tests/runtime/sim/world.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

workload_description short_talk() {
  workload_description d;
  d.requests = 800;
  d.requests_per_s = 2;
  d.turns = 4;
  d.think_s = 20;
  d.system_prompts = 2;
  d.system_tokens = 1024;
  d.input_tokens = 1500;
  d.input_spread = 800;
  d.output_tokens = 200;
  d.output_spread = 100;
  return d;
}

/// Hears what a simulation tells a source, and holds both to the rule.
class strict_source final : public trace_source {
 public:
  explicit strict_source(std::unique_ptr<trace_source> inner) : inner_(std::move(inner)) {}
  result<bool> next(workload_record& out) override {
    const double due = inner_->due_s();
    const auto more = inner_->next(out);
    if (more && *more) {
      const auto s = inner_->session_given();
      CHECK_FALSE(open_.contains(s));  // its last turn has ended
      if (ended_.contains(s)) CHECK(due >= ended_[s]);
      open_[s] = true;
      ++given;
    }
    return more;
  }
  bool follows_answers() const override { return inner_->follows_answers(); }
  double due_s() const override { return inner_->due_s(); }
  double share_given() const override { return inner_->share_given(); }
  std::uint64_t session_given() const override { return inner_->session_given(); }
  void answered(std::uint64_t s, double at) override {
    CHECK(open_.erase(s) == 1);
    ended_[s] = at;
    most_open = std::max(most_open, open_.size() + 1);
    inner_->answered(s, at);
  }
  std::uint64_t given = 0;
  std::size_t most_open = 0;

 private:
  std::unique_ptr<trace_source> inner_;
  std::map<std::uint64_t, bool> open_;
  std::map<std::uint64_t, double> ended_;
};

}  // namespace

TEST_CASE(
    "a conversation's next turn comes after the answer, whatever the cluster: all ways to be refused "
    "included") {
  for (const auto admission : {admission_policy::none, admission_policy::early, admission_policy::queue}) {
    for (const auto coupled : {coupled_mode::off, coupled_mode::chunked}) {
      auto o = a800_cluster(2, 1);
      o.admission = admission;
      o.coupled = coupled;
      o.ttft_slo_s = 5;
      o.max_queued = 8;
      strict_source source{play_sessions(short_talk(), {512, 1, 7, 0})};
      simulation s{o};
      const auto out = s.run(source);
      REQUIRE(out);
      CHECK(source.given == 800);
      CHECK(out->all().arrived == 800);
      CHECK(out->all().completed + out->all().rejected() == 800);
      CHECK(s.live_requests() == 0);
    }
  }
}

TEST_CASE("so many users have at most so many requests under way, and slower machines bring less load") {
  auto d = short_talk();
  d.users = 12;
  const auto rate = [&](double slower) {
    auto o = a800_cluster(2, 2);
    o.hardware.costs.decode_constant_s *= slower;
    strict_source source{play_sessions(d, {512, 1, 7, 0})};
    const auto out = simulation{o}.run(source);
    REQUIRE(out);
    CHECK(out->all().completed == 800);
    CHECK(source.most_open <= 12);
    return 800 / out->last_arrival_s;
  };
  CHECK(rate(8) < 0.7 * rate(1));
}

TEST_CASE("a trace of a description has what it says, and is described by it again") {
  auto d = short_talk();
  d.requests = 6000;
  d.input_max = 1'000'000;
  const auto source = play_sessions(d, {64, 1, 3, 0.05});
  std::vector<workload_record> records;
  for (workload_record r; *source->next(r);) {
    if (!records.empty()) CHECK(r.timestamp_ms >= records.back().timestamp_ms);
    CHECK(r.hash_ids.size() == (r.input_tokens + 63) / 64);
    records.push_back(r);
  }
  REQUIRE(records.size() == 6000);
  const auto fit = fit_workload(records, 64, 0.05);
  const auto& f = fit.description;
  CHECK(f.requests_per_s == doctest::Approx(d.requests_per_s).epsilon(0.1));
  CHECK(f.turns == doctest::Approx(d.turns).epsilon(0.1));
  CHECK(f.think_s == doctest::Approx(d.think_s).epsilon(0.1));
  CHECK(f.system_prompts == 2);
  CHECK(f.system_tokens == doctest::Approx(1024).epsilon(0.02));
  CHECK(f.input_tokens == doctest::Approx(d.input_tokens).epsilon(0.05));
  CHECK(f.input_spread == doctest::Approx(d.input_spread).epsilon(0.1));
  CHECK(f.output_tokens == doctest::Approx(d.output_tokens).epsilon(0.05));
  CHECK(f.output_spread == doctest::Approx(d.output_spread).epsilon(0.1));
  const auto again = parse_workload(to_toml(f), "w");
  REQUIRE(again);
  CHECK(to_toml(*again) == to_toml(f));
}

TEST_CASE("a description with a mistake is refused with its line") {
  const auto said = [](const char* text) {
    const auto d = parse_workload(text, "w.toml");
    REQUIRE_FALSE(d);
    return d.error().detail;
  };
  CHECK(said("[workload]\nturn = 3\n") == "w.toml:2: turn: no such key in [workload]");
  CHECK(said("[workload]\nturns = 0\n") == "w.toml:2: turns: 0 is out of range (1.0 to 1000.0)");
  CHECK(said("[workload]\nusers = 1.5\n") == "w.toml:2: users: a whole number expected");
  CHECK(said("requests = 5\n").find("w.toml:1: requests: no such key") == 0);
  CHECK(said("[workload]\nsystem_tokens = 900000\n").find("input_max is less") != std::string::npos);
}

TEST_CASE("conversations begin as the day asks, and its curve reads back") {
  auto d = short_talk();
  d.requests = 50'000;
  d.turns = 1;
  d.think_s = 0;
  d.requests_per_s = 100;
  d.daily = {0.2, 1, 1, 0.2};
  d.day_s = 400;
  const auto source = play_sessions(d, {512, 1, 3, 0.01});
  std::array<int, 4> in_quarter{};
  std::array<int, 4> usual{};
  for (workload_record r; *source->next(r) && r.timestamp_ms < 400'000;)
    ++in_quarter[static_cast<std::size_t>(r.timestamp_ms / 100'000)];
  d.daily.clear();
  const auto flat = play_sessions(d, {512, 1, 3, 0.01});
  for (workload_record r; *flat->next(r) && r.timestamp_ms < 400'000;)
    ++usual[static_cast<std::size_t>(r.timestamp_ms / 100'000)];
  constexpr double share[] = {0.6, 1, 0.6, 0.2};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(in_quarter[i] == doctest::Approx(10'000 * share[i]).epsilon(0.07));
    CHECK(usual[i] == doctest::Approx(10'000).epsilon(0.07));
  }
  d.daily = {0.25, 1.5, 0};
  const auto again = parse_workload(to_toml(d), "w");
  REQUIRE_MESSAGE(again, again.error().detail);
  CHECK(again->daily == d.daily);
  CHECK(again->day_s == d.day_s);
  const auto said = [](const std::string& line) {
    const auto read = parse_workload("[workload]\n" + line + "\n", "w");
    REQUIRE_FALSE(read);
    return read.error().detail;
  };
  CHECK(said("daily = 3") == "w:2: daily: factors in quotes expected, such as \"0.3 0.2 1 0.8\"");
  CHECK(said("daily = \"1 x\"") == "w:2: daily: 'x' is no factor of 0 to 1000");
  CHECK(said("daily = \"1\"") == "w:2: daily: 2 to 1000 factors expected");
  CHECK(said("daily = \"0 0\"").find("somebody has to come") != std::string::npos);
  CHECK(said("daily = \"1 2\"\nusers = 3").find("with users there is none") != std::string::npos);
}
