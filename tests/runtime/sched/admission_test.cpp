#include "runtime/sched/admission.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>

#include "runtime/sched/journal/explain.hpp"
#include "tests/runtime/sched/world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

admission_question question(duration ttft, duration tbt_now, duration tbt_then, std::uint8_t priority = 1) {
  admission_question q;
  q.priority = priority;
  q.ttft = ttft;
  q.ttft_slo = 10s;
  q.tbt_now = tbt_now;
  q.tbt_then = tbt_then;
  q.tbt_slo = 100ms;
  q.decode_span = 20s;
  return q;
}

/// none: admitted; else the stage.
std::string verdict(admission_policy policy, const admission_question& q) {
  const auto refused = check_admission(policy, q);
  return refused ? std::string{to_string(refused->stage)} : "admitted";
}

}  // namespace

TEST_CASE("each admission policy looks at what it should") {
  using enum admission_policy;
  const auto fine = question(5s, 50ms, 50ms);
  const auto slow_prefill = question(11s, 50ms, 50ms);
  const auto decode_busy_now = question(5s, 150ms, 50ms);
  const auto decode_busy_then = question(5s, 50ms, 150ms);
  struct row {
    admission_policy policy;
    const char *fine, *slow_prefill, *busy_now, *busy_then;
  };
  for (const row& r : {row{none, "admitted", "admitted", "admitted", "admitted"},
                       row{baseline, "admitted", "prefill", "admitted", "admitted"},
                       row{early, "admitted", "prefill", "decode", "admitted"},
                       row{predictive, "admitted", "prefill", "admitted", "decode"}}) {
    CAPTURE(std::string{to_string(r.policy)});
    CHECK(verdict(r.policy, fine) == r.fine);
    CHECK(verdict(r.policy, slow_prefill) == r.slow_prefill);
    CHECK(verdict(r.policy, decode_busy_now) == r.busy_now);
    CHECK(verdict(r.policy, decode_busy_then) == r.busy_then);
  }
}

TEST_CASE("when it gets tight, low priority is refused first and high last") {
  const auto highest_load = [](std::uint8_t priority) {
    for (int percent = 1; percent < 300; ++percent) {
      if (check_admission(admission_policy::early, question(percent * 100ms, 1ms, 1ms, priority)))
        return percent - 1;
    }
    return 300;
  };
  CHECK(highest_load(0) == 125);
  CHECK(highest_load(1) == 100);
  CHECK(highest_load(2) == 75);
  CHECK(highest_load(9) == 75);
}

TEST_CASE("a refusal says when another try makes sense") {
  const auto late = check_admission(admission_policy::early, question(13s, 1ms, 1ms));
  CHECK(late->retry_after == 3s);  // the queue drains by then
  CHECK(late->cause == ec::slo_unreachable);
  CHECK(late->cause.detail == "predicted TTFT 13000 ms exceeds 10000 ms");
  const auto dense = check_admission(admission_policy::early, question(1s, 200ms, 1ms));
  CHECK(dense->retry_after == 10s);  // half of the batch has to leave: half of t_d
  auto full = question(1s, 1ms, 1ms);
  full.decode_saturated = true;
  CHECK(check_admission(admission_policy::early, full)->cause == ec::overloaded);
  CHECK(!check_admission(admission_policy::baseline, full));
}

TEST_CASE("the decode side refuses what would slow its batch beyond the SLO, but serves a lone request") {
  const decode_model model{linear_decode(0.01)};  // 10 ms + 1 ms per sequence
  CHECK(!admit_at_decode(model, 10, 1000, 100, 30ms, 1));
  const auto refused = admit_at_decode(model, 25, 1000, 100, 30ms, 1);
  REQUIRE(refused.has_value());
  CHECK(refused->stage == reject_stage::at_decode);
  CHECK(!admit_at_decode(model, 25, 1000, 100, 30ms, 0));
  CHECK(!admit_at_decode(model, 0, 0, 100, 1ms, 1));
}

TEST_CASE("a forecast counts those who will be decoding") {
  decode_forecast forecast{32s};  // buckets of a second
  forecast.add(start, 100);
  forecast.add(start + 10s, 200);
  forecast.add(start + 40s, 400);
  CHECK(forecast.at(start - 1s).requests == 0);
  CHECK(forecast.at(start + 5s).requests == 1);
  CHECK(forecast.at(start + 20s).context_tokens == 300);
  CHECK(forecast.at(start + 35s).requests == 1);  // the first has decoded for longer than 32 s
  CHECK(forecast.at(start + 41s).context_tokens == 600);
  forecast.remove(start + 10s, 200);
  CHECK(forecast.at(start + 41s).context_tokens == 400);
  CHECK(forecast.at(start + 1h).requests == 0);
}

TEST_CASE("a forecast is what counting gives, while time moves on") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    decode_forecast forecast{32s};
    std::multimap<time_point, std::uint64_t> plain;
    auto now = start;
    for (int step = 0; step < 3000; ++step) {
      now += duration{static_cast<std::int64_t>(random() % 2'000'000'000)};
      if (random() % 100 == 0) now += 200s;
      forecast.trim(now);
      if (random() % 3 != 0 || plain.empty()) {
        const auto end = now + duration{static_cast<std::int64_t>(random() % 100'000'000'000)};
        const auto context = random() % 1000;
        forecast.add(end, context);
        plain.emplace(end, context);
      } else {
        auto i = plain.begin();
        std::advance(i, static_cast<std::ptrdiff_t>(random() % plain.size()));
        forecast.remove(i->first, i->second);
        plain.erase(i);
      }
      const auto when = now + duration{static_cast<std::int64_t>(random() % 120'000'000'000)};
      const auto bucket = [](time_point t) { return t.time_since_epoch() / 1s; };
      std::uint64_t requests = 0, context = 0;
      for (const auto& [end, tokens] : plain) {
        if (bucket(end) > bucket(when) || bucket(end) <= bucket(when) - 32) continue;
        ++requests;
        context += tokens;
      }
      REQUIRE(forecast.at(when).requests == requests);
      REQUIRE(forecast.at(when).context_tokens == context);
    }
  }
}

TEST_CASE("early rejection as published does not see who is still in prefill") {
  auto options = small_options();
  options.ttft_slo = 100s;
  options.tbt_slo = 14ms;  // 10 ms + 1 ms per sequence: four at once
  const auto placed = [&](admission_policy policy, std::uint64_t in_prefill, std::uint64_t decoding) {
    options.admission = policy;
    auto core = small_cluster(options, 1, 1);
    for (std::uint64_t id = 1; id <= in_prefill + decoding; ++id) {
      REQUIRE(core.schedule(request_of(id, {}, 100), start).has_value());
      if (id <= decoding) core.first_token(request_id{id}, 100, 0, 100ms, start);
    }
    return core.schedule(request_of(9, {}, 100), start).has_value();
  };
  CHECK(placed(admission_policy::early_running, 4, 0));
  CHECK(placed(admission_policy::early_running, 1, 3));
  CHECK(!placed(admission_policy::early_running, 0, 4));
  CHECK(!placed(admission_policy::early, 4, 0));
  CHECK(!placed(admission_policy::early, 1, 3));
}

TEST_CASE("prediction admits what early rejection refuses when decodes will have ended by then") {
  auto options = small_options();
  options.decode_span = 2s;
  options.ttft_slo = 100s;
  options.tbt_slo = 14ms;  // 10 ms + 1 ms per sequence: four at once
  const auto placed_after_four = [&](admission_policy policy) {
    options.admission = policy;
    auto core = small_cluster(options, 1, 1);
    for (std::uint64_t id = 1; id <= 4; ++id) {
      REQUIRE(core.schedule(request_of(id, {}, 100), start).has_value());
      core.first_token(request_id{id}, 100, 0, 100ms, start);
    }
    return core.schedule(request_of(9, {}, 5000), start)
        .has_value();  // 5 s of prefill: by then the four are gone
  };
  CHECK(!placed_after_four(admission_policy::early));
  CHECK(placed_after_four(admission_policy::predictive));
  CHECK(placed_after_four(admission_policy::baseline));
}

TEST_CASE("a link to decode that is full is foreseen: the request goes to another instance, or is refused") {
  for (const auto admission : {admission_policy::predictive, admission_policy::per_request}) {
    for (const bool another : {false, true}) {
      CAPTURE(std::string{to_string(admission)});
      CAPTURE(another);
      auto options = small_options();
      options.admission = admission;
      options.tbt_slo = 110ms;
      options.bytes_per_token = 2'500'000;  // a prompt's KV takes two and a half times as long as computing
      conductor_core core{options};
      for (std::uint64_t n = 1; n <= 3; ++n) {
        REQUIRE(core.add_node(node_id{n}, start));
        REQUIRE(core.add_instance(prefill_instance(n, node_id{n})));
      }
      REQUIRE(core.add_node(node_id{9}, start));
      REQUIRE(core.add_instance(decode_instance(101, node_id{9}, 8)));
      const auto first = core.schedule(request_of(1, {}, 1000), start);
      REQUIRE(first);
      CHECK(first->decode == worker_id{101});
      if (another) {
        REQUIRE(core.add_node(node_id{10}, start));
        REQUIRE(core.add_instance(decode_instance(102, node_id{10}, 8, 0.02)));
      }
      const auto why = explain(core, request_of(2, {}, 1000), start);
      const auto second = core.schedule(request_of(2, {}, 1000), start);
      if (another) {
        REQUIRE(second);
        CHECK(second->decode == worker_id{102});  // whose steps are longer
        REQUIRE(why.decode.front().id == worker_id{101});
        for (const auto& p : why.prefill) CHECK(p.hand_over[0] >= p.hand_over[1]);
        CHECK(to_text(why, second).find("the hand-over decided") != std::string::npos);
      } else {
        REQUIRE(!second);
        CHECK(second.error().stage == reject_stage::decode);
        // Once the link has moved the first, there is room again; its decoding keeps nobody waiting.
        CHECK(core.schedule(request_of(3, {}, 1000), start + 6s));
      }
    }
  }
}
