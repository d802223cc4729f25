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
  const auto samples = unwrap(calibrate_prefill(*runner, 256));
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
  const auto samples = unwrap(calibrate_decode(*runner, 12));
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
  CHECK(!calibrate_decode(*runner, 4));    // rows of logits for one sequence
  CHECK(!calibrate_prefill(*runner, 64));  // passes of 16 tokens at most
}
