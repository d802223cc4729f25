#include "runtime/model/calibration.hpp"

#include <doctest/doctest.h>

#include "tests/runtime/model/model_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

struct calibrated {
  std::unique_ptr<device> dev = make_host_device({});
  std::shared_ptr<const model> m = unwrap(model::dummy(
      *dev, unwrap(dummy_shape("dummy:layers=2,dim=64,heads=2,kv_heads=1,ffn=128,vocab=300,type=q4_1")), 1));

  std::unique_ptr<model_runner> runner(std::uint32_t tokens, std::uint32_t rows) const {
    runner_options options;
    options.max_batch_tokens = tokens;
    options.max_logit_rows = rows;
    options.layout = m->layout(16, kv_dtype::f16);
    return unwrap(model_runner::make(m, *dev, options));
  }
};

}  // namespace

TEST_CASE("a prefill worker measures passes of several lengths, each with and without a prefix") {
  const calibrated c;
  const auto runner = c.runner(256, 1);
  const auto samples = unwrap(calibrate_prefill(*runner, runner->options().context_tokens, 256));
  REQUIRE(samples.size() >= 4);
  CHECK(samples.size() % 2 == 0);
  for (std::size_t i = 0; i < samples.size(); i += 2) {
    CHECK(samples[i][0] == samples[i + 1][0]);
    CHECK(samples[i][1] == 0);
    CHECK(samples[i + 1][1] > 0);
    CHECK(samples[i][2] > 0);
    CHECK(samples[i + 1][2] > 0);
  }
  CHECK(samples.back()[0] <= 256);
}

TEST_CASE("a decode worker measures batches up to its largest, each with short and long contexts") {
  const calibrated c;
  const auto runner = c.runner(12, 12);
  const auto samples = unwrap(calibrate_decode(*runner, runner->options().context_tokens, 12));
  REQUIRE(samples.size() >= 4);
  CHECK(samples.front()[0] == 1);
  for (std::size_t i = 0; i < samples.size(); i += 2) {
    CHECK(samples[i][0] == samples[i + 1][0]);
    CHECK(samples[i][1] < samples[i + 1][1]);
    CHECK(samples[i][2] > 0);
  }
  CHECK(samples.back()[0] <= 12);
}

TEST_CASE("what the model refuses, calibration tells") {
  const calibrated c;
  const auto runner = c.runner(16, 1);
  CHECK(!calibrate_decode(*runner, 512, 4));    // rows of logits for one sequence
  CHECK(!calibrate_prefill(*runner, 512, 64));  // passes of 16 tokens at most
}

TEST_CASE(
    "another program that slows most passes down does not spoil a calibration, and a slow device is not "
    "kept") {
  const std::vector<pass_shape> shapes{{32, 0}, {64, 0}, {128, 0}, {256, 0}, {512, 0}};
  time_point now{};
  std::size_t taken = 0;
  const auto clock = [&] { return now; };
  // Every pass is ten times too slow in two rounds of three, each shape in two of its own.
  const auto disturbed = [&](std::size_t i) -> result<duration> {
    const auto round = taken++ / shapes.size();
    const auto truth = duration{shapes[i][0] * 50'000};
    const auto took = (round + i) % 3 == 0 ? truth : 10 * truth;
    now += took;
    return took;
  };
  const auto samples = unwrap(best_of_rounds(shapes, disturbed, clock));
  REQUIRE(samples.size() == shapes.size());
  for (const auto& s : samples) CHECK(s[2] == s[0] * 50'000);

  std::size_t asked = 0;
  const auto slow = [&](std::size_t) -> result<duration> {
    ++asked;
    now += std::chrono::seconds(3);
    return duration{std::chrono::seconds(3)};
  };
  CHECK(unwrap(best_of_rounds(shapes, slow, clock)).size() == 4);  // what a fit needs, and no more
  CHECK(asked == 4);
  CHECK(!best_of_rounds(
      shapes, [](std::size_t) -> result<duration> { return fail(ec::internal); }, clock));
}
