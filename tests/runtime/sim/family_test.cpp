// Admission where nobody tuned it: a slice of the family of tests/bench/sim_bench_family.cpp.

#include <doctest/doctest.h>

#include <cmath>

#include "tests/bench/sim_family.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

TEST_CASE(
    "on workloads, clusters and wrong calibrations drawn at random, priced stays near the best policy") {
  constexpr int members = 20;
  double logs = 0;
  for (std::uint64_t number = 1; number <= members; ++number) {
    auto m = member_of_family(number, 600);
    std::uint64_t best = 1;
    for (int a = 0; a < static_cast<int>(admission_policy::priced); ++a)
      best = std::max(best, met_under(m, static_cast<admission_policy>(a)));
    const auto mine = met_under(m, admission_policy::priced);
    INFO(number, ": ", m.text(), ": ", mine, " inside both SLOs, the best other ", best);
    CHECK(static_cast<double>(mine) >= 0.8 * static_cast<double>(best));
    logs += std::log(static_cast<double>(std::max<std::uint64_t>(mine, 1)) / static_cast<double>(best));
  }
  CHECK(std::exp(logs / members) >= 0.97);
}

TEST_CASE("a network that hand-overs fill is foreseen: most of what is admitted keeps its TBT") {
  auto m = member_of_family(44, 1500);
  INFO(m.text());
  const auto blind = met_under(m, admission_policy::early), foreseen = met_under(m, admission_policy::priced);
  INFO(blind, " inside both SLOs without foresight, ", foreseen, " with it");
  CHECK(2 * foreseen > 3 * blind);
}
