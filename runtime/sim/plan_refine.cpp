#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "runtime/sim/plan_search.hpp"

// The parts of machines and their scheduling, once it is known which machines they are.

namespace mooncaf::sim {

namespace {

/// A goal that names a load wants little of these, of the first above all.
using price = std::tuple<double, double, double>;

price price_of(const plan_problem& p, const plan_cluster& c) {
  const auto parts = parts_of(p, c);
  const double cost = cost_of(p, c);
  const double size = parts.cache_gb + parts.ssd_gb + parts.nic_gbit;
  if (p.goal == plan_goal::nodes) return {c.machines(), cost, size};
  return {cost, c.machines(), size};
}

/// Fewer, more, or one for the other.
std::vector<plan_cluster> steps_from(const plan_problem& p, const plan_cluster& c) {
  constexpr std::array<std::pair<int, int>, 8> moves{
      {{-1, 0}, {0, -1}, {-1, -1}, {-1, 1}, {1, -1}, {1, 0}, {0, 1}, {0, 0}}};
  std::vector<plan_cluster> all;
  for (const auto& [prefill, decode] : moves) {
    if (c.coupled() && decode != 0) continue;
    auto next = c;
    next.prefill = static_cast<std::uint32_t>(static_cast<int>(c.prefill) + prefill);
    next.decode = static_cast<std::uint32_t>(static_cast<int>(c.decode) + decode);
    if (next.prefill == 0 || next.machines() > p.nodes || (next.decode == 0) != c.coupled()) continue;
    all.push_back(next);
  }
  return all;
}

/// Downhill: the cheapest of the steps that holds the load, again and again.
/// @param below  nothing that costs as much is looked at.
/// @returns nothing if no step from `c`, nor `c`, is cheaper than that and holds.
std::optional<plan_cluster> downhill(plan_judge& judge, plan_cluster c, price below, double load) {
  const auto& p = judge.problem();
  std::optional<plan_cluster> found;
  std::vector<plan_cluster> failed;
  const auto hopeless = [&](const plan_cluster& next) {
    return std::ranges::any_of(
        failed, [&](const plan_cluster& f) { return next.prefill <= f.prefill && next.decode <= f.decode; });
  };
  for (bool moved = true; moved;) {
    moved = false;
    auto steps = steps_from(p, c);
    std::ranges::stable_sort(steps, {}, [&](const plan_cluster& s) { return price_of(p, s); });
    for (const auto& next : steps) {
      if (price_of(p, next) >= below) break;
      if (hopeless(next)) continue;
      if (!judge.holds_always(next, load)) {
        failed.push_back(next);
        continue;
      }
      found = c = next;
      below = price_of(p, next);
      moved = true;
      break;
    }
  }
  return found;
}

/// Refines for a goal that names a load.
bool cheapened(plan_judge& judge, plan_cluster& best, const plan_cluster& other) {
  const auto& p = judge.problem();
  const auto found = downhill(judge, other, price_of(p, best), p.load * p.headroom);
  if (found) best = *found;
  return found.has_value();
}

/// Refines for the largest load.
class strengthening {
 public:
  strengthening(plan_judge& judge, plan_cluster& best)
      : judge_(judge), best_(best), most_(judge.known_to_carry(best)) {}

  bool take(const plan_cluster& other) {
    if (!better(other)) return false;
    // Another policy, another split.
    for (const int way : {-1, 1}) {
      for (auto next = split(way); next && better(*next);) next = split(way);
    }
    return true;
  }

 private:
  bool better(const plan_cluster& c) {
    const double carries = judge_.capacity_above(c, most_, most_);
    if (carries <= most_) return false;
    most_ = carries;
    best_ = c;
    return true;
  }
  std::optional<plan_cluster> split(int way) const {
    if (best_.coupled()) return std::nullopt;
    const auto step = static_cast<int>(best_.pipeline);
    if (static_cast<int>(best_.prefill) + way < 1 || static_cast<int>(best_.decode) - way * step < 1)
      return std::nullopt;
    auto next = best_;
    next.prefill = static_cast<std::uint32_t>(static_cast<int>(best_.prefill) + way);
    next.decode = static_cast<std::uint32_t>(static_cast<int>(best_.decode) - way * step);
    return next;
  }

  plan_judge& judge_;
  plan_cluster& best_;
  double most_;
};

}  // namespace

std::vector<plan_cluster> with_other(const plan_problem& p, const plan_cluster& c, plan_part part) {
  std::vector<plan_cluster> all;
  const auto each = [&](const auto& choices, auto plan_cluster::*at) {
    for (const auto& choice : choices) {
      if (choice == c.*at) continue;
      all.push_back(c);
      all.back().*at = choice;
    }
  };
  switch (part) {
    case plan_part::policy:
      each(p.policies, &plan_cluster::policy);
      break;
    case plan_part::admission:
      each(p.admissions, &plan_cluster::admission);
      break;
    case plan_part::cache:
      each(p.cache_factors, &plan_cluster::cache_factor);
      break;
    case plan_part::ssd:
      each(p.ssd_gb, &plan_cluster::ssd_gb);
      break;
    case plan_part::nic:
      each(p.nic_gbit, &plan_cluster::nic_gbit);
      break;
  }
  return all;
}

plan_cluster refined(plan_judge& judge, plan_cluster c) {
  const auto& p = judge.problem();
  const auto take = [&](const plan_cluster& other) {
    return p.goal == plan_goal::goodput ? strengthening{judge, c}.take(other) : cheapened(judge, c, other);
  };
  const auto one_changed = [&] {
    bool better = false;
    for (const auto part : all_plan_parts) {
      for (const auto& other : with_other(p, c, part)) better |= take(other);
    }
    return better;
  };
  // A policy that loads less from elsewhere, say, may do with less network.
  const auto two_changed = [&] {
    for (const auto one : all_plan_parts) {
      for (const auto& half : with_other(p, c, one)) {
        for (const auto two : all_plan_parts) {
          if (two <= one) continue;
          for (const auto& other : with_other(p, half, two)) {
            if (take(other)) return true;
          }
        }
      }
    }
    return false;
  };
  // More machines may do with the least of everything, which no single change shows to be cheaper.
  const auto all_changed = [&] {
    bool better = false;
    for (const auto part : {plan_part::policy, plan_part::admission}) {
      for (const auto& other : with_other(p, c, part)) better |= take(with_least_parts(p, other));
    }
    return take(with_least_parts(p, c)) || better;
  };
  constexpr int enough = 8;
  for (int round = 0; round < enough; ++round) {
    while (one_changed() && ++round < enough) {
    }
    if (p.goal != plan_goal::cost || (!two_changed() && !all_changed())) break;
  }
  return c;
}

std::optional<plan_cluster> best_cluster(plan_judge& judge) {
  const auto& p = judge.problem();
  const auto first = first_choice(p);
  constexpr std::uint64_t runs_of_form = 15, runs_behind = 60;
  const auto forms = p.kinds.size() * ((p.coupled ? p.coupled_chunks.size() : 0) +
                                       (p.disaggregated ? p.kinds.size() * p.pipelines.size() : 0));
  judge.begin("machines", runs_of_form * forms + runs_behind);
  std::vector<plan_cluster> found;
  // More of a part may by chance do worse.
  for (const auto& parts : {first, with_least_parts(p, first)}) {
    if (found.empty()) found = best_machines(judge, parts);
    for (const auto part : all_plan_parts) {
      for (const auto& other : with_other(p, parts, part)) {
        if (found.empty()) found = best_machines(judge, other);
      }
    }
  }
  if (found.empty()) return std::nullopt;
  judge.begin("policy, admission, memory, disk, network",
              2 * found.size() *
                  (p.policies.size() + p.admissions.size() + p.cache_factors.size() + p.ssd_gb.size() +
                   p.nic_gbit.size()));
  std::vector<plan_cluster> refined_ones;
  for (const auto& c : found) refined_ones.push_back(refined(judge, c));
  return *std::ranges::min_element(refined_ones, {}, [&](const plan_cluster& c) { return price_of(p, c); });
}

std::optional<plan_cluster> resized(plan_judge& judge, plan_cluster c, double load, double factor) {
  const auto& p = judge.problem();
  const auto times = [](std::uint32_t n, double f) {
    return n == 0 ? 0 : std::max(static_cast<std::uint32_t>(std::ceil(n * f - 1e-9)), 1u);
  };
  const auto form = c;
  for (double more = 1; more < 2; more *= 1.15) {
    c.prefill = times(form.prefill, factor * more);
    c.decode = times(form.decode, factor * more);
    if (!judge.holds_always(c, load)) continue;
    const auto cheaper = downhill(judge, c, price_of(p, c), load);
    return cheaper ? cheaper : c;
  }
  return std::nullopt;
}

}  // namespace mooncaf::sim
