// Requests that wait for a place: who gets it, who is refused, and that nobody waits beside an idle instance.

#include "runtime/sched/admission_queue.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <ranges>
#include <set>

#include "tests/runtime/sched/world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

conductor_options queueing() {
  auto o = small_options();
  o.admission = admission_policy::queue;
  return o;
}

/// One prefill and one decode instance that takes 2 requests at once, and so holds 4.
struct queue_world {
  conductor_core core{queueing()};
  admission_queue queue{core, {}};
  std::vector<decision> out;

  explicit queue_world(std::size_t max_queued = 100, std::uint32_t batch = 2)
      : queue(core, {max_queued, 10s}) {
    static_cast<void>(core.add_node(node_id{1}, start));
    static_cast<void>(core.add_node(node_id{1001}, start));
    static_cast<void>(core.add_instance(prefill_instance(1, node_id{1})));
    static_cast<void>(core.add_instance(decode_instance(1001, node_id{1001}, batch)));
  }
  /// @returns ids that were placed by it, in order.
  std::vector<std::uint64_t> submit(std::uint64_t id, time_point now, std::uint8_t priority = 1,
                                    time_point arrival = {}, std::uint32_t prompt_tokens = 10) {
    auto r = request_of(id, {}, prompt_tokens);
    r.priority = priority;
    r.arrival = arrival;
    out.clear();
    queue.submit(r, now, out);
    return placed();
  }
  std::vector<std::uint64_t> advance(time_point now) {
    out.clear();
    queue.advance(now, out);
    return placed();
  }
  std::vector<std::uint64_t> placed() const {
    std::vector<std::uint64_t> ids;
    for (const auto& d : out) {
      if (d.outcome) ids.push_back(d.id.value);
    }
    return ids;
  }
  std::vector<std::uint64_t> refused() const {
    std::vector<std::uint64_t> ids;
    for (const auto& d : out) {
      if (!d.outcome) ids.push_back(d.id.value);
    }
    return ids;
  }
};

using ids = std::vector<std::uint64_t>;

/// Like `queue_world`, full, with requests of tenants who wait.
struct shared_world : queue_world {
  std::uint64_t running = 0;  ///< 1 to 4 fill it

  explicit shared_world(std::size_t max_queued = 100) : queue_world(max_queued) {
    for (std::uint64_t id = 1; id <= 4; ++id) submit(id, start);
  }
  void wait(std::uint64_t id, service_share share, time_point now = start, std::uint32_t prompt_tokens = 10,
            std::uint8_t priority = 1) {
    auto r = request_of(id, {}, prompt_tokens);
    r.share = share;
    r.priority = priority;
    out.clear();
    queue.submit(r, now, out);
  }
  /// A place becomes free. @returns who gets it.
  std::uint64_t next(time_point now = start) {
    const auto ends = running < 4 ? ++running : after_[running++ - 4];
    core.cancelled(request_id{ends}, now);
    const auto got = advance(now);
    if (got.size() != 1) return 0;
    after_.push_back(got.front());
    return got.front();
  }
  ids next_ones(int many, time_point now = start) {
    ids got;
    while (many-- > 0) got.push_back(next(now));
    return got;
  }

 private:
  ids after_;  // placed from the line
};

constexpr service_share alice{1, 1}, bob{2, 1}, carol{3, 2};

}  // namespace

TEST_CASE("what there is room for is placed at once, the others wait and none is refused") {
  queue_world w;
  for (std::uint64_t id = 1; id <= 4; ++id) CHECK(w.submit(id, start) == ids{id});
  for (std::uint64_t id = 5; id <= 50; ++id) CHECK(w.submit(id, start).empty());
  CHECK(w.queue.size() == 46);
  CHECK(w.out.empty());
  // A place that comes free goes to who came first, and only one does.
  w.core.first_token(request_id{1}, 10, 0, 10ms, start);
  CHECK(w.advance(start).empty());
  w.core.finished(request_id{1}, start + 1s);
  CHECK(w.advance(start + 1s) == ids{5});
  CHECK(w.queue.size() == 45);
  // Who leaves without having been placed makes no room.
  CHECK(w.queue.withdraw(request_id{6}));
  CHECK(!w.queue.withdraw(request_id{6}));
  CHECK(w.advance(start + 1s).empty());
  w.core.cancelled(request_id{2}, start + 1s);
  CHECK(w.advance(start + 1s) == ids{7});
}

TEST_CASE("priority goes first, and waiting makes up for it") {
  queue_world w;
  for (std::uint64_t id = 1; id <= 4; ++id) w.submit(id, start);
  w.submit(10, start, 2);
  w.submit(11, start + 1s, 1);
  w.submit(12, start + 2s, 0);
  w.submit(13, start + 3s, 1);
  auto next = [&, done = std::uint64_t{0}](time_point now) mutable {
    w.core.cancelled(request_id{++done}, now);
    return w.advance(now);
  };
  CHECK(next(start + 4s) == ids{12});
  CHECK(next(start + 4s) == ids{11});
  // Ten seconds after they came, 10 and 13 are a class better each.
  CHECK(next(start + 14s) == ids{13});
  w.submit(14, start + 15s, 1);
  CHECK(next(start + 15s) == ids{10});
  CHECK(next(start + 15s) == ids{});
}

TEST_CASE("who waited elsewhere, or comes back after a lost worker, has its old place in the order") {
  queue_world w;
  for (std::uint64_t id = 1; id <= 4; ++id) w.submit(id, start);
  w.submit(5, start + 8s);
  w.submit(6, start + 9s, 1, start + 2s);
  w.core.cancelled(request_id{1}, start + 9s);
  CHECK(w.advance(start + 9s) == ids{6});
  CHECK(w.out.front().outcome->predicted_ttft >= 7s);
}

TEST_CASE("a full queue refuses the least urgent with the time until a place comes free") {
  queue_world w{2};
  for (std::uint64_t id = 1; id <= 4; ++id) w.submit(id, start);
  w.submit(5, start, 2);
  w.submit(6, start);
  CHECK(w.submit(7, start).empty());
  CHECK(w.refused() == ids{5});  // low priority gives way …
  w.submit(8, start, 2);
  CHECK(w.refused() == ids{8});  // … and does not get in
  w.submit(9, start);
  CHECK(w.refused() == ids{9});  // of equals the last one does not
  const auto& why = w.out.front().outcome.error();
  CHECK(why.cause == ec::overloaded);
  CHECK(why.cause.detail.find("max-queued") != std::string::npos);
  CHECK(why.retry_after >= 1s);
  CHECK(w.queue.refused() == 3);
  CHECK(w.queue.size() == 2);
  // A place every four seconds from now on: who is refused then is told so.
  for (std::uint64_t id = 1; id <= 4; ++id) {
    w.core.cancelled(request_id{id}, start + id * 4s);
    w.submit(100 + id, start + id * 4s);
  }
  w.submit(200, start + 16s);
  w.submit(201, start + 16s);
  REQUIRE(w.refused() == ids{201});
  CHECK(w.out.front().outcome.error().retry_after >= 3s);
  CHECK(w.out.front().outcome.error().retry_after <= 16s);
}

TEST_CASE("an estimate that is a thousand times too long neither refuses nor stops a queue") {
  queue_world w{100, 100};
  // 1 ms a token was calibrated, so 10^6 tokens are a quarter of an hour; the truth is a thousandth of it.
  std::set<std::uint64_t> waiting;
  for (std::uint64_t id = 1; id <= 20; ++id) {
    if (w.submit(id, start, 1, {}, 1'000'000).empty()) waiting.insert(id);
  }
  CHECK(waiting.size() == 18);  // one is computed, one behind it
  std::uint64_t running = 1;
  for (auto now = start; running <= 20; ++running) {
    now += 1s;
    w.core.first_token(request_id{running}, 1'000'000, 0, 1s, now);
    for (const auto id : w.advance(now)) waiting.erase(id);
  }
  CHECK(waiting.empty());
}

TEST_CASE("a request of a gateway that is no member is refused, and its gateway may ask again") {
  queue_world w;
  auto r = request_of(1, {}, 10);
  r.gateway = node_id{77};
  w.queue.submit(r, start, w.out);
  REQUIRE(w.out.size() == 1);
  REQUIRE(!w.out.front().outcome);
  CHECK(w.out.front().outcome.error().cause.code == ec::unavailable);
  CHECK(w.core.charged_requests() == 0);
  r.gateway = node_id{1};
  w.out.clear();
  w.queue.submit(r, start, w.out);
  CHECK(w.placed() == std::vector<std::uint64_t>{1});
}

TEST_CASE("without instances nobody waits: gateways ask again by themselves") {
  conductor_core core{queueing()};
  admission_queue queue{core, {}};
  std::vector<decision> out;
  queue.submit(request_of(1, {}, 10), start, out);
  REQUIRE(out.size() == 1);
  CHECK(out.front().outcome.error().cause == ec::unavailable);
  CHECK(queue.size() == 0);
}

TEST_CASE("any other admission decides at once, and never queues") {
  auto options = small_options();
  options.admission = admission_policy::early;
  auto core = small_cluster(options, 1, 1);
  admission_queue queue{core, {}};
  std::vector<decision> out;
  for (std::uint64_t id = 1; id <= 100; ++id) queue.submit(request_of(id, {}, 3000), start, out);
  CHECK(out.size() == 100);
  CHECK(queue.size() == 0);
  CHECK(std::ranges::count_if(out, [](const auto& d) { return !d.outcome; }) > 50);
}

TEST_CASE("nobody is lost or placed twice, whatever comes in between") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    queue_world w{20, 3};
    std::set<std::uint64_t> inside, running;
    std::uint64_t next = 0, placed = 0, refused = 0, withdrawn = 0;
    auto now = start;
    const auto settle = [&] {
      for (const auto& d : w.out) {
        CHECK(inside.erase(d.id.value) == 1);
        if (d.outcome) running.insert(d.id.value);
        ++(d.outcome ? placed : refused);
      }
    };
    for (int step = 0; step < 600; ++step) {
      now += std::chrono::milliseconds(random() % 2000);
      if (random() % 3 > 0) {
        inside.insert(++next);
        w.submit(next, now, static_cast<std::uint8_t>(random() % 3), now - random() % 20 * 1s,
                 static_cast<std::uint32_t>(1 + random() % 2000));
        settle();
      } else if (random() % 4 == 0 && !inside.empty()) {
        const auto id = *inside.begin();
        CHECK(w.queue.withdraw(request_id{id}));
        inside.erase(id);
        ++withdrawn;
      } else if (!running.empty()) {
        const auto id = request_id{*running.begin()};
        w.core.first_token(id, 100, 0, 100ms, now);
        if (random() % 4 == 0) w.core.failed(id, now);
        else w.core.finished(id, now);
        running.erase(running.begin());
      }
      w.advance(now);
      settle();
      CHECK(w.queue.size() == inside.size());
      CHECK(w.queue.size() <= 20);
      CHECK(w.core.charged_requests() == running.size());
      CHECK(running.size() <= 6);
      // Nobody waits while there is room, but the late, where others are in time and no instance is idle.
      if (w.queue.size() > w.queue.standing_by()) CHECK(!w.core.room_at(now).both());
      if (!inside.empty()) CHECK(!(w.core.room_at(now).both() && w.core.prefill_is_idle(now)));
    }
    CHECK(next == placed + refused + withdrawn + inside.size());
    CHECK(refused > 0);
  }
}

namespace {

/// Requests come evenly, each of 1 s of prefill at one instance that does as predicted. @returns those in time and those
/// refused.
std::pair<int, int> play(queue_world& w, int requests, duration apart, duration slo, duration per_prompt) {
  int in_time = 0, refused = 0;
  std::map<std::uint64_t, time_point> came;
  std::vector<std::uint64_t> under_way;
  auto now = start, free_at = start;
  int next = 0;
  const auto settle = [&] {
    refused += static_cast<int>(w.refused().size());
    for (const auto id : w.placed()) {
      if (under_way.empty()) free_at = now + per_prompt;
      under_way.push_back(id);
    }
  };
  while (next < requests || !under_way.empty()) {
    const auto arrives = start + next * apart;
    if (next < requests && (under_way.empty() || arrives <= free_at)) {
      now = std::max(now, arrives);
      came[static_cast<std::uint64_t>(++next)] = now;
      w.submit(static_cast<std::uint64_t>(next), now, 1, {}, 1000);
      settle();
      continue;
    }
    now = free_at;
    const auto id = under_way.front();
    under_way.erase(under_way.begin());
    if (!under_way.empty()) free_at = now + per_prompt;
    in_time += now - came[id] <= slo;
    w.core.first_token(request_id{id}, 1000, 0, per_prompt, now);
    w.core.finished(request_id{id}, now);
    w.advance(now);
    settle();
  }
  return {in_time, refused};
}

}  // namespace

TEST_CASE("below saturation nobody is refused, and at twice the load half of all are in time") {
  queue_world calm{2000, 100};
  CHECK(play(calm, 300, 1100ms, 30s, 1s) == std::pair{300, 0});
  queue_world full{2000, 100};
  const auto [in_time, refused] = play(full, 600, 500ms, 30s, 1s);
  CHECK(in_time >= 290);  // of 300 s and the last SLO's queue; first come, first served would have some 60
  CHECK(refused > 150);
  CHECK(full.queue.shed() == static_cast<std::uint64_t>(refused));
}

TEST_CASE("a crowd that comes at once, and nobody after it, is served to the last") {
  queue_world w{2000, 100};
  const auto [in_time, refused] = play(w, 300, 0ms, 30s, 1s);
  CHECK(in_time >= 25);
  CHECK(refused == 0);
  CHECK(w.queue.size() == 0);
}

TEST_CASE("where not all can be in time, the dear ones stand by for the many") {
  queue_world w{100, 100};
  // 1 ms a token is told: one request of 25 s, and forty of 1 s, where 30 s are there.
  w.submit(1, start, 1, {}, 1000);
  w.submit(2, start, 1, {}, 1000);
  w.submit(3, start, 1, {}, 25'000);
  for (std::uint64_t id = 4; id <= 24; ++id) w.submit(id, start, 1, {}, 1000);
  CHECK(w.queue.standing_by() >= 1);
  CHECK(w.queue.before(request_id{3}, start) == w.queue.size() - w.queue.standing_by());
  w.core.first_token(request_id{1}, 1000, 0, 1s, start + 1s);
  CHECK(w.advance(start + 1s) == ids{4});
  CHECK(w.queue.shed() == 0);
}

TEST_CASE("a request waits while decoding is as slow as its SLO allows, and never beside an idle instance") {
  queue_world w{1000, 1000};
  std::uint64_t placed = 0;
  auto now = start;
  for (std::uint64_t id = 1; id <= 400; ++id) {
    now += 10ms;
    for (const auto got : w.submit(id, now)) {
      ++placed;
      w.core.first_token(request_id{got}, 10, 0, 10ms, now);
    }
  }
  CHECK(placed >= 1);
  const auto step = w.core.cluster().decode().step(0, 0, false);
  CHECK(step <= w.core.options().tbt_slo);
  CHECK(w.queue.size() == 400 - placed);
}

TEST_CASE("tenants that wait take turns, each by arrival, and a flood holds nobody back") {
  shared_world w;
  for (std::uint64_t id = 10; id < 30; ++id) w.wait(id, alice);
  for (std::uint64_t id = 40; id < 43; ++id) w.wait(id, bob, start + 1s);
  CHECK(w.queue.before(request_id{40}, start + 1s) == 1);
  CHECK(w.queue.before(request_id{42}, start + 1s) == 5);
  CHECK(w.next_ones(7, start + 1s) == ids{10, 40, 11, 41, 12, 42, 13});
  // Bob has asked for nothing for a while, which earns him no more than the next turn.
  CHECK(w.next_ones(3, start + 1s) == ids{14, 15, 16});
  for (std::uint64_t id = 50; id < 53; ++id) w.wait(id, bob, start + 2s);
  CHECK(w.next_ones(4, start + 2s) == ids{17, 50, 18, 51});
}

TEST_CASE("a tenant of twice the weight has two turns for each of another's") {
  shared_world w;
  for (std::uint64_t id = 10; id < 30; ++id) w.wait(id, alice);
  for (std::uint64_t id = 40; id < 60; ++id) w.wait(id, carol);
  const auto got = w.next_ones(12);
  CHECK(std::ranges::count_if(got, [](auto id) { return id < 30; }) == 4);
  // … and one whose requests take three times as much of what is scarce has a turn for three of another's.
  shared_world long_ones;
  for (std::uint64_t id = 10; id < 20; ++id) long_ones.wait(id, alice, start, 300);
  for (std::uint64_t id = 40; id < 70; ++id) long_ones.wait(id, bob, start, 100);
  const auto turns = long_ones.next_ones(8);
  CHECK(std::ranges::count_if(turns, [](auto id) { return id < 20; }) == 2);
}

TEST_CASE("classes go before turns, and a class ages by its oldest request whoever sent it") {
  shared_world w;
  w.wait(10, alice, start, 10, 2);
  w.wait(11, bob, start + 1s, 10, 1);
  w.wait(12, bob, start + 2s, 10, 1);
  w.wait(13, alice, start + 3s, 10, 0);
  CHECK(w.next(start + 4s) == 13);
  CHECK(w.next(start + 4s) == 11);
  w.wait(14, alice, start + 5s, 10, 1);  // alice has had a place, as bob has
  CHECK(w.next(start + 5s) == 12);
  // After twice ten seconds the low class is as urgent as a fresh high one.
  w.wait(15, bob, start + 20s, 10, 1);
  CHECK(w.next(start + 21s) == 10);
}

TEST_CASE("of a full line the tenant with the most gives way, and its latest request") {
  shared_world w{10};
  for (std::uint64_t id = 10; id < 20; ++id) w.wait(id, alice);
  CHECK(w.out.empty());
  w.wait(40, bob);
  CHECK(w.refused() == ids{19});
  w.wait(20, alice);
  CHECK(w.refused() == ids{20});
  for (std::uint64_t id = 41; id < 45; ++id) w.wait(id, bob);
  w.wait(45, bob);
  CHECK(w.refused() == ids{45});
  CHECK(w.queue.size() == 10);
  // Who counts twice may wait with twice as many.
  for (std::uint64_t id = 60; id < 70; ++id) w.wait(id, carol);
  std::size_t waits = 0;
  for (std::uint64_t id = 60; id < 70; ++id) waits += w.queue.waits(request_id{id});
  CHECK(waits == 5);
}

TEST_CASE("where not all can be in time, requests of the tenant with the most stand by") {
  shared_world w;
  // 1 ms a token is told, and 30 s are there: Alice asks for 40 s, Bob for 10.
  w.wait(40, bob, start, 10'000);
  for (std::uint64_t id = 10; id < 30; ++id) w.wait(id, alice, start, 2000);
  CHECK(w.queue.standing_by() >= 5);
  CHECK(w.queue.before(request_id{40}, start) < w.queue.size() - w.queue.standing_by());
  // Without names the dearest of all would.
  shared_world one;
  one.wait(40, alice, start, 10'000);
  for (std::uint64_t id = 10; id < 30; ++id) one.wait(id, alice, start, 2000);
  CHECK(one.queue.before(request_id{40}, start) >= one.queue.size() - one.queue.standing_by());
}

TEST_CASE("tenants that always wait get service by their weights, whatever their requests cost") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    service_levels levels;
    waiting_line line;
    std::map<std::uint64_t, waiting_request> all;
    std::map<std::uint64_t, double> had;
    std::uint64_t next = 0;
    const std::vector<service_share> tenants{
        {1, 1}, {2, 1 + static_cast<std::uint32_t>(random() % 5)}, {3, 7}};
    const auto comes = [&](const service_share& share) {
      auto& w = all[++next];
      w.what = request_of(next, {}, 10);
      w.what.share = share;
      w.what.arrival = start + std::chrono::milliseconds(next);
      w.cost = 0.1 + static_cast<double>(random() % 100) / 100;
      levels.begins_to_wait(share);
      line.put(w);
    };
    for (const auto& t : tenants) comes(t), comes(t);
    for (int turn = 0; turn < 500; ++turn) {
      auto& w = line.next(levels);
      CHECK(&w == line.in_order(levels).front().second);
      const auto share = w.what.share;
      had[share.owner] += w.cost / share.weight;
      levels.serve(share.owner, w.cost);
      line.take_out(w);
      all.erase(w.what.id.value);
      comes(share);
      levels.ends_to_wait(share.owner);
      // Between two there are never more than the dearest requests of both.
      const auto [least, most] = std::ranges::minmax(had | std::views::values);
      if (had.size() == tenants.size()) CHECK(most - least <= 2 * 1.1);
    }
    for (const auto& [_, w] : all) levels.ends_to_wait(w.what.share.owner);
    CHECK(levels.owners() == 0);
  }
}
