// Admission where nobody tuned it: SIMULATION.md, item 15.

#include <cstdio>

#include "tests/bench/sim_bench.hpp"
#include "tests/bench/sim_family.hpp"

namespace mooncaf::sim::bench {

namespace {

struct result_row {
  std::string text;
  std::array<std::uint64_t, 7> met{};
  std::uint64_t best_other(admission_policy of) const {
    std::uint64_t most = 0;
    for (std::size_t a = 0; a < met.size(); ++a) {
      if (a != static_cast<std::size_t>(of)) most = std::max(most, met[a]);
    }
    return std::max<std::uint64_t>(most, 1);
  }
  std::uint64_t best_of_paper() const {
    return std::max<std::uint64_t>(*std::max_element(met.begin(), met.begin() + 5), 1);
  }
  double ratio(admission_policy of, bool paper) const {
    const auto other = paper ? best_of_paper() : best_other(of);
    return static_cast<double>(met[static_cast<std::size_t>(of)]) / static_cast<double>(other);
  }
};

void distribution(const char* what, std::vector<double> ratios) {
  std::ranges::sort(ratios);
  const auto at = [&](double q) {
    return ratios[std::min(static_cast<std::size_t>(q * static_cast<double>(ratios.size())),
                           ratios.size() - 1)];
  };
  const auto share = [&](auto&& wanted) {
    return 100. * static_cast<double>(std::ranges::count_if(ratios, wanted)) /
           static_cast<double>(ratios.size());
  };
  double logs = 0;
  for (const double r : ratios) logs += std::log(std::max(r, 1e-6));
  std::printf("| %s | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.0f %% | %.0f %% | %.3f |\n", what,
              ratios.front(), at(.05), at(.25), at(.5), at(.75), at(.95),
              share([](double r) { return r < 0.98; }), share([](double r) { return r >= 1; }),
              std::exp(logs / static_cast<double>(ratios.size())));
}

}  // namespace

void family() {
  const auto env = [](const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  };
  const auto members = env("FAMILY_MEMBERS", 200), requests = env("FAMILY_REQUESTS", 2500);
  const auto first = env("FAMILY_FIRST", 1);
  std::vector<result_row> rows;
  for (std::uint64_t n = first; n < first + members; ++n) {
    auto m = member_of_family(n, requests);
    result_row row;
    row.text = std::to_string(n) + ": " + m.text();
    for (std::size_t a = 0; a < row.met.size(); ++a)
      row.met[a] = met_under(m, static_cast<admission_policy>(a));
    rows.push_back(std::move(row));
  }
  std::printf(
      "| ratio | least | 5 %% | 25 %% | median | 75 %% | 95 %% | below 0.98 | at least 1 | geometric mean "
      "|\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (const auto of : {admission_policy::priced, admission_policy::per_request, admission_policy::early}) {
    std::vector<double> all, paper;
    for (const auto& r : rows) all.push_back(r.ratio(of, false)), paper.push_back(r.ratio(of, true));
    distribution((name(of) + " / best other").c_str(), all);
    if (of != admission_policy::early) distribution((name(of) + " / best of the paper's").c_str(), paper);
  }
  std::ranges::sort(rows, {}, [](const result_row& r) { return r.ratio(admission_policy::priced, false); });
  std::printf(
      "\nThe worst ten of priced\n\n| member | priced / best | none | baseline | early | early_running | "
      "predictive | per_request | priced |\n|---|---|---|---|---|---|---|---|---|\n");
  for (std::size_t i = 0; i < std::min<std::size_t>(rows.size(), env("FAMILY_WORST", 10)); ++i) {
    std::printf("| %s | %.3f |", rows[i].text.c_str(), rows[i].ratio(admission_policy::priced, false));
    for (const auto met : rows[i].met) std::printf(" %llu |", static_cast<unsigned long long>(met));
    std::printf("\n");
  }
}

}  // namespace mooncaf::sim::bench
