#include "runtime/sim/cost_model.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

profile a800() {
  auto p = builtin_profile("a800x8-llama70b");
  REQUIRE(p);
  return *p;
}

double relative(double modelled, double published) { return std::abs(modelled / published - 1); }

}  // namespace

TEST_CASE("the A800 profile gives the published single-request times of FAST '25, figure 14") {
  const auto p = a800();
  const cost_model costs{p};
  constexpr std::array<std::uint32_t, 5> tokens{8192, 16384, 32768, 65536, 131072};
  constexpr std::array uncached{1.00, 2.05, 4.48, 10.6, 27.5};
  constexpr std::array cached{0.135, 0.227, 0.406, 0.88, 2.33};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    CAPTURE(tokens[i]);
    CHECK(relative(costs.prefill(tokens[i], 0), uncached[i]) < 0.15);
    const auto prefix = static_cast<std::uint32_t>(0.95 * tokens[i]);
    CHECK(relative(costs.prefill(tokens[i], prefix), cached[i]) < 0.25);
  }
  CHECK(relative(costs.decode_step(1, 8192), 0.0265) < 0.03);
  CHECK(relative(costs.decode_step(1, 131072), 0.0308) < 0.03);
  CHECK(p.kv_bytes_per_token == 327'680);
}

TEST_CASE("every built-in profile prints and reads back to itself") {
  for (const auto& name : builtin_profiles()) {
    CAPTURE(name);
    const auto p = builtin_profile(name);
    REQUIRE(p);
    auto again = parse_profile(to_toml(*p), "again.toml");
    REQUIRE(again);
    CHECK(again->costs.prefill_token_s == doctest::Approx(p->costs.prefill_token_s));
    CHECK(to_toml(*again) == to_toml(*p));
  }
}

TEST_CASE("a profile with a mistake is refused with its line") {
  const auto detail = [](const char* text) {
    const auto p = parse_profile(text, "p.toml");
    REQUIRE_FALSE(p);
    return p.error().detail;
  };
  CHECK(detail("[model]\nlayerz = 3\n") == "p.toml:2: model.layerz: no such key");
  CHECK(detail("[model]\n\nlayers = 0\n").find("p.toml:3: model.layers: 0 is out of range (1.0 to ") == 0);
  CHECK(detail("[model]\nlayers = 1.5\n").find("whole number") != std::string::npos);
  CHECK(detail("[model]\nlayers = \"80\"\n").find("a number expected") != std::string::npos);
  CHECK(detail("[model\n").find("p.toml:1") == 0);
  const auto unknown = builtin_profile("a900");
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().detail.find("a800x8-llama70b") != std::string::npos);
}

TEST_CASE("costs fitted to measurements of a model give that model back") {
  const auto p = a800();
  const auto c = fit_costs(prefill_samples(p), decode_samples(p));
  CHECK(relative(c.decode_constant_s, p.costs.decode_constant_s) < 0.01);
  CHECK(relative(c.decode_context_token_s, p.costs.decode_context_token_s) < 0.01);
  CHECK(relative(c.prefill_token_s, p.costs.prefill_token_s) < 0.1);
}

TEST_CASE("a fit tells how far it is from what it was fitted to") {
  const auto p = a800();
  auto passes = prefill_samples(p);
  const auto steps = decode_samples(p);
  const auto exact = error_of(fit_costs(passes, steps), passes, steps);
  CHECK(exact.decode_most < 1e-6);
  auto costs = p.costs;
  costs.prefill_cached_token_s = 0;
  costs.decode_constant_s *= 1.1, costs.decode_sequence_s *= 1.1, costs.decode_context_token_s *= 1.1;
  const auto off = error_of(costs, passes, steps);
  CHECK(off.decode_mean == doctest::Approx(0.1));
  CHECK(off.decode_most == doctest::Approx(0.1));
}
