// What a prefill worker does first and next, and that whoever touches an attempt's blocks keeps them from
// being given back; tests/actors/prefill_worker_test.cpp has the same with a model.

#include "runtime/request/prefill_core.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <random>
#include <unordered_map>
#include <utility>

#include "runtime/sched/block_hash.hpp"
#include "runtime/sched/journal/worker_replay.hpp"
#include "tests/runtime/request/nodes.hpp"
#include "tests/support/kept_journal.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using namespace std::chrono_literals;

namespace {

prefill_core_options options(prefetch_mode mode, std::uint32_t stages = 1) {
  prefill_core_options out;
  out.stages = stages;
  out.layers = 2;
  out.max_attempts = 2;
  out.batch = {.chunk_tokens = 8, .max_batch_tokens = 16, .block_tokens = 4};
  out.prefetch = {.mode = mode, .base = 100ms, .per_1024_tokens = 0ms, .threshold_tokens = 4};
  out.link = [](node_id, std::uint32_t blocks, time_point) { return 1us * blocks; };
  return out;
}

struct prefill_world {
  explicit prefill_world(prefetch_mode mode = prefetch_mode::wait_complete, std::uint32_t stages = 1)
      : prefill_world(options(mode, stages)) {}
  explicit prefill_world(const prefill_core_options& o)
      : core(here, o, prefill_model{{{{8, 0, 0.008}, {64, 0, 0.064}, {64, 64, 0.065}}}}) {}

  work_order job(std::uint32_t tokens, node_id decode = decode_node, std::uint32_t source_blocks = 0) {
    work_order out;
    out.id = {request_id{++requests}, 0};
    for (std::uint32_t i = 0; i < tokens; ++i) out.tokens.push_back(static_cast<std::int32_t>(i));
    out.prompt_tokens = tokens;
    out.keys = block_keys(out.tokens, 4, out.root);
    out.sampling.max_tokens = 10;
    out.placement.decode_node = decode;
    out.gateway_node = gateway_node;
    if (source_blocks > 0) out.placement.source = holder;
    out.placement.source_blocks = source_blocks;
    return out;
  }
  /// The actions since the last call.
  void look() { seen = core.take_actions(); }
  template <class T>
  const T* one() const {
    const T* found = nullptr;
    for (const auto& a : seen) {
      if (const auto* wanted = std::get_if<T>(&a)) {
        CHECK(found == nullptr);
        found = wanted;
      }
    }
    return found;
  }
  template <class T>
  bool has() const {
    return std::ranges::any_of(seen, [](const auto& a) { return std::holds_alternative<T>(a); });
  }
  /// Up to its slots; nothing of it is here.
  std::uint64_t reserve(const work_order& j) {
    const auto owner = j.id.owner();
    core.take(j, now);
    look();
    REQUIRE(one<prefill_action::look>());
    core.looked(owner, {}, now);
    look();
    REQUIRE(one<prefill_action::pin>());
    core.pinned(owner, one<prefill_action::pin>()->what.turn, {});
    look();
    REQUIRE(one<prefill_action::reserve>());
    std::vector<slot_index> slots;
    for (std::uint32_t i = 0; i < one<prefill_action::reserve>()->count; ++i) slots.push_back(next_slot++);
    core.reserved(owner, slots, now);
    look();
    return owner;
  }
  static std::vector<prefill_outcome> outcomes_of(const std::vector<prefill_part>& parts) {
    std::vector<prefill_outcome> outcomes;
    for (const auto& p : parts) {
      auto& out = outcomes.emplace_back();
      out.owner = p.owner;
      out.start = p.start;
      out.tokens = p.tokens;
      out.streamed = p.streams;
      out.first_block = p.start / 4;
      out.token.id = 55;
      out.scores.resize(p.scored);
      out.pooled = p.pooled;
      if (p.pools) out.pooled.resize(1);
      for (auto& sum : out.pooled) sum += p.tokens;
      for (auto i = p.start / 4; i < (p.start + p.tokens) / 4; ++i) out.checksums.push_back(100 + i);
    }
    return outcomes;
  }
  /// The step that was asked for last, which computes all that it should, or fails.
  void step(const error& failure = {}) {
    REQUIRE(one<prefill_action::compute>());
    core.step_ended(outcomes_of(one<prefill_action::compute>()->parts), 8ms, failure, now);
    look();
  }
  /// What the holder of a prefix of three blocks sent.
  remote_blocks three() const {
    remote_blocks out;
    out.blocks.resize(3);
    return out;
  }

  prefill_core core;
  prefill_actions seen;
  std::uint64_t requests = 0;
  slot_index next_slot = 1;
  time_point now = time_point{} + 1h;
};

}  // namespace

TEST_CASE_FIXTURE(prefill_world, "a prompt is computed in chunks and streamed, and ends when all is sent") {
  const auto j = job(18);
  const auto owner = reserve(j);
  CHECK(has<prefill_action::open_stream>());
  CHECK(one<prefill_action::compute>()->parts.at(0).streams);
  step();
  CHECK(one<prefill_action::commit>()->items.size() == 2);
  step();
  CHECK(!has<first_token>());
  CHECK(one<prefill_action::compute>()->parts.at(0).last);
  step();
  REQUIRE(has<first_token>());
  CHECK(one<first_token>()->token.id == 55);
  REQUIRE(has<prefill_action::finish_stream>());
  CHECK(one<prefill_action::finish_stream>()->message.first.id == 55);
  CHECK(one<prefill_action::finish_stream>()->message.checksums.size() == 4);
  CHECK(core.answer_roll({gateway_node, {j.id}}).waiting.size() == 1);  // for decode's slots
  core.target({j.id, decode_node, {}, 0, {}}, now);
  look();
  CHECK(has<prefill_action::aim>());
  CHECK(core.answer_roll({gateway_node, {j.id}}).waiting.empty());
  CHECK(core.size() == 1);
  core.sent(owner, true, true);
  look();
  CHECK(has<prefill_action::release>());
  CHECK(one<prefill_action::forget>()->fenced);
  CHECK(core.size() == 0);
}

TEST_CASE("of two prompts that begin alike the later one looks when the beginning is there") {
  auto alike = options(prefetch_mode::wait_complete);
  alike.shared_tokens = 8;
  prefill_world w{alike};
  const auto first = w.job(18), second = w.job(15);
  const auto owner = w.reserve(first);
  w.core.take(second, w.now);
  w.look();
  CHECK(!w.has<prefill_action::look>());
  SUBCASE("it finds what was computed") {
    w.seen = {prefill_action::compute{{{.owner = owner, .start = 0, .tokens = 8}}}};
    w.step();
    CHECK(!w.has<prefill_action::look>());  // they share three blocks, and two are there
    w.step();
    REQUIRE(w.one<prefill_action::look>());
    CHECK(w.one<prefill_action::look>()->owner == second.id.owner());
    const auto place = [&](auto wanted) { return std::ranges::find_if(w.seen, wanted) - w.seen.begin(); };
    CHECK(place([](const auto& a) { return std::holds_alternative<prefill_action::commit>(a); }) <
          place([](const auto& a) { return std::holds_alternative<prefill_action::look>(a); }));
  }
  SUBCASE("it looks when the first is cancelled") {
    w.core.cancel(first.id, w.now);
    w.look();
    CHECK(w.one<prefill_action::look>()->owner == second.id.owner());
  }
  SUBCASE("it is cancelled while it waits") {
    w.core.cancel(second.id, w.now);
    w.look();
    CHECK(w.has<prefill_action::forget>());
    CHECK(w.core.size() == 1);
  }
}

TEST_CASE("a prompt does not wait for a beginning that another one has fetched") {
  auto alike = options(prefetch_mode::wait_complete);
  alike.shared_tokens = 8;
  alike.max_attempts = 3;
  prefill_world w{alike};
  auto at_work = w.job(6);
  for (auto& token : at_work.tokens) token += 1000;
  at_work.keys = block_keys(at_work.tokens, 4, at_work.root);
  w.reserve(at_work);
  const auto owner = w.reserve(w.job(18, here, 3));
  REQUIRE(w.has<prefill_action::fetch>());
  const auto second = w.job(15);
  w.core.fetched(owner, w.three(), w.now);
  w.core.take(second, w.now);
  w.look();
  CHECK(!w.has<prefill_action::compute>());  // the first waits for the device
  REQUIRE(w.has<prefill_action::look>());
  CHECK(w.one<prefill_action::look>()->owner == second.id.owner());
}

TEST_CASE_FIXTURE(prefill_world, "on its own node a prompt is handed over as it lies, and not released") {
  reserve(job(6, here));
  CHECK(!has<prefill_action::open_stream>());
  step();
  CHECK(one<prefill_action::hand_over>()->message.slots.size() == 2);
  CHECK(has<prefill_action::forget>());
  CHECK(!has<prefill_action::release>());
}

TEST_CASE_FIXTURE(prefill_world,
                  "a first token that is the last one ends the attempt, and decode need not wait") {
  const auto j = job(6);
  const auto owner = reserve(j);
  prefill_outcome out;
  out.owner = owner;
  out.tokens = 6;
  out.finish = finish_reason::stop;
  core.step_ended({out}, 8ms, {}, now);
  look();
  CHECK(one<first_token>()->finish == finish_reason::stop);
  CHECK(has<prefill_action::stop_decode>());
  CHECK(has<prefill_action::stop_stream>());
  CHECK(!has<prefill_action::finish_stream>());
}

TEST_CASE_FIXTURE(prefill_world,
                  "log-probabilities of a prompt and means of its states gather over its chunks") {
  auto j = job(18, here);
  j.sampling.prompt_logprobs = 0;
  j.sampling.pooling = pooling_kind::mean;
  reserve(j);
  CHECK(one<prefill_action::compute>()->parts.at(0).scored == 8);
  step();
  step();
  CHECK(one<prefill_action::compute>()->parts.at(0).scored == 1);  // no token follows the last one
  step();
  CHECK(one<first_token>()->prompt.size() == 17);
  CHECK(one<first_token>()->pooled == std::vector{std::bit_cast<std::uint32_t>(1.0f)});
}

TEST_CASE_FIXTURE(prefill_world,
                  "blocks are given back when neither a step nor a slice nor a fetch touches them") {
  SUBCASE("a step and a stream") {
    const auto j = job(18);
    const auto owner = reserve(j);
    CHECK(!core.cancel(j.id, now));
    look();
    CHECK(has<prefill_action::withdraw>());
    CHECK(has<prefill_action::stop_stream>());
    CHECK(!has<prefill_action::release>());
    core.sent(owner, false, false);
    look();
    CHECK(!has<prefill_action::release>());
    seen = {prefill_action::compute{{{.owner = owner, .start = 0, .tokens = 8}}}};
    step();
    CHECK(has<prefill_action::release>());
    CHECK(!one<prefill_action::forget>()->fenced);  // a slice may still land
  }
  SUBCASE("a fetch") {
    const auto j = job(18, here, 3);
    const auto owner = reserve(j);
    REQUIRE(has<prefill_action::fetch>());
    CHECK(!core.cancel(j.id, now));
    look();
    CHECK(has<prefill_action::stop_fetch>());
    CHECK(!has<prefill_action::release>());
    core.fetched(owner, three(), now);
    look();
    CHECK(has<prefill_action::release>());
    CHECK(!has<prefill_action::commit>());
  }
  CHECK(core.size() == 0);
}

TEST_CASE_FIXTURE(prefill_world,
                  "what is computed behind a prefix that is not verified is believed when that is") {
  const auto owner = reserve(job(18, here, 3));
  REQUIRE(one<prefill_action::fetch>()->by_layers);
  core.layers_in(owner, 1, now += 1us);
  look();
  REQUIRE(has<prefill_action::compute>());
  const auto part = one<prefill_action::compute>()->parts.at(0);
  CHECK(part.start == 12);
  CHECK(part.named_blocks == 0);
  CHECK(part.patience);
  step();
  CHECK(!has<prefill_action::commit>());
  CHECK(!has<first_token>());
  SUBCASE("it is right") {
    core.fetched(owner, three(), now);
    look();
    REQUIRE(has<first_token>());
    CHECK(one<first_token>()->stats.remote_tokens == 12);
  }
  SUBCASE("a block of it is not") {
    auto got = three();
    got.blocks.pop_back();
    core.fetched(owner, got, now);
    look();
    CHECK(has<prefill_action::choose_again>());
    CHECK(one<prefill_action::compute>()->parts.at(0).start == 0);
    CHECK(one<prefill_action::compute>()->parts.at(0).named_blocks == 4);
  }
}

TEST_CASE_FIXTURE(prefill_world,
                  "who shares a step with a prefix that does not come loses the step and no more") {
  const auto early = reserve(job(30, here, 3));
  core.layers_in(early, 1, now += 1us);
  look();
  step();  // the first chunk behind it; the next is computed while the other's first is
  const auto other = reserve(job(6, here));
  seen = {};
  prefill_outcome chunk;
  chunk.owner = early;
  chunk.start = 20;
  chunk.tokens = 8;
  core.step_ended({chunk}, 8ms, {}, now);
  look();
  REQUIRE(one<prefill_action::compute>()->parts.size() == 2);
  step({ec::timed_out, "layers did not come"});
  CHECK(!has<attempt_failed>());
  REQUIRE(one<prefill_action::compute>());
  CHECK(one<prefill_action::compute>()->parts.at(0).owner == other);
  CHECK(one<prefill_action::compute>()->parts.at(0).start == 0);
  step();
  CHECK(one<first_token>()->id.owner() == other);
  core.fetched(early, {}, now);
  look();
  CHECK(one<prefill_action::compute>()->parts.at(0).owner == early);
  CHECK(one<prefill_action::compute>()->parts.at(0).start == 0);
}

TEST_CASE_FIXTURE(prefill_world, "a device that fails fails its step's requests") {
  reserve(job(6, here));
  step({ec::unavailable, "device"});
  REQUIRE(has<attempt_failed>());
  CHECK(!one<attempt_failed>()->retriable);
  CHECK(core.size() == 0);
}

TEST_CASE_FIXTURE(prefill_world, "a worker that leaves gives back what is not computed, and takes no more") {
  reserve(job(6, here));
  core.leave({ec::unavailable, "the node leaves"});
  CHECK(core.size() == 1);  // the device still computes it
  step();
  REQUIRE(has<attempt_failed>());
  CHECK(one<attempt_failed>()->retriable);
  CHECK_FALSE(one<attempt_failed>()->lost_device);
  CHECK(core.size() == 0);
  core.take(job(6, here), now);
  look();
  REQUIRE(has<attempt_failed>());
  CHECK(one<attempt_failed>()->retriable);
  CHECK(core.size() == 0);
}

namespace {

/// A worker with a pipeline group, whose steps end when the test says so.
struct group_world : prefill_world {
  group_world() : prefill_world(prefetch_mode::wait_complete, 3) {}

  /// Notes a step that has begun. @returns whether one has.
  bool began() {
    const auto* order = one<prefill_action::compute>();
    if (order != nullptr) steps.push_back(order->parts);
    seen.clear();
    return order != nullptr;
  }
  bool free() {
    core.stage_free(now);
    look();
    return began();
  }
  /// The oldest step ends.
  void end(const error& failure = {}) {
    now += 10ms;
    const auto parts = std::move(steps.front());
    steps.pop_front();
    core.step_ended(outcomes_of(parts), 30ms, failure, now);
    look();
  }

  std::deque<std::vector<prefill_part>> steps;  ///< under way
};

}  // namespace

TEST_CASE_FIXTURE(group_world,
                  "a group takes a prompt's chunks one behind the other, as many as it has stages") {
  reserve(job(40, here));
  CHECK(began());
  CHECK(free());
  CHECK(free());
  CHECK(!free());  // three are under way
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(steps[i].size() == 1);
    CHECK(steps[i][0].start == 8 * i);
  }
  end();
  CHECK(began());  // the first stage was free
  end();
  CHECK(!began());  // the fourth is at the first stage
  CHECK(free());
  CHECK(steps.back()[0].last);
  CHECK(core.load().running == 1);
  end();
  end();
  CHECK(!has<prefill_action::hand_over>());
  end();
  REQUIRE(one<prefill_action::hand_over>());
  REQUIRE(one<first_token>());
  CHECK(one<first_token>()->stats.compute_ns ==
        duration{50ms}.count());  // what another prompt would wait for it
  const auto& sums = one<prefill_action::hand_over>()->message.checksums;
  REQUIRE(sums.size() == 10);
  for (std::uint64_t i = 0; i < sums.size(); ++i) CHECK(sums[i] == 100 + i);
  CHECK(core.load().running == 0);
  CHECK(core.load().busy_ns == duration{50ms}.count());  // five stage times of 10 ms, not five steps of 30
}

TEST_CASE_FIXTURE(group_world, "a cancelled prompt keeps its blocks until the last of its steps has ended") {
  const auto j = job(40);
  const auto owner = reserve(j);
  began();
  free();
  free();
  core.cancel(j.id, now);
  core.sent(owner, false, true);
  look();
  CHECK(!has<prefill_action::forget>());
  end();
  CHECK(!has<prefill_action::forget>());
  end();
  CHECK(!has<prefill_action::forget>());
  end();
  CHECK(has<prefill_action::release>());
  CHECK(has<prefill_action::forget>());
}

TEST_CASE_FIXTURE(group_world, "one failure is told of a prompt that is at several stages") {
  reserve(job(40, here));
  began();
  free();
  end({ec::unavailable, "a stage broke"});
  REQUIRE(one<attempt_failed>());
  CHECK(!has<prefill_action::forget>());
  end({ec::unavailable, "a stage broke"});
  CHECK(!has<attempt_failed>());
  CHECK(has<prefill_action::forget>());
}

TEST_CASE_FIXTURE(group_world,
                  "hidden states are summed chunk by chunk, since each sum goes on with the one before") {
  auto j = job(24, here);
  j.sampling.pooling = pooling_kind::mean;
  j.sampling.max_tokens = 1;
  reserve(j);
  CHECK(began());
  CHECK(!free());
  end();
  CHECK(began());
  CHECK(!free());
  end();
  CHECK(began());
  end();
  REQUIRE(one<first_token>());
  CHECK(one<first_token>()->pooled == std::vector<std::uint32_t>{std::bit_cast<std::uint32_t>(1.0f)});
}

TEST_CASE_FIXTURE(group_world,
                  "every token of many prompts is computed once and in order, whenever stages are free") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    group_world w;
    std::mt19937 random{seed};
    std::unordered_map<std::uint64_t, std::uint32_t> computed, wanted;
    bool entered = false;
    const auto note = [&] {
      for (const auto& a : w.seen) {
        if (const auto* step = std::get_if<prefill_action::compute>(&a)) {
          CHECK(!entered);
          entered = true;
          for (const auto& part : step->parts) {
            CHECK(part.start == computed[part.owner]);
            computed[part.owner] += part.tokens;
          }
          w.steps.push_back(step->parts);
        }
      }
      CHECK(w.steps.size() <= 3);
      w.seen.clear();
    };
    for (int turn = 0; turn < 80; ++turn) {
      const auto pick = random() % 3;
      if (pick == 0 && w.core.size() < 2) {
        const auto tokens = 1 + random() % 60;
        wanted[w.reserve(w.job(static_cast<std::uint32_t>(tokens), here))] =
            static_cast<std::uint32_t>(tokens);
      } else if (pick == 1 && entered) {
        entered = false;
        w.core.stage_free(w.now);
        w.look();
      } else if (pick == 2 && w.steps.size() > (entered ? 1u : 0u)) {
        w.end();
      }
      note();
    }
    while (!w.steps.empty()) {
      if (std::exchange(entered, false)) w.core.stage_free(w.now), w.look(), note();
      w.end();
      note();
    }
    CHECK(computed == wanted);
    CHECK(w.core.size() == 0);
  }
}

TEST_CASE("a prefix whose time is over is not waited for") {
  prefill_world w{prefetch_mode::timeout};
  const auto owner = w.reserve(w.job(18, here, 3));
  REQUIRE(w.has<prefill_action::fetch>());
  REQUIRE(w.one<prefill_action::remind>());
  w.core.waited(owner, w.now += 50ms);
  w.look();
  CHECK(!w.has<prefill_action::stop_fetch>());
  w.core.waited(owner, w.now += 50ms);
  w.look();
  CHECK(w.has<prefill_action::stop_fetch>());
  w.core.fetched(owner, {}, w.now);
  w.look();
  CHECK(w.one<prefill_action::compute>()->parts.at(0).start == 0);
}

namespace {

/// The device alone has leading blocks of every prompt.
struct device_world : prefill_world {
  explicit device_world(std::uint32_t blocks) {
    auto o = options(prefetch_mode::wait_complete);
    o.on_device = [blocks](std::span<const block_key> keys) {
      return std::min(blocks, static_cast<std::uint32_t>(keys.size()));
    };
    o.keep_on_device = [blocks](std::uint64_t, std::span<const block_key> keys, std::uint32_t have) {
      const auto held = std::min(blocks, static_cast<std::uint32_t>(keys.size()));
      return held > have ? held : 0;
    };
    core = prefill_core{here, o, prefill_model{{{{8, 0, 0.008}, {64, 0, 0.064}, {64, 64, 0.065}}}}};
  }
};

}  // namespace

TEST_CASE("a prompt begins behind what its device alone has, which leaves with what the first pass makes") {
  device_world w{3};
  w.reserve(w.job(18, here));
  CHECK(w.one<prefill_action::found_on_device>()->blocks == 3);
  CHECK(w.one<prefill_action::compute>()->parts.at(0).start == 12);
  CHECK(w.one<prefill_action::compute>()->parts.at(0).stays);
  w.step();
  device_world away{3};
  away.reserve(away.job(18));
  CHECK(!away.has<prefill_action::send>());  // memory has nothing of it
  CHECK(away.one<prefill_action::compute>()->parts.at(0).start == 12);
  CHECK(away.one<prefill_action::compute>()->parts.at(0).streams);
  CHECK(!away.one<prefill_action::compute>()->parts.at(0).stays);
}

TEST_CASE("another node's prefix is fetched where it is longer than what the device has, by enough") {
  device_world longer{3};
  longer.reserve(longer.job(18, here, 3));
  CHECK(!longer.has<prefill_action::fetch>());
  device_world shorter{1};
  const auto owner = shorter.reserve(shorter.job(18, here, 3));
  REQUIRE(shorter.has<prefill_action::fetch>());
  shorter.core.fetched(owner, {}, shorter.now);  // it has gone there
  shorter.look();
  CHECK(shorter.one<prefill_action::compute>()->parts.at(0).start == 4);
}

namespace {

/// Three blocks of a prompt lie on the own disk, which gives them back layer by layer.
struct disk_world : prefill_world {
  explicit disk_world(prefetch_mode mode = prefetch_mode::wait_complete) {
    auto o = options(mode);
    o.disk_parts = 4;
    core = prefill_core{here, o, prefill_model{{{{8, 0, 0.008}, {64, 0, 0.064}, {64, 64, 0.065}}}}};
  }
  /// Up to the load of its blocks.
  std::uint64_t begin(const work_order& j) {
    const auto owner = j.id.owner();
    core.take(j, now);
    core.looked(owner, {.dram_blocks = 0, .held_blocks = 3, .disk_wait_ns = 0, .disk_block_ns = 1000}, now);
    look();
    REQUIRE(one<prefill_action::pin>());
    CHECK(one<prefill_action::pin>()->what.from_ssd == 0);
    hold({});
    REQUIRE(one<prefill_action::fetch>());
    CHECK(one<prefill_action::fetch>()->what.source == here);
    CHECK(one<prefill_action::fetch>()->what.slots.size() == 3);
    CHECK(one<prefill_action::fetch>()->by_layers);
    return owner;
  }
  /// The answer to the latest pin, and slots for the rest.
  void hold(const pinned_slots& held) {
    const auto pin = *one<prefill_action::pin>();
    core.pinned(pin.owner, pin.what.turn, held);
    look();
    REQUIRE(one<prefill_action::reserve>());
    std::vector<slot_index> slots(one<prefill_action::reserve>()->count);
    for (auto& s : slots) s = next_slot++;
    core.reserved(pin.owner, slots, now);
    look();
  }
};

}  // namespace

TEST_CASE_FIXTURE(disk_world, "a prefix on the own disk is computed behind while it is read") {
  const auto owner = begin(job(18));
  core.layers_in(owner, 1, now += 1us);
  look();
  REQUIRE(has<prefill_action::compute>());
  CHECK(one<prefill_action::compute>()->parts.at(0).start == 12);
  CHECK(one<prefill_action::compute>()->parts.at(0).named_blocks == 0);
  CHECK(!has<prefill_action::open_stream>());
  step();
  CHECK(!has<first_token>());
  SUBCASE("it is right") {
    core.fetched(owner, three(), now);
    look();
    REQUIRE(has<prefill_action::open_stream>());
    CHECK(has<first_token>());
    std::uint32_t sent = 0;
    for (const auto& a : seen) {
      if (const auto* s = std::get_if<prefill_action::send>(&a)) {
        CHECK(s->from == sent);
        sent = s->until;
      }
    }
    CHECK(sent == 18);
    CHECK(core.find(owner)->stats.ssd_tokens == 12);
    CHECK(core.find(owner)->stats.remote_tokens == 0);
    for (const auto& a : seen) {
      if (const auto* c = std::get_if<prefill_action::commit>(&a)) CHECK(c->items.size() == 1);  // its own
    }
  }
  SUBCASE("a block of it is not") {
    auto got = three();
    got.blocks.pop_back();
    core.fetched(owner, got, now);
    look();
    // The shard published those that are good, so nothing is computed into their slots.
    CHECK(has<prefill_action::choose_again>());
    CHECK(has<prefill_action::release>());
    CHECK(!has<prefill_action::compute>());
    REQUIRE(has<prefill_action::pin>());
    hold({.slots = {90, 91}, .checksums = {1, 2}});
    CHECK(has<prefill_action::open_stream>());
    CHECK(one<prefill_action::compute>()->parts.at(0).start == 8);
    CHECK(one<prefill_action::compute>()->parts.at(0).named_blocks == 4);
    CHECK(core.find(owner)->claim.slots().front() == 90);
  }
}

TEST_CASE("a device's link brings the first layers from memory while the disk reads the others") {
  // 6 tokens take some 6 ms to compute, 3 blocks 30 ms on the link; the disk will take 2 x 20 ms.
  struct blocks_asked {
    std::size_t known = 0;
    std::uint32_t all = 0;
  } asked;
  disk_world near, far;
  near.begin(near.job(18));
  auto o = options(prefetch_mode::wait_complete);
  o.disk_parts = 4;
  o.to_device = [&](std::span<const block_key> keys, std::uint32_t blocks) {
    asked = {keys.size(), blocks};
    return 10ms * blocks;
  };
  far.core = prefill_core{here, o, prefill_model{{{{8, 0, 0.008}, {64, 0, 0.064}, {64, 64, 0.065}}}}};
  const auto owner = far.begin(far.job(18));
  for (auto* w : {&near, &far}) {
    w->core.layers_in(owner, 1, w->now += 20ms);
    w->look();
  }
  CHECK(!near.has<prefill_action::compute>());  // it would hold the device and wait
  REQUIRE(far.has<prefill_action::compute>());
  CHECK(far.one<prefill_action::compute>()->parts.at(0).patience);
  CHECK(asked.known == 0);  // nothing of the prompt is in memory, so nothing of it is there by its key
  CHECK(asked.all == 3);
}

TEST_CASE_FIXTURE(disk_world, "a prefix that others read already is waited for with them") {
  const auto owner = begin(job(18, here));
  core.fetched(owner, {}, now);  // the shard refused
  look();
  CHECK(has<prefill_action::release>());
  REQUIRE(one<prefill_action::pin>());
  CHECK(one<prefill_action::pin>()->what.from_ssd == 3);
  hold({.slots = {90, 91, 92}, .checksums = {1, 2, 3}, .from_ssd = 3});
  CHECK(one<prefill_action::compute>()->parts.at(0).start == 12);
  CHECK(core.find(owner)->stats.ssd_tokens == 12);
}

TEST_CASE("a prefix on disk whose time is over is computed, in other slots than the disk still writes") {
  disk_world w{prefetch_mode::timeout};
  const auto owner = w.begin(w.job(18, here));
  REQUIRE(w.one<prefill_action::remind>());
  w.core.waited(owner, w.now += 100ms);
  w.look();
  CHECK(w.has<prefill_action::release>());
  REQUIRE(w.one<prefill_action::pin>());
  CHECK(w.one<prefill_action::pin>()->what.from_ssd == 0);
  w.core.fetched(owner, {}, w.now);  // its owner's end withdrew the load
  w.look();
  CHECK(w.seen.empty());
  w.seen = {prefill_action::pin{owner, {{}, 0, 2}}};
  w.hold({});
  CHECK(!w.has<prefill_action::fetch>());
  CHECK(w.one<prefill_action::compute>()->parts.at(0).start == 0);
}

TEST_CASE_FIXTURE(prefill_world,
                  "what a worker loads, what came of it and what it computed can be replayed") {
  std::string file;
  auto o = options(prefetch_mode::wait_complete);
  o.journal = kept_in(file);
  core = prefill_core{here, std::move(o), prefill_model{{{{8, 0, 0.008}, {64, 0, 0.064}, {64, 64, 0.065}}}}};
  const auto owner = reserve(job(18, here, 3));
  auto got = three();
  got.blocks.pop_back();
  core.fetched(owner, got, now += 7ms);
  look();
  while (!has<first_token>()) step();
  core.close_journal();
  std::vector<journal::worker_line> lines;
  const auto again = journal::replay_worker(file, "j", &lines);
  REQUIRE(again);
  CHECK(!again->first);
  CHECK(again->decisions == 1);
  REQUIRE(lines.size() == 3);
  for (const auto& line : lines) CHECK(line.one_try == request_id{owner});
  CHECK(
      lines[0].text.starts_with("of 18 tokens 0 blocks are in memory, 3 more at another node (0.003 ms); "));
  CHECK(lines[1].text.starts_with("2 of 3 blocks came from node " + to_string(holder) + " in 7.000 ms"));
  CHECK(lines[2].text.starts_with("computed 10 tokens in "));
}
