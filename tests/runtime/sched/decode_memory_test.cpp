// Decode's memory: foreseen when a request is placed, and charged to whoever is placed.

#include <doctest/doctest.h>

#include "tests/runtime/sched/world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

/// One prefill instance, and decode instances that hold so many tokens each. SLOs are no reason to refuse.
conductor_core with_memory(admission_policy admission, std::initializer_list<std::uint64_t> tokens,
                           bool reserves = true) {
  auto options = small_options();
  options.admission = admission;
  options.ttft_slo = 1h;
  options.tbt_slo = 10s;
  conductor_core core{options};
  REQUIRE(core.add_node(node_id{1}, start));
  REQUIRE(core.add_instance(prefill_instance(1, node_id{1})));
  std::uint64_t id = 1001;
  for (const auto t : tokens) {
    auto d = decode_instance(id, node_id{id}, 64);
    d.capacity_tokens = t;
    d.reserves_answers = reserves;
    REQUIRE(core.add_node(node_id{id}, start));
    REQUIRE(core.add_instance(d));
    ++id;
  }
  return core;
}

constexpr admission_policy foreseeing[] = {admission_policy::early, admission_policy::predictive,
                                           admission_policy::per_request, admission_policy::priced};

}  // namespace

TEST_CASE("what decode's memory will not hold is refused before prefill, with that reason, and counted") {
  for (const auto admission : foreseeing) {
    CAPTURE(std::string{to_string(admission)});
    auto core = with_memory(admission, {1000});
    // 300 tokens of prompt and 100 of answer each.
    REQUIRE(core.schedule(request_of(1, {}, 300), start));
    REQUIRE(core.schedule(request_of(2, {}, 300), start));
    const auto third = core.schedule(request_of(3, {}, 300), start);
    REQUIRE(!third);
    CHECK(third.error().stage == reject_stage::memory);
    CHECK(third.error().cause == ec::overloaded);
    CHECK(third.error().retry_after > 0s);
    CHECK(core.counts().rejected_memory == 1);
    CHECK(core.counts().rejected_tbt == 0);
    // It leaves as others end, whichever way.
    core.failed(request_id{1}, start + 1s);
    CHECK(core.schedule(request_of(4, {}, 300), start + 1s));
  }
}

TEST_CASE("early rejection as published sees the memory of those that decode, and of nobody else") {
  auto core = with_memory(admission_policy::early_running, {1000});
  for (std::uint64_t id = 1; id <= 2; ++id) REQUIRE(core.schedule(request_of(id, {}, 300), start));
  CHECK(core.schedule(request_of(3, {}, 300), start));
  for (std::uint64_t id = 1; id <= 3; ++id) core.first_token(request_id{id}, 300, 0, 300ms, start);
  CHECK(core.schedule(request_of(4, {}, 300), start).error().stage == reject_stage::memory);
}

TEST_CASE("without admission control nothing is refused for want of room, but what no instance ever holds") {
  for (const auto admission : {admission_policy::none, admission_policy::baseline}) {
    auto core = with_memory(admission, {500, 1000});
    for (std::uint64_t id = 1; id <= 10; ++id) CHECK(core.schedule(request_of(id, {}, 300), start));
    const auto never = core.schedule(request_of(11, {}, 901), start);
    REQUIRE(!never);
    CHECK(never.error().stage == reject_stage::memory);
    CHECK(never.error().cause == ec::invalid_argument);
    CHECK(core.counts().rejected_memory == 1);
  }
}

TEST_CASE("a request goes where there is room for it, though steps are shorter elsewhere") {
  auto core = with_memory(admission_policy::early, {1000, 5000});
  CHECK(core.schedule(request_of(1, {}, 800), start)->decode == worker_id{1001});
  // The second instance gets the longer batch: its steps are longer, and it has the room.
  for (std::uint64_t id = 2; id <= 5; ++id) {
    CHECK(core.schedule(request_of(id, {}, 800), start)->decode == worker_id{1002});
  }
  CHECK(core.schedule(request_of(6, {}, 800), start)->decode == worker_id{1002});
  CHECK(!core.schedule(request_of(7, {}, 800), start));
}

TEST_CASE("room that others will have left by the end of the prefill is room") {
  auto core = with_memory(admission_policy::per_request, {1000});
  // Answers take half a second.
  for (std::uint64_t id = 1; id <= 50; ++id) {
    REQUIRE(core.schedule(request_of(id, {}, 300), start));
    core.first_token(request_id{id}, 300, 0, 300ms, start);
    core.finished(request_id{id}, start + 500ms, 20);
  }
  REQUIRE(core.schedule(request_of(101, {}, 400), start + 2s));
  core.first_token(request_id{101}, 400, 0, 400ms, start + 2s);
  // Nine tenths of a second of prefill: by then it is gone. Less than a tenth: it is still there.
  CHECK(core.schedule(request_of(102, {}, 880), start + 2s));
  core.cancelled(request_id{102}, start + 2s);
  const auto keys = chain(1, 4);
  hold(core, 1, keys);
  CHECK(!core.schedule(request_of(103, keys, 480), start + 2s));
}

TEST_CASE(
    "a request may wait for memory at decode for as long as its TBT SLO and a tenth of an answer's time "
    "bear") {
  for (const auto admission : {admission_policy::per_request, admission_policy::priced}) {
    CAPTURE(std::string{to_string(admission)});
    auto core = with_memory(admission, {1000});
    // Answers of 200 tokens take ten seconds.
    for (std::uint64_t id = 1; id <= 50; ++id) {
      REQUIRE(core.schedule(request_of(id, {}, 300), start));
      core.first_token(request_id{id}, 300, 0, 300ms, start);
      core.finished(request_id{id}, start + 10s, 200);
    }
    REQUIRE(core.schedule(request_of(101, {}, 400), start + 20s));
    core.first_token(request_id{101}, 400, 0, 400ms, start + 20s);
    const auto asked_at = [&](duration decoded, duration tbt_slo) {
      auto request = request_of(102, {}, 700);  // 0.7 seconds of prefill
      request.tbt_slo = tbt_slo;
      const auto now = start + 20s + decoded;
      const bool placed = core.schedule(request, now).has_value();
      if (placed) core.cancelled(request_id{102}, now);
      return placed;
    };
    // Who decodes is gone after 11.2 seconds at the latest, as far as is known.
    CHECK(!asked_at(7500ms, 10s));
    CHECK(asked_at(9500ms, 10s));
    CHECK(!asked_at(9500ms, 40ms));  // ten gaps bear no such wait
  }
}

TEST_CASE("an instance whose answers grow is charged for what answers are likely to need") {
  auto core = with_memory(admission_policy::early, {2000}, false);
  auto request = request_of(1, {}, 100);
  request.max_tokens = 1800;
  for (std::uint64_t id = 1; id <= 40; ++id) {
    request.id = request_id{id};
    REQUIRE(core.schedule(request, start));  // nothing is known yet: one at a time
    core.first_token(request.id, 100, 0, 100ms, start);
    core.finished(request.id, start + 1s, 80);
  }
  int placed = 0;
  for (std::uint64_t id = 101; id <= 130; ++id) {
    request.id = request_id{id};
    placed += core.schedule(request, start + 2s).has_value();
  }
  CHECK(placed == 10);  // of 180 tokens each
}

TEST_CASE("a tenant is charged for answers as long as its own are, whatever others are told") {
  constexpr std::uint64_t terse = 11, chatty = 12, unknown = 13;
  const auto fit = [&](std::uint64_t tenant) {
    auto core = with_memory(admission_policy::early, {20'000}, false);
    auto request = request_of(1, {}, 100);
    request.max_tokens = 1800;
    for (std::uint64_t id = 1; id <= 80; ++id) {
      request.id = request_id{id};
      request.tenant = id % 2 == 0 ? terse : chatty;
      REQUIRE(core.schedule(request, start));
      core.first_token(request.id, 100, 0, 100ms, start);
      core.finished(request.id, start + 1s, id % 2 == 0 ? 20 : 900);
    }
    request.tenant = tenant;
    int placed = 0;
    for (std::uint64_t id = 101; id <= 400; ++id) {
      request.id = request_id{id};
      placed += core.schedule(request, start + 2s).has_value();
    }
    return placed;
  };
  CHECK(fit(chatty) <= 20);  // of 1,000 tokens each
  CHECK(fit(terse) >= 120);  // of 120
  const int others = fit(unknown);
  CHECK(others >= fit(chatty));  // room for the longest of both
  CHECK(others < fit(terse));
}

TEST_CASE("a prompt that a node computes for another one takes the memory of its own decode instance") {
  auto options = small_options();
  options.admission = admission_policy::early;
  options.ttft_slo = 1h;
  options.tbt_slo = 10s;
  conductor_core core{options};
  REQUIRE(core.add_node(node_id{1}, start));
  REQUIRE(core.add_instance(prefill_instance(1, node_id{1})));
  REQUIRE(core.add_node(node_id{2}, start));
  for (const std::uint64_t n : {1, 2}) {
    auto d = decode_instance(1000 + n, node_id{n}, 64);
    d.capacity_tokens = 1000;
    REQUIRE(core.add_instance(d));
  }
  const worker_id own[] = {worker_id{1001}};
  auto away = request_of(1, {}, 700);
  away.avoid = own;
  REQUIRE(core.schedule(away, start)->decode == worker_id{1002});
  CHECK(core.cluster().decode().reserved(0) == 700);
  auto here = request_of(2, {}, 500);
  const worker_id other[] = {worker_id{1002}};
  here.avoid = other;
  CHECK(core.schedule(here, start).error().stage == reject_stage::memory);
  core.first_token(request_id{1}, 700, 0, 700ms, start + 1s);  // handed over
  CHECK(core.cluster().decode().reserved(0) == 0);
  CHECK(core.schedule(here, start + 1s)->decode == worker_id{1001});
}
