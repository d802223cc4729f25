#include "runtime/sim/plan_around.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

namespace mooncaf::sim {

namespace {

constexpr double far_off = 0.3;  ///< relative error for clusters that are usually far behind
constexpr std::array policies_to_compare{placement_policy::random, placement_policy::load_balancing,
                                         placement_policy::cache_aware, placement_policy::kvcache_centric};
constexpr std::array sizes_to_compare{0.25, 0.5, 2.0};  ///< of memory and network
constexpr double disk_over_memory = 4;
constexpr std::array loads_around{0.5, 0.75, 1.5, 2.0};  ///< of the planned one
constexpr std::array loads_at_the_cliff{0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4};

/// Other splits of as many machines, and the other way of working.
std::vector<plan_cluster> neighbours_of(const plan_problem& p, const plan_cluster& c) {
  std::vector<plan_cluster> all;
  const auto split = [&](std::int64_t prefill) {
    auto other = c;
    other.chunk = 0;
    const auto machines = static_cast<std::int64_t>(c.machines());
    if (prefill < 1 || prefill * c.pipeline >= machines) return;
    other.prefill = static_cast<std::uint32_t>(prefill);
    other.decode = static_cast<std::uint32_t>(machines - prefill * c.pipeline);
    all.push_back(other);
  };
  if (c.coupled()) {
    if (p.disaggregated) {
      for (const double share : {0.25, 0.5, 0.75}) {
        split(static_cast<std::int64_t>(std::lround(share * c.machines())));
      }
    }
  } else {
    for (const std::int64_t away : {-2, -1, 1, 2}) split(static_cast<std::int64_t>(c.prefill) + away);
    if (p.coupled && c.prefill_kind == c.decode_kind) {
      auto other = c;
      other.pipeline = 1;
      other.prefill = c.machines();
      other.decode = 0;
      for (const auto chunk : p.coupled_chunks) {
        other.chunk = chunk;
        all.push_back(other);
      }
    }
  }
  std::ranges::sort(all, {}, &plan_cluster::prefill);
  return all;
}

/// The same cluster with one thing changed.
template <class Value>
plan_cluster with(plan_cluster c, Value plan_cluster::*at, Value value) {
  c.*at = value;
  return c;
}

/// The alternatives to a part: the problem's choices, and others that one would ask about.
std::vector<plan_cluster> others_of(const plan_problem& p, const plan_cluster& c, plan_part part) {
  auto all = with_other(p, c, part);
  const auto parts = parts_of(p, c);
  switch (part) {
    case plan_part::policy:
      for (const auto policy : policies_to_compare) all.push_back(with(c, &plan_cluster::policy, policy));
      break;
    case plan_part::admission:
      for (const auto admission : admissions_to_compare)
        all.push_back(with(c, &plan_cluster::admission, admission));
      break;
    case plan_part::cache:
      for (const double s : sizes_to_compare)
        all.push_back(with(c, &plan_cluster::cache_factor, s * c.cache_factor));
      break;
    case plan_part::ssd:
      if (parts.ssd_gb > 0) all.push_back(with(c, &plan_cluster::ssd_gb, 0.0));
      else all.push_back(with(c, &plan_cluster::ssd_gb, std::ceil(disk_over_memory * parts.cache_gb)));
      break;
    case plan_part::nic:
      for (const double s : sizes_to_compare)
        all.push_back(with(c, &plan_cluster::nic_gbit, s * parts.nic_gbit));
      break;
  }
  all.push_back(c);
  std::ranges::sort(all, [&](const plan_cluster& a, const plan_cluster& b) {
    const auto x = parts_of(p, a), y = parts_of(p, b);
    return std::tuple{x.cache_gb, x.ssd_gb, x.nic_gbit, a} < std::tuple{y.cache_gb, y.ssd_gb, y.nic_gbit, b};
  });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

class surroundings {
 public:
  surroundings(plan_judge& judge, plan_answer& a) : judge_(judge), a_(a), known_(a.carries.front()) {}

  void look() {
    const auto& p = judge_.problem();
    double guess = known_;
    for (const auto& c : neighbours_of(p, a_.cluster)) {
      const bool same_way = c.coupled() == a_.cluster.coupled();
      // The other way of working is often far behind, each chunk about as far.
      const double carries = judge_.capacity(c, same_way ? known_ : guess, same_way ? rough : far_off, 0,
                                             known_ * hardly_any, same_way ? 1 + rough : 2);
      if (!same_way) guess = std::max(carries, known_ * hardly_any);
      a_.around.push_back({c, carries});
    }
    for (const auto part : all_plan_parts) {
      auto& worth = a_.worth.emplace_back(plan_worth{part, {}});
      for (const auto& c : others_of(p, a_.cluster, part)) {
        // The least comes first: where less was enough, all between is.
        const bool enough = !worth.points.empty() && worth.points.back().carries == known_ &&
                            c != a_.cluster && size_beyond(c) < 0 && is_routed_alike(c);
        worth.points.push_back({c, enough ? known_ : carries_of(c)});
      }
    }
    if (p.curves || p.goal != plan_goal::goodput) look_at_loads();
    if (!p.curves) return;
    for (const double f : loads_at_the_cliff)
      a_.cliff.push_back({f * known_, judge_.share(a_.cluster, f * known_)});
  }

 private:
  /// A smaller part carries no more, a larger one no less: half of the question need not be asked.
  double carries_of(const plan_cluster& c) {
    if (c == a_.cluster) return known_;
    const bool same = is_routed_alike(c);
    const double more = size_beyond(c);
    if (same && more < 0 && judge_.holds(c, known_)) return known_;
    if (same && more > 0 && !judge_.holds(c, known_ * (1 + rough))) return known_;
    const bool routed = c.policy == a_.cluster.policy;
    return judge_.capacity(c, known_, routed ? rough : 2 * rough, 0, known_ * hardly_any, 1 + rough);
  }

  bool is_routed_alike(const plan_cluster& c) const {
    return c.policy == a_.cluster.policy && c.admission == a_.cluster.admission;
  }
  /// How much larger its parts are than the answer's; 0: the same.
  double size_beyond(const plan_cluster& c) const {
    const auto mine = parts_of(judge_.problem(), a_.cluster), its = parts_of(judge_.problem(), c);
    return its.cache_gb + its.ssd_gb + its.nic_gbit - mine.cache_gb - mine.ssd_gb - mine.nic_gbit;
  }

  /// Clusters for other loads (where a load is asked for), or the loads of other numbers of machines.
  void look_at_loads() {
    const auto& p = judge_.problem();
    std::vector<plan_size> all{{a_.cluster, a_.planned_load, 0}};
    for (const double f : loads_around) {
      if (p.goal != plan_goal::goodput) {
        if (const auto c = resized(judge_, a_.cluster, f * p.load * p.headroom, f))
          all.push_back({*c, f * p.load, 0});
        continue;
      }
      auto c = a_.cluster;
      const auto times = [&](std::uint32_t n) { return std::max<std::uint32_t>(std::lround(f * n), 1); };
      c.prefill = times(c.prefill);
      if (!c.coupled()) c.decode = times(c.decode);
      all.push_back({c, judge_.capacity(c, f * known_, rough, 0, 1.0 / 64, 1 + rough) / p.headroom, 0});
    }
    for (auto& s : all) s.cost_per_million_tokens = price_at(p, a_, s.cluster, s.load);
    std::ranges::sort(all, {}, &plan_size::load);
    a_.sizes = std::move(all);
  }

  plan_judge& judge_;
  plan_answer& a_;
  double known_;
};

}  // namespace

double price_at(const plan_problem& problem, const plan_answer& a, const plan_cluster& c, double load) {
  const double tokens_per_hour = a.cost_per_hour / a.cost_per_million_tokens * 1e6 / a.planned_load;
  return load > 0 ? cost_of(problem, c) / (tokens_per_hour * load) * 1e6 : 0;
}

std::uint64_t expected_around(const plan_judge& judge, const plan_cluster& c) {
  const auto& p = judge.problem();
  std::uint64_t runs = 4 * 3 + 2 * neighbours_of(p, c).size();  // the risks are four
  for (const auto part : all_plan_parts) runs += 2 * others_of(p, c, part).size();
  if (p.curves) runs += loads_at_the_cliff.size();
  return runs + (p.curves || p.goal != plan_goal::goodput ? 4 * loads_around.size() : 0);
}

void look_around(plan_judge& judge, plan_answer& a) {
  judge.begin("what is around it", expected_around(judge, a.cluster) - 12);
  surroundings{judge, a}.look();
}

}  // namespace mooncaf::sim
