#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/sim/cost_model.hpp"
#include "runtime/sim/derived_profile.hpp"
#include "runtime/sim/price_list.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

/// A published time, and ours. Prefill: of a lone prompt. Decode: between the tokens of a user, with as many
/// users, each of whom asks again when he has his answer: a step of all of them, and what the prompts of the
/// others add to it.
struct point {
  std::string source, profile, phase;
  std::uint32_t users = 1, input = 0, output = 1;
  double published_ms = 0, ours_ms = 0;
  bool fitted = false;

  double off() const { return ours_ms / published_ms - 1; }
};

double modelled_ms(const point& p) {
  const auto hardware = builtin_profile(p.profile);
  REQUIRE_MESSAGE(hardware, p.profile, ": ", hardware.error().detail);
  const cost_model costs{*hardware};
  const double prefill = costs.prefill(p.input, 0);
  if (p.phase == "prefill") return prefill * 1e3;
  const auto context = static_cast<std::uint64_t>(p.users * (p.input + p.output / 2.0));
  return (costs.decode_step(p.users, context) + (p.users - 1.0) / p.output * prefill) * 1e3;
}

const std::vector<point>& points() {
  static const auto all = [] {
    std::vector<point> read;
    std::ifstream file{MOONCAF_PUBLISHED_POINTS};
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::stringstream cells{line};
      std::array<std::string, 8> c;
      for (auto& cell : c) std::getline(cells, cell, ',');
      auto& p = read.emplace_back();
      p.source = c[0], p.profile = c[1], p.phase = c[2];
      p.users = static_cast<std::uint32_t>(std::stoul(c[3]));
      p.input = static_cast<std::uint32_t>(std::stoul(c[4]));
      p.output = static_cast<std::uint32_t>(std::stoul(c[5]));
      p.published_ms = std::stod(c[6]);
      p.fitted = c[7] == "fit";
      p.ours_ms = modelled_ms(p);
    }
    return read;
  }();
  return all;
}

std::string printed(const char* form, double v) {
  char text[32];
  std::snprintf(text, sizeof text, form, v);
  return text;
}

/// The table of the page.
std::string table() {
  std::string out =
      "| source | profile | time | users | in | out | published, ms | ours, ms | off by | |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n";
  for (const auto& p : points()) {
    out += "| " + p.source + " | `" + p.profile + "` | " + p.phase + " | " + std::to_string(p.users) + " | " +
           std::to_string(p.input) + " | " + std::to_string(p.output) + " | " +
           printed("%.4g", p.published_ms) + " | " + printed("%.4g", p.ours_ms) + " | " +
           printed("%+.0f %%", 100 * p.off()) + " | " + (p.fitted ? "fit" : "") + " |\n";
  }
  return out;
}

}  // namespace

TEST_CASE("computed profiles come near published times that they were not fitted to") {
  double sum = 0, worst = 0;
  std::size_t compared = 0, far = 0;
  std::set<std::string> machines, models;
  for (const auto& p : points()) {
    const auto d = parse_deployment(p.profile);
    REQUIRE(d);
    machines.insert(std::string{d->device.name});
    models.insert(std::string{d->model.name});
    if (p.fitted) continue;
    ++compared;
    const double off = std::abs(p.off());
    sum += off;
    worst = std::max(worst, off);
    if (off > 0.25) ++far;
  }
  CHECK(compared >= 30);
  CHECK(machines.size() == accelerators().size());
  CHECK(models.size() == language_models().size());
  // What tests/bench/PROFILES.md says.
  CHECK(sum / static_cast<double>(compared) < 0.12);
  CHECK(static_cast<double>(far) < 0.12 * static_cast<double>(compared));
  CHECK(worst < 0.55);
}

TEST_CASE("the page of profiles has these points; MOONCAF_REWRITE_GOLDEN=1 rewrites it") {
  const std::string path = MOONCAF_PROFILES_PAGE, mark = "| source |";
  std::stringstream page;
  page << std::ifstream{path}.rdbuf();
  const auto text = page.str();
  const auto at = text.find(mark);
  REQUIRE(at != std::string::npos);
  if (std::getenv("MOONCAF_REWRITE_GOLDEN") != nullptr) std::ofstream{path} << text.substr(0, at) << table();
  else CHECK(text.substr(at) == table());
}

TEST_CASE("a computed profile follows from device, model and precision") {
  const auto of = [](const char* name) {
    const auto p = builtin_profile(name);
    REQUIRE_MESSAGE(p, p.error().detail);
    return *p;
  };
  CHECK(of("h100x2-llama3-70b-fp8").kv_bytes_per_token == 327'680);
  CHECK(of("h100x2-llama3-70b-fp8-kv8").kv_bytes_per_token == 163'840);
  CHECK(of("h200x8-deepseek-v3-fp8").kv_bytes_per_token == 61 * (512 + 64) * 2);
  // Parameters as published.
  CHECK(step_model{*parse_deployment("h100-llama3-8b")}.parameters() ==
        doctest::Approx(8.03e9).epsilon(0.01));
  CHECK(step_model{*parse_deployment("h100-llama3-70b")}.parameters() ==
        doctest::Approx(70.6e9).epsilon(0.01));
  CHECK(step_model{*parse_deployment("h100-qwen3-235b")}.parameters() ==
        doctest::Approx(235e9).epsilon(0.01));
  CHECK(step_model{*parse_deployment("h100-deepseek-v3")}.parameters() ==
        doctest::Approx(671e9).epsilon(0.01));
  // More devices, fewer bits: faster, and more room.
  const auto one = of("h200-llama3-70b-fp8"), four = of("h200x4-llama3-70b-fp8"),
             wide = of("h200x4-llama3-70b");
  CHECK(four.costs.prefill_token_s < one.costs.prefill_token_s / 2);
  CHECK(four.costs.prefill_token_s < wide.costs.prefill_token_s);
  CHECK(four.costs.decode_constant_s < wide.costs.decode_constant_s);
  CHECK(four.device_kv_tokens > wide.device_kv_tokens);
}

TEST_CASE("a profile that cannot be computed says why") {
  const auto refused = [](const char* name) {
    const auto p = builtin_profile(name);
    REQUIRE_FALSE(p);
    return p.error().detail;
  };
  CHECK(refused("h100-llama3-70b").find("141 GB of weights, 1 x 80 GB of memory") != std::string::npos);
  CHECK(refused("a100x4-llama3-70b-fp8").find("a100 does not multiply in that format") != std::string::npos);
  CHECK(refused("h100x9-llama3-8b").find("1 to 8 devices") != std::string::npos);
  CHECK(refused("h100x-llama3-8b").find("1 to 8 devices") != std::string::npos);
  CHECK(refused("h100-llama9").find("no such model") != std::string::npos);
  CHECK(refused("h100-llama3-8b-fp7").find("'-fp7' is not understood") != std::string::npos);
  CHECK(refused("v100-llama3-8b").find("h100|h200") != std::string::npos);
}

TEST_CASE("a price list may name the profile, the machine or one device") {
  const auto prices =
      parse_prices("[node_hour]\nh100 = 2\nh100x8 = 12\nh100x2-llama3-8b = 5\n", "prices.toml");
  REQUIRE(prices);
  CHECK(prices->price_of("h100x2-llama3-8b").value() == 5);
  CHECK(prices->price_of("h100x8-llama3-70b-fp8").value() == 12);
  CHECK(prices->price_of("h100x4-llama3-70b-fp8").value() == 8);
  CHECK_FALSE(prices->price_of("a100x4-llama3-70b"));
}
