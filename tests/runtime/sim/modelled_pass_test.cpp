#include "runtime/sim/modelled_pass.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>

using namespace mooncaf;
using namespace mooncaf::sim;
using namespace std::chrono_literals;

namespace {

profile small_machine() {
  profile p;
  p.block_tokens = 16;
  p.costs = {.prefill_constant_s = 0.010,
             .prefill_token_s = 0.001,
             .prefill_pair_s = 0,
             .prefill_cached_token_s = 0.0005,
             .decode_constant_s = 0.020,
             .decode_sequence_s = 0.002,
             .decode_context_token_s = 0.0001};
  return p;
}

/// A clock that moves when somebody waits.
struct manual_time {
  time_point now{1h};
  pacing pace() {
    return {[this] { return now; }, [this](time_point until) { now = std::max(now, until); }};
  }
};

/// One sequence with memory of its own.
struct sequence {
  explicit sequence(const kv_layout& l, std::size_t blocks = 64) : memory(blocks * l.block_bytes()) {
    for (std::size_t i = 0; i < blocks; ++i) at.push_back(memory.data() + i * l.block_bytes());
  }
  std::vector<std::byte> memory;
  std::vector<std::byte*> at;
};

std::int32_t chosen(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

std::vector<std::int32_t> some_prompt(std::uint64_t seed, std::size_t n) {
  std::mt19937_64 random{seed};
  std::vector<std::int32_t> out(n);
  for (auto& t : out) t = static_cast<std::int32_t>(random() % first_length_word);
  return out;
}

}  // namespace

TEST_CASE(
    "the first stage of a modelled group is free after its share of a step, which takes its time and the "
    "hops") {
  auto machine = small_machine();
  machine.network_latency_s = 0.002;
  manual_time time;
  modelled_pass pass{{machine, worker_role::prefill, 1, 4}, time.pace()};
  CHECK(pass.stages() == 4);
  std::vector<time_point> free;
  pass.when_free([&] { free.push_back(time.now); });
  const auto prompt = some_prompt(3, 190);
  sequence s{pass.layout()};
  std::vector<float> logits(modelled_vocab);
  const batch_item item{prompt, 0, s.at, true};
  const auto began = time.now;
  REQUIRE(pass.forward({&item, 1}, logits).has_value());
  CHECK(free == std::vector{began + 50ms});
  CHECK(time.now - began == 206ms);

  manual_time other;
  modelled_pass alone{{machine, worker_role::prefill}, other.pace()};
  sequence t{pass.layout()};
  std::vector<float> expected(modelled_vocab);
  const batch_item same{prompt, 0, t.at, true};
  REQUIRE(alone.forward({&same, 1}, expected).has_value());
  CHECK(logits == expected);
  CHECK(s.memory == t.memory);

  const std::atomic<bool> cancelled{true};
  CHECK(pass.forward({&item, 1}, logits, {}, &cancelled).error() == ec::cancelled);
  CHECK(free.size() == 2);
  CHECK(!pass.forward({&item, 1}, {}).has_value());  // no room for its logits
  CHECK(free.size() == 3);
}

TEST_CASE("a modelled answer depends on the tokens before it alone, however they are cut into passes") {
  const auto machine = small_machine();
  std::mt19937_64 random{7};
  for (int round = 0; round < 50; ++round) {
    CAPTURE(round);
    const auto prompt = some_prompt(random(), 2 + random() % 200);
    const auto answer = [&](std::size_t first_cut) {
      manual_time time;
      modelled_pass pass{{machine, worker_role::prefill}, time.pace()};
      sequence s{pass.layout()};
      std::vector<float> logits(pass.vocab_size());
      const auto all = std::span{prompt};
      if (first_cut > 0) {
        const batch_item head{all.first(first_cut), 0, s.at};
        REQUIRE(pass.forward({&head, 1}, {}));
      }
      const batch_item rest{all.subspan(first_cut), static_cast<std::uint32_t>(first_cut), s.at, true};
      REQUIRE(pass.forward({&rest, 1}, logits));
      std::vector<std::int32_t> out{chosen(logits)};
      while (out.size() < 20) {
        const batch_item next{std::span{&out.back(), 1},
                              static_cast<std::uint32_t>(prompt.size() + out.size() - 1), s.at, true};
        REQUIRE(pass.forward({&next, 1}, logits));
        out.push_back(chosen(logits));
      }
      return out;
    };
    const auto whole = answer(0);
    CHECK(whole == answer(1 + random() % (prompt.size() - 1)));
    for (const auto token : whole) CHECK((token >= first_answer_word && token < first_length_word));
  }
}

TEST_CASE("a length word says how long the answer is, and another attempt with a part of it ends alike") {
  manual_time time;
  modelled_pass pass{{small_machine(), worker_role::decode}, time.pace()};
  std::vector<float> logits(pass.vocab_size());
  auto tokens = some_prompt(3, 40);
  tokens.push_back(first_length_word + 4);  // asks for five tokens
  std::vector<std::int32_t> answer;
  while (answer.empty() || answer.back() != 256) {
    // Every attempt computes all of it from nothing, as after a lost node.
    sequence s{pass.layout()};
    const batch_item item{tokens, 0, s.at, true};
    REQUIRE(pass.forward({&item, 1}, logits));
    answer.push_back(chosen(logits));
    tokens.push_back(answer.back());
    REQUIRE(answer.size() <= 5);
  }
  CHECK(answer.size() == 5);
}

TEST_CASE("a modelled pass takes as long as the profile says, scaled, and no pause between steps counts") {
  manual_time time;
  modelled_pass prefill{{small_machine(), worker_role::prefill, 2}, time.pace()};
  sequence s{prefill.layout()};
  const auto prompt = some_prompt(1, 100);
  const auto begin = time.now;
  const batch_item item{prompt, 0, s.at, false, {}, 0};
  REQUIRE(prefill.forward({&item, 1}, {}));
  CHECK(to_seconds(time.now - begin) == doctest::Approx(0.110 / 2));
  // The caller took 3 ms to come round: the device did not stand still for it.
  time.now += 3ms;
  const batch_item behind{prompt, 100, s.at, false, {}, 100};
  REQUIRE(prefill.forward({&behind, 1}, {}));
  CHECK(to_seconds(time.now - begin) == doctest::Approx(0.110 / 2 + 0.160 / 2));
  time.now += 1s;
  const auto later = time.now;
  modelled_pass decode{{small_machine(), worker_role::decode}, time.pace()};
  sequence other{decode.layout()};
  const batch_item pair[] = {{std::span{prompt}.first(1), 200, s.at},
                             {std::span{prompt}.first(1), 0, other.at}};
  REQUIRE(decode.forward(pair, {}));
  CHECK(to_seconds(time.now - later) == doctest::Approx(0.020 + 2 * 0.002 + 202 * 0.0001));
}

TEST_CASE("layers leave one by one, a slow prefix delays only what needs it, and a cancel ends the wait") {
  manual_time time;
  modelled_pass pass{{small_machine(), worker_role::prefill}, time.pace()};
  sequence s{pass.layout()};
  const auto prompt = some_prompt(1, 190);  // 200 ms
  const batch_item item{prompt, 0, s.at};
  const auto begin = time.now;
  std::vector<double> left;
  const auto done = [&](std::uint32_t) { left.push_back(to_seconds(time.now - begin)); };
  REQUIRE(pass.forward({&item, 1}, {}, done));
  REQUIRE(left.size() == 2);
  CHECK(left[0] == doctest::Approx(0.1));
  CHECK(left[1] == doctest::Approx(0.2));
  time.now += 1s;
  const auto again = time.now;
  REQUIRE(pass.forward({&item, 1}, {}, {}, nullptr, [&](std::uint32_t layer) -> result<void> {
    if (layer == 1) time.now = std::max(time.now, again + 150ms);  // the last layer's prefix comes late
    return {};
  }));
  CHECK(to_seconds(time.now - again) == doctest::Approx(0.25));
  const std::atomic<bool> cancelled = true;
  const auto third = time.now;
  CHECK(pass.forward({&item, 1}, {}, {}, &cancelled).error() == ec::cancelled);
  CHECK(time.now == third);
}

TEST_CASE("KV whose layers do not belong together is told from what a pass wrote") {
  manual_time time;
  modelled_pass pass{{small_machine(), worker_role::prefill}, time.pace()};
  sequence s{pass.layout()};
  const auto prompt = some_prompt(9, 33);
  const batch_item item{std::span{prompt}.first(32), 0, s.at};
  REQUIRE(pass.forward({&item, 1}, {}));
  const batch_item last{std::span{prompt}.subspan(32), 32, s.at};
  CHECK(pass.forward({&last, 1}, {}));
  // The second layer of the block before never came.
  auto* block = s.at[1] + pass.layout().layer_bytes();
  std::fill(block, block + pass.layout().layer_bytes(), std::byte{});
  CHECK(pass.forward({&last, 1}, {}).error() == ec::corrupt);
}

TEST_CASE("what a modelled pass cannot take is refused by name") {
  manual_time time;
  modelled_pass pass{{small_machine(), worker_role::prefill}, time.pace()};
  sequence s{pass.layout(), 1};
  const std::vector<std::int32_t> foreign{5, 2560};
  batch_item item{foreign, 0, s.at};
  CHECK(pass.forward({&item, 1}, {}).error().detail == "token id 2560 is outside 0 to 2559");
  const std::vector<std::int32_t> fine{5, 6};
  item.tokens = fine;
  item.start = 16;
  CHECK(pass.forward({&item, 1}, {}).error().detail == "blocks do not cover 18 positions");
}
