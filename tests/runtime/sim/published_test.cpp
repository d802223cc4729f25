#include <doctest/doctest.h>

#include <algorithm>
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

double modelled_ms(const point& p, const profile& hardware) {
  const cost_model costs{hardware};
  const double prefill = costs.prefill(p.input, 0);
  if (p.phase == "prefill") return prefill * 1e3;
  const auto context = static_cast<std::uint64_t>(p.users * (p.input + p.output / 2.0));
  return (costs.decode_step(p.users, context) + (p.users - 1.0) / p.output * prefill) * 1e3;
}

double modelled_ms(const point& p) {
  const auto hardware = builtin_profile(p.profile);
  REQUIRE_MESSAGE(hardware, p.profile, ": ", hardware.error().detail);
  return modelled_ms(p, *hardware);
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

/// What can be chosen by looking at published points: all shares of the peaks, all shares of the memory's
/// bandwidth, and what lies between two steps, each of every device alike.
struct choice {
  double products = 1, memory = 1;  ///< times what kernels were measured to reach
  double step_s = 0.5e-3;
};

double modelled_ms(const point& p, const choice& chosen) {
  auto d = parse_deployment(p.profile);
  REQUIRE(d);
  for (auto* share : {&d->device.matmul_16, &d->device.matmul_8, &d->device.matmul_4})
    *share *= chosen.products;
  for (auto* share : {&d->device.memory_share, &d->device.kv_share}) *share *= chosen.memory;
  d->device.step_s = chosen.step_s;
  const auto hardware = derive_profile(*d, p.profile);
  REQUIRE(hardware);
  return modelled_ms(p, *hardware);
}

/// This machine's shares are its own measurements, and no other source has it: nothing else can tell it.
bool is_of_a_data_sheet(const point& p) { return p.source != "here"; }

/// A source that took no part in choosing.
struct held_out {
  std::string source;
  std::size_t points = 0;
  choice chosen;  ///< by all others: the least mean error there
  double among_others = 0, blind = 0,
         as_is = 0;  ///< mean errors, absolute shares; the last: of the catalogue
};

std::vector<choice> choices() {
  std::vector<choice> all;
  for (const double products : {0.8, 0.9, 1.0, 1.1, 1.2}) {
    for (const double memory : {0.8, 0.9, 1.0, 1.1, 1.2}) {
      for (const double step_ms : {0.0, 0.25, 0.5, 1.0, 2.0})
        all.push_back({products, memory, step_ms * 1e-3});
    }
  }
  return all;
}

/// Mean error of the points of (or not of) a source.
double mean_off(const std::vector<double>& ours, const std::string& source, bool of_it) {
  double sum = 0;
  std::size_t n = 0;
  for (std::size_t i = 0; i < points().size(); ++i) {
    const auto& p = points()[i];
    if (!is_of_a_data_sheet(p) || (p.source == source) != of_it) continue;
    sum += std::abs(ours[i] / p.published_ms - 1);
    ++n;
  }
  return sum / static_cast<double>(n);
}

const std::vector<held_out>& each_held_out() {
  static const auto all = [] {
    const auto tried = choices();
    std::vector<std::vector<double>> ours;  // by choice, by point
    std::vector<double> as_is;
    for (const auto& c : tried) {
      auto& times = ours.emplace_back();
      for (const auto& p : points()) times.push_back(is_of_a_data_sheet(p) ? modelled_ms(p, c) : 0);
    }
    for (const auto& p : points()) as_is.push_back(p.ours_ms);
    std::vector<held_out> out;
    for (const auto& p : points()) {
      if (!is_of_a_data_sheet(p)) continue;
      const auto known = std::ranges::find(out, p.source, &held_out::source);
      auto& h = known != out.end() ? *known : out.emplace_back(held_out{p.source, 0, {}, 1e9, 0, 0});
      if (h.points++ > 0) continue;
      h.as_is = mean_off(as_is, h.source, true);
      for (std::size_t i = 0; i < tried.size(); ++i) {
        const double others = mean_off(ours[i], h.source, false);
        if (others >= h.among_others) continue;
        h.among_others = others;
        h.chosen = tried[i];
        h.blind = mean_off(ours[i], h.source, true);
      }
    }
    return out;
  }();
  return all;
}

/// Mean blind error of all points that are of a data sheet.
double blind_error() {
  double sum = 0, n = 0;
  for (const auto& h : each_held_out()) {
    sum += h.blind * static_cast<double>(h.points);
    n += static_cast<double>(h.points);
  }
  return sum / n;
}

std::string printed(const char* form, double v);

/// The tables of the page.
std::string held_out_table() {
  std::string out =
      "| held out | points | products x | memory x | step, ms | error of the others | blind error | as in "
      "the catalogue |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const auto& h : each_held_out()) {
    out += "| " + h.source + " | " + std::to_string(h.points) + " | " + printed("%.1f", h.chosen.products) +
           " | " + printed("%.1f", h.chosen.memory) + " | " + printed("%.2f", 1e3 * h.chosen.step_s) + " | " +
           printed("%.1f %%", 100 * h.among_others) + " | " + printed("%.1f %%", 100 * h.blind) + " | " +
           printed("%.1f %%", 100 * h.as_is) + " |\n";
  }
  return out + "| all | | | | | | " + printed("%.1f %%", 100 * blind_error()) + " | |\n\n";
}

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

TEST_CASE("sources that took no part in choosing constants are met about as well as the others") {
  REQUIRE(each_held_out().size() >= 7);
  CHECK(blind_error() < 0.16);
}

TEST_CASE("the page of profiles has these points; MOONCAF_REWRITE_GOLDEN=1 rewrites it") {
  const std::string path = MOONCAF_PROFILES_PAGE, mark = "| held out |";
  std::stringstream page;
  page << std::ifstream{path}.rdbuf();
  const auto text = page.str();
  const auto at = text.find(mark);
  REQUIRE(at != std::string::npos);
  if (std::getenv("MOONCAF_REWRITE_GOLDEN") != nullptr)
    std::ofstream{path} << text.substr(0, at) << held_out_table() << table();
  else CHECK(text.substr(at) == held_out_table() + table());
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
