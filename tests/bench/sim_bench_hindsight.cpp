// Every admission policy with several of its parameters beside the best of the others in hindsight, on workloads that
// nobody tuned one for, and beside what nobody could exceed. Prints CSV, and lines of summary that begin with '#'.
//   HINDSIGHT_FIRST, HINDSIGHT_MEMBERS  which members of the family; HINDSIGHT_REQUESTS  of each

#include <cstdio>

#include "tests/bench/clairvoyant_bound.hpp"
#include "tests/bench/sim_bench.hpp"
#include "tests/bench/sim_hindsight.hpp"

namespace mooncaf::sim::bench {

namespace {

struct contender {
  admission_policy admission;
  double decode_span_s = 0;  ///< 0: the member's
  std::string text() const {
    return name(admission) + (decode_span_s > 0 ? "_" + std::to_string(static_cast<int>(decode_span_s)) : "");
  }
};

const std::vector<contender> contenders{
    {admission_policy::none},           {admission_policy::baseline},      {admission_policy::early},
    {admission_policy::early_running},  {admission_policy::predictive, 5}, {admission_policy::predictive, 20},
    {admission_policy::predictive, 60}, {admission_policy::per_request},   {admission_policy::priced},
    {admission_policy::queue},          {admission_policy::adaptive}};

struct played {
  std::uint64_t number = 0;
  double load = 0;
  std::string text;
  std::vector<std::uint64_t> met;
  std::uint64_t bound = 0;  ///< that no scheduler could exceed

  /// Of one contender to the best of all other policies; other parameters of the same policy do not count.
  double ratio(std::size_t of) const {
    std::uint64_t most = 1;
    for (std::size_t c = 0; c < met.size(); ++c) {
      if (contenders[c].admission != contenders[of].admission) most = std::max(most, met[c]);
    }
    return static_cast<double>(met[of]) / static_cast<double>(most);
  }
  double of_bound(std::size_t of) const {
    return static_cast<double>(met[of]) / static_cast<double>(std::max<std::uint64_t>(bound, 1));
  }
};

double geometric_mean(const std::vector<double>& of) {
  double logs = 0;
  for (const double r : of) logs += std::log(std::max(r, 1e-6));
  return std::exp(logs / static_cast<double>(of.size()));
}

void summarise(const std::vector<played>& rows, std::size_t of, const char* where, double least,
               double most) {
  std::vector<double> ratios;
  for (const auto& r : rows) {
    if (r.load >= least && r.load < most) ratios.push_back(r.ratio(of));
  }
  if (ratios.empty()) return;
  std::ranges::sort(ratios);
  const auto n = static_cast<double>(ratios.size());
  const auto share = [&](double from) {
    return 100 * static_cast<double>(std::ranges::count_if(ratios, [&](double r) { return r >= from; })) / n;
  };
  std::printf("# %s,%s,n=%zu,least=%.3f,median=%.3f,mean=%.3f,at_least_0.95=%.0f%%,0.98=%.0f%%,1=%.0f%%\n",
              contenders[of].text().c_str(), where, ratios.size(), ratios.front(), ratios[ratios.size() / 2],
              geometric_mean(ratios), share(0.95), share(0.98), share(1));
}

void summarise_bound(const std::vector<played>& rows, std::size_t of) {
  std::vector<double> shares;
  for (const auto& r : rows) shares.push_back(r.of_bound(of));
  if (shares.empty()) return;
  std::ranges::sort(shares);
  std::printf("# %s,of the bound,least=%.3f,median=%.3f,mean=%.3f,most=%.3f\n", contenders[of].text().c_str(),
              shares.front(), shares[shares.size() / 2], geometric_mean(shares), shares.back());
}

}  // namespace

void hindsight() {
  const auto env = [](const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  };
  const auto first = env("HINDSIGHT_FIRST", 1001), members = env("HINDSIGHT_MEMBERS", 50);
  std::printf("member,load,jitter");
  for (const auto& c : contenders) std::printf(",%s", c.text().c_str());
  std::printf(",bound,workload\n");
  std::vector<played> rows;
  for (auto n = first; n < first + members; ++n) {
    std::string changes;
    auto m = member_of_wide_family(n, env("HINDSIGHT_REQUESTS", 1200), changes);
    played row{n, m.load, changes + m.text(), {}, clairvoyant_bound(m.options, m.records)};
    for (const auto& c : contenders) {
      auto o = m.options;
      o.admission = c.admission;
      if (c.decode_span_s > 0) o.decode_span_s = c.decode_span_s;
      const auto all = run(o, m.records).all();
      row.met.push_back(all.slo_met);
    }
    std::printf("%llu,%.2f,%.2f", static_cast<unsigned long long>(n), m.load, m.options.jitter);
    for (const auto met : row.met) std::printf(",%llu", static_cast<unsigned long long>(met));
    std::printf(",%llu,\"%s\"\n", static_cast<unsigned long long>(row.bound), row.text.c_str());
    std::fflush(stdout);
    rows.push_back(std::move(row));
  }
  for (std::size_t c = 0; c < contenders.size(); ++c) {
    summarise(rows, c, "all", 0, 99);
    summarise(rows, c, "load<1", 0, 1);
    summarise(rows, c, "load>=1.1", 1.1, 99);
  }
  const auto last = contenders.size() - 1;
  for (const auto c : {last - 1, last}) summarise_bound(rows, c);
  std::ranges::sort(rows, {}, [&](const played& r) { return r.ratio(last); });
  for (std::size_t i = 0; i < std::min<std::size_t>(rows.size(), 10); ++i)
    std::printf("# worst of %s: %.3f, member %llu\n", contenders[last].text().c_str(), rows[i].ratio(last),
                static_cast<unsigned long long>(rows[i].number));
}

}  // namespace mooncaf::sim::bench
