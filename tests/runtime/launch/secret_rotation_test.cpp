#include "runtime/launch/secret_rotation.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using namespace mooncaf;
using namespace mooncaf::launch;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    all.push_back(text.substr(at, text.find('\n', at) - at));
  return all;
}

/// Hosts' files and the operator's, and what must hold at every moment.
struct world {
  std::vector<std::string> hosts{5, "first\n"};
  std::string kept = "first\n";

  void check() const {
    for (const auto& from : hosts)
      for (const auto& to : hosts) {
        const auto accepted = lines_of(to);
        CHECK(std::ranges::count(accepted, lines_of(from).front()) == 1);
      }
  }
  /// A host that joins now gets what the operator keeps.
  void check_newcomer() const {
    auto with = *this;
    with.hosts.push_back(kept);
    with.check();
  }
};

}  // namespace

TEST_CASE("every process lets in every other at each moment of a rotation, wherever it is cut off") {
  std::mt19937 random{3};
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    world w;
    for (int attempt = 0;; ++attempt) {
      REQUIRE(attempt < 50);
      const auto steps = rotation_steps(w.kept, "fresh " + std::to_string(attempt));
      REQUIRE(steps);
      // The first attempts end somewhere, as their operator's machine does; the last one does not.
      auto left = attempt < 3 ? static_cast<int>(random() % 20) : 1000;
      for (const auto& step : *steps) {
        if (step.keep) {
          if (left-- <= 0) break;
          w.kept = step.lines;
          w.check_newcomer();
          continue;
        }
        std::vector<std::size_t> order{0, 1, 2, 3, 4};
        std::ranges::shuffle(order, random);
        for (const auto host : order) {
          if (left-- <= 0) break;
          w.hosts[host] = step.lines;
          w.check();
        }
        if (left < 0) break;
      }
      if (left > 0) break;
    }
    CHECK(w.kept != "first\n");
    for (const auto& host : w.hosts) CHECK(host == w.kept);
    CHECK(lines_of(w.kept).size() == 1);
  }
}

TEST_CASE(
    "a rotation that was cut off goes on with the same secret, and the settling comes before the last step") {
  const auto fresh = rotation_steps(" old \r\n\n", "new");
  REQUIRE(fresh);
  CHECK(fresh->size() == 5);
  CHECK(fresh->front().lines == "old\nnew\n");
  CHECK(fresh->back().lines == "new\n");
  CHECK(fresh->back().settle);
  const auto on = rotation_steps("old\nnew\n", "another");
  REQUIRE(on);
  CHECK(on->size() == 3);
  for (const auto& step : *on) CHECK(step.lines.find("another") == std::string::npos);
  for (const auto* bad : {"", "\n \n", "a\nb\nc\n"})
    CHECK(rotation_steps(bad, "new").error() == ec::invalid_argument);
}
