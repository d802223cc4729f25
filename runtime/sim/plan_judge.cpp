#include "runtime/sim/plan_judge.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/sim/simulation.hpp"

namespace mooncaf::sim {

namespace {

constexpr double most_load = 65'536;

}  // namespace

verdict try_run(simulation_options options, const std::vector<workload_record>& records, double target,
                double load) {
  options.speed = load;
  const auto allowed = static_cast<std::uint64_t>((1 - target) * static_cast<double>(records.size()));
  options.give_up_after = std::max<std::uint64_t>(allowed, 1);
  const auto out = simulation{options}.run(*replay_of(records));
  if (!out) return {};
  if (out->slo_share() >= target) return {true, false, false};
  // Requests that were refused, or never finished, tell nothing.
  constexpr double nearly_all = 4;
  const double late =
      static_cast<double>(out->ttft.count()) * (1 - out->ttft.share_up_to(options.ttft_slo_s));
  const auto slow = static_cast<double>(out->all().tbt_missed);
  return {false, late > nearly_all * slow, slow > nearly_all * late};
}

double slo_share_of(simulation_options options, const std::vector<workload_record>& records, double load) {
  options.speed = load;
  const auto out = simulation{options}.run(*replay_of(records));
  return out ? out->slo_share() : 0;
}

double largest_load(const std::function<bool(double)>& holds, double guess, double within, double least,
                    double near) {
  guess = std::clamp(guess, least, most_load);
  double low = 0, high = 0;
  // From the guess by growing factors to where it fails, or no longer does.
  double factor = near;
  if (holds(guess)) {
    for (low = guess; high == 0 && low < most_load; factor *= factor) {
      const auto next = low * std::min(factor, 4.0);
      holds(next) ? low = next : high = next;
    }
  } else {
    for (high = guess; low == 0 && high > least; factor *= factor) {
      const auto next = high / std::min(factor, 4.0);
      holds(next) ? low = next : high = next;
    }
  }
  if (low == 0 || high == 0) return std::min(low, most_load);
  while (high / low > 1 + within) {
    const double middle = std::sqrt(low * high);
    (holds(middle) ? low : high) = middle;
  }
  return low;
}

verdict plan_judge::try_at(const plan_cluster& c, double load, std::uint32_t draw) {
  const auto [at, fresh] = known_.try_emplace({c, load, draw});
  if (!fresh) return at->second;
  if (progress_) progress_(runs_, c);
  ++runs_;
  auto options = options_of(problem_, c);
  options.seed += draw;
  if (check_options(options)) at->second = try_run(options, records_, problem_.target, load);
  return at->second;
}

bool plan_judge::holds_always(const plan_cluster& c, double load) {
  for (std::uint32_t draw = 0; draw < problem_.seeds; ++draw) {
    if (!holds(c, load, draw)) return false;
  }
  return true;
}

double plan_judge::capacity(const plan_cluster& c, double guess, double within, std::uint32_t draw,
                            double least, double near) {
  return largest_load([&](double load) { return holds(c, load, draw); }, guess, within, least, near);
}

double plan_judge::capacity_above(const plan_cluster& c, double best, double guess, double within) {
  const double more = best * (1 + within);
  if (best > 0 && !holds(c, more)) return -1;
  return capacity(c, best > 0 ? more : guess, within);
}

double plan_judge::known_to_carry(const plan_cluster& c) const {
  double most = 0;
  for (auto i = known_.lower_bound({c, 0, 0}); i != known_.end() && std::get<0>(i->first) == c; ++i) {
    if (i->second.holds && std::get<2>(i->first) == 0) most = std::max(most, std::get<1>(i->first));
  }
  return most > 0 ? most : 1;
}

}  // namespace mooncaf::sim
