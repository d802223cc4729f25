#include "runtime/sim/plan_judge.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/sim/simulation.hpp"

namespace mooncaf::sim {

namespace {

constexpr double most_load = 65'536;

}  // namespace

verdict try_run(simulation_options options, const std::vector<workload_record>& records, double target,
                double load) {
  options.speed = load;
  options.verdict_only = true;
  const auto allowed = static_cast<std::uint64_t>((1 - target) * static_cast<double>(records.size()));
  options.give_up_after = std::max<std::uint64_t>(allowed, 1);
  const auto out = simulation{options}.run(*replay_of(records));
  if (!out) return {};
  if (out->slo_share() >= target) return {true};
  // Refused requests count by the reason of the refusal; unfinished ones tell nothing.
  constexpr double nearly_all = 4;
  const auto all = out->all();
  const double late =
      static_cast<double>(out->ttft.count()) * (1 - out->ttft.share_up_to(options.ttft_slo_s)) +
      static_cast<double>(all.rejected_placement + all.rejected_prefill);
  const auto slow = static_cast<double>(all.tbt_missed + all.rejected_decode + all.rejected_at_decode +
                                        all.rejected_memory);
  return {false, late > nearly_all * slow, slow > nearly_all * late};
}

double slo_share_of(simulation_options options, const std::vector<workload_record>& records, double load) {
  options.speed = load;
  options.verdict_only = true;
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
      const auto next = std::max(high / std::min(factor, 4.0), least);
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

void plan_judge::count_run(const plan_cluster& c) {
  if (progress_) progress_({doing_, runs_, std::max(expected_, runs_ + 1)}, c);
  ++runs_;
}

verdict plan_judge::try_at(const plan_cluster& c, double load, std::uint32_t draw) {
  const auto [at, fresh] = known_.try_emplace({c, load, draw});
  if (!fresh) return at->second;
  count_run(c);
  auto options = options_of(problem_, c);
  options.seed += draw;
  if (check_options(options)) at->second = try_run(options, records_, problem_.target, load);
  return at->second;
}

double plan_judge::share(const plan_cluster& c, double load, std::uint32_t draw) {
  auto options = options_of(problem_, c);
  options.seed += draw;
  const double share = this->share(c, options, records_, load);
  known_.try_emplace({c, load, draw}, verdict{share >= problem_.target});
  return share;
}

double plan_judge::share(const plan_cluster& c, const simulation_options& options,
                         const std::vector<workload_record>& records, double load) {
  count_run(c);
  return slo_share_of(options, records, load);
}

bool plan_judge::meets(const plan_cluster& c, const simulation_options& options,
                       const std::vector<workload_record>& records, double load) {
  count_run(c);
  return sim::meets(options, records, problem_.target, load);
}

bool plan_judge::holds_always(const plan_cluster& c, double load) {
  for (std::uint32_t draw = 0; draw < problem_.seeds; ++draw) {
    if (!holds(c, load, draw)) return false;
  }
  return true;
}

double plan_judge::capacity(const plan_cluster& c, double guess, double within, std::uint32_t draw,
                            double least, double near) {
  double held = known_to_carry(c, draw), failed = known_to_fail(c, draw);
  if (held > 0 && held < failed && std::isfinite(failed)) {
    while (failed / held > 1 + within) {
      const double middle = std::sqrt(held * failed);
      (holds(c, middle, draw) ? held : failed) = middle;
    }
    return held;
  }
  // By chance a larger load may have held than one that failed: then it counts for nothing.
  if (held > failed) held = 0;
  // Just below one that failed it is not worth to ask.
  if (guess * near > failed) guess = failed / near;
  return largest_load([&](double load) { return load <= held || (load < failed && holds(c, load, draw)); },
                      std::clamp(guess, held, failed), within, least, near);
}

double plan_judge::capacity_above(const plan_cluster& c, double best, double guess, double within) {
  const double more = best * (1 + within);
  if (best > 0 && !holds(c, more)) return -1;
  return capacity(c, best > 0 ? more : guess, within);
}

double plan_judge::known_to_carry(const plan_cluster& c, std::uint32_t draw) const {
  double most = 0;
  for (auto i = known_.lower_bound({c, 0, 0}); i != known_.end() && std::get<0>(i->first) == c; ++i) {
    if (i->second.holds && std::get<2>(i->first) == draw) most = std::max(most, std::get<1>(i->first));
  }
  return most;
}

verdict plan_judge::just_beyond(const plan_cluster& c) const {
  const auto at = known_.find({c, known_to_fail(c, 0), 0});
  return at == known_.end() ? verdict{} : at->second;
}

double plan_judge::known_to_fail(const plan_cluster& c, std::uint32_t draw) const {
  double least = std::numeric_limits<double>::infinity();
  for (auto i = known_.lower_bound({c, 0, 0}); i != known_.end() && std::get<0>(i->first) == c; ++i) {
    if (!i->second.holds && std::get<2>(i->first) == draw) least = std::min(least, std::get<1>(i->first));
  }
  return least;
}

}  // namespace mooncaf::sim
