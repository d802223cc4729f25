#include "runtime/sim/plan_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "runtime/sim/cost_model.hpp"

// The search for the best machines.

namespace mooncaf::sim {

namespace {

/// Kinds, pipelines and chunks of clusters, without numbers.
std::vector<plan_cluster> forms_of(const plan_problem& p, plan_cluster form) {
  std::vector<plan_cluster> forms;
  for (std::uint32_t prefill = 0; prefill < p.kinds.size(); ++prefill) {
    form.prefill_kind = form.decode_kind = prefill;
    form.pipeline = 1;
    form.decode = 0;
    for (const auto chunk : p.coupled_chunks) {
      form.chunk = chunk;
      if (p.coupled) forms.push_back(form);
    }
    form.chunk = 0;
    for (std::uint32_t decode = 0; p.disaggregated && decode < p.kinds.size(); ++decode) {
      for (const auto pipeline : p.pipelines) {
        form.decode_kind = decode;
        form.pipeline = pipeline;
        form.decode = 1;
        if (check_options(options_of(p, form))) forms.push_back(form);
      }
    }
  }
  return forms;
}

/// The form with so many instances of each role.
plan_cluster sized(plan_cluster form, std::uint32_t prefill, std::uint32_t decode) {
  form.prefill = prefill;
  form.decode = decode;
  return form;
}

/// The least n in [low, high] that holds; `high` does.
template <class Holds>
std::uint32_t least(std::uint32_t low, std::uint32_t high, Holds&& holds) {
  while (low < high) {
    const auto middle = low + (high - low) / 2;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return high;
}

// ---- a load is given ----

/// The cheapest cluster of one form that carries the load, if with the least parts it is cheaper than the
/// best so far.
class cheapest_of_form {
 public:
  cheapest_of_form(plan_judge& judge, const plan_cluster& form, double cheaper_than)
      : judge_(judge),
        form_(form),
        problem_(judge.problem()),
        limit_(cheaper_than),
        load_(problem_.load * problem_.headroom) {}

  std::optional<plan_cluster> find() { return form_.coupled() ? find_coupled() : find_split(); }

 private:
  double cost(const plan_cluster& c) const {
    return problem_.goal == plan_goal::nodes ? c.machines() : cost_of(problem_, c);
  }
  bool too_dear(const plan_cluster& c) const { return cost(with_least_parts(problem_, c)) >= limit_; }
  bool allowed(const plan_cluster& c) const { return c.machines() <= problem_.nodes; }
  bool holds(const plan_cluster& c) { return judge_.holds(c, load_); }

  std::optional<plan_cluster> find_coupled() {
    std::uint32_t enough = 1;
    while (enough < problem_.nodes && !holds(sized(form_, enough, 0))) enough *= 2;
    enough = std::min(enough, problem_.nodes);
    if (!holds(sized(form_, enough, 0))) return std::nullopt;
    auto n = least(enough / 2 + 1, enough, [&](std::uint32_t m) { return holds(sized(form_, m, 0)); });
    for (; n <= problem_.nodes; ++n) {
      const auto c = sized(form_, n, 0);
      if (too_dear(c)) return std::nullopt;
      if (judge_.holds_always(c, load_)) return c;
    }
    return std::nullopt;
  }

  std::optional<plan_cluster> find_split() {
    // Plenty of one role shows how few of the other may do; no cluster has fewer.
    const auto most_prefill = (problem_.nodes - 1) / form_.pipeline;
    if (most_prefill == 0 || problem_.nodes < 2) return std::nullopt;
    std::uint32_t plenty = 1;
    while (plenty < problem_.nodes && !holds(sized(form_, plenty, plenty))) plenty *= 2;
    if (plenty < problem_.nodes) plenty *= 2;
    if (!holds(sized(form_, plenty, plenty))) return std::nullopt;
    const auto fewest_prefill =
        least(1, plenty, [&](std::uint32_t n) { return holds(sized(form_, n, plenty)); });
    const auto fewest_decode =
        least(1, plenty, [&](std::uint32_t n) { return holds(sized(form_, plenty, n)); });
    std::vector<plan_cluster> candidates;
    // One less is tried as well: how much further machines help also varies by chance.
    for (auto p = std::max(fewest_prefill, 2u) - 1; p <= most_prefill; ++p) {
      for (auto d = std::max(fewest_decode, 2u) - 1; d < problem_.nodes; ++d) {
        const auto c = sized(form_, p, d);
        if (!allowed(c) || too_dear(c)) break;
        candidates.push_back(c);
      }
    }
    std::ranges::stable_sort(candidates, {}, [&](const plan_cluster& c) { return cost(c); });
    std::vector<plan_cluster> failed;
    for (const auto& c : candidates) {
      const bool hopeless = std::ranges::any_of(
          failed, [&](const plan_cluster& f) { return c.prefill <= f.prefill && c.decode <= f.decode; });
      if (hopeless) continue;
      if (judge_.holds_always(c, load_)) return c;
      failed.push_back(c);
    }
    return std::nullopt;
  }

  plan_judge& judge_;
  plan_cluster form_;
  const plan_problem& problem_;
  double limit_, load_;
};

/// The cheapest cluster of every form, the cheapest of all first. Forms that even with the least parts are
/// dearer than that one are left out.
/// @param room  how much dearer, as a factor: another policy or admission may do with fewer machines.
std::vector<plan_cluster> cheapest(plan_judge& judge, const plan_cluster& first, double room) {
  const auto& p = judge.problem();
  const auto cost = [&](const plan_cluster& c) {
    return p.goal == plan_goal::nodes ? c.machines() : cost_of(p, c);
  };
  std::vector<plan_cluster> found;
  double least_cost = std::numeric_limits<double>::infinity();
  for (const auto& form : forms_of(p, first)) {
    if (const auto c = cheapest_of_form{judge, form, least_cost * room}.find()) {
      found.push_back(*c);
      least_cost = std::min(least_cost, cost(*c));
    }
  }
  std::erase_if(found, [&](const plan_cluster& c) {
    return cost(c) > least_cost && cost(with_least_parts(p, c)) >= least_cost * room;
  });
  std::ranges::stable_sort(found, {}, cost);
  return found;
}

// ---- machines are given ----

/// The splits of all machines, of one form.
std::vector<plan_cluster> splits_of(const plan_problem& p, const plan_cluster& form) {
  std::vector<plan_cluster> all;
  if (form.coupled()) {
    all.push_back(sized(form, p.nodes, 0));
    return all;
  }
  for (std::uint32_t n = 1; n * form.pipeline < p.nodes; ++n) {
    all.push_back(sized(form, n, p.nodes - n * form.pipeline));
  }
  return all;
}

/// Machine time that the trace takes if no prefix is found.
struct machine_time {
  double prefill_s = 0, decode_s = 0;
};

machine_time time_of(const plan_judge& judge, const plan_cluster& c) {
  const auto& p = judge.problem();
  const auto& decode = p.kinds[c.decode_kind].hardware;
  const cost_model prompts{p.kinds[c.prefill_kind].hardware}, answers{decode};
  machine_time out;
  for (const auto& r : judge.records()) {
    const double token = answers.decode_growth(1) * r.input_tokens +
                         answers.decode_step(decode.max_batch, 0) / static_cast<double>(decode.max_batch);
    out.prefill_s += prompts.prefill(r.input_tokens, 0);
    out.decode_s += token * r.output_tokens;
  }
  return out;
}

/// The load at which all machines would compute all of the time, if they shared that: where to look first.
double roughly_carried(const plan_judge& judge, const machine_time& time, const plan_cluster& c) {
  const auto& all = judge.records();
  const double span = static_cast<double>(all.back().timestamp_ms - all.front().timestamp_ms) * 1e-3;
  return std::clamp(span * c.machines() / std::max(time.prefill_s + time.decode_s, 1e-9), 1.0 / 64, 4096.0);
}

/// The traffic of the trace that an instance of either role carries, as far as clusters have shown it.
struct role_share {
  double each = 0;     ///< at least
  bool known = false;  ///< exactly: its role ran short
  void showed(double carried, std::uint32_t instances, bool ran_short) {
    const double share = carried / instances;
    if (ran_short || (!known && share > each)) each = share;
    known = known || ran_short;
  }
  /// To be reckoned with until it is known.
  double likely() const { return known ? each : 2 * each; }
};

/// Somewhere near the split that carries most: with fewer prefill instances the first tokens come late, with
/// more the others. Late tokens of one kind tell how much an instance of that role carries; where neither
/// role waits for the other, both do.
/// @param carried  a guess for the splits; then roughly the load of the one found.
std::size_t near_best(plan_judge& judge, const std::vector<plan_cluster>& splits, const machine_time& time,
                      double& carried) {
  constexpr double coarse = 0.1;
  const auto machines = splits.front().machines(), pipeline = splits.front().pipeline;
  role_share prefill, decode;
  std::size_t low = 0, high = splits.size() - 1;
  const auto index_of = [&](double instances) {
    const double index = std::round(instances) - 1;
    return std::clamp(static_cast<std::size_t>(std::max(index, 0.0)), low, high);
  };
  const double prompts = time.prefill_s / std::max(time.prefill_s + time.decode_s, 1e-9);
  auto at = index_of(prompts * machines / pipeline), best = at;
  double most = 0;
  while (low < high) {
    const auto& c = splits[at];
    const bool first = most == 0;
    const double carries = judge.capacity(c, carried, coarse, 0, 1.0 / 64, first ? 1 + coarse : likely_off);
    if (carries > most) best = at;
    most = carried = std::max(most, carries);
    if (carries <= 0) return best;
    const auto beyond = judge.just_beyond(c);
    if (!beyond.short_of_prefill && !beyond.short_of_decode) return best;  // neither waits for the other
    prefill.showed(carries, c.prefill, beyond.short_of_prefill);
    decode.showed(carries, c.decode, beyond.short_of_decode);
    if (beyond.short_of_prefill) low = std::min(at + 1, high);
    else high = at;
    const double balanced = machines * decode.likely() / (prefill.likely() + pipeline * decode.likely());
    // Where one split belies another by more than one, halves are sure to get there.
    const bool likely =
        balanced > static_cast<double>(low) - 0.5 && balanced < static_cast<double>(high) + 2.5;
    const auto next = likely ? index_of(balanced) : (low + high) / 2;
    if (next == at) break;
    at = next;
    carried = std::min(splits[at].prefill * prefill.likely(), splits[at].decode * decode.likely());
  }
  carried = most > 0 ? most : carried;
  return most > 0 ? best : at;
}

/// Tries the splits of one form, the likely ones first.
class split_sweep {
 public:
  split_sweep(plan_judge& judge, std::vector<plan_cluster> splits, std::optional<plan_cluster>& best,
              double& most)
      : judge_(judge), splits_(std::move(splits)), best_(best), most_(most) {}

  void run() {
    if (splits_.empty()) return;
    const auto time = time_of(judge_, splits_.front());
    expected_ = most_ > 0 ? most_ : roughly_carried(judge_, time, splits_.front());
    const auto start = splits_.size() > 1 ? near_best(judge_, splits_, time, expected_) : 0;
    consider(start);
    for (auto i = start; i-- > 0;) {
      if (consider(i).short_of_prefill) break;  // with fewer still more so
    }
    for (auto i = start + 1; i < splits_.size(); ++i) {
      if (consider(i).short_of_decode) break;
    }
  }

 private:
  /// @returns why it carries no more than the best so far, as far as that can be told.
  verdict consider(std::size_t i) {
    constexpr double within = 0.02;
    const double carries = judge_.capacity_above(splits_[i], most_, expected_, within);
    if (carries > most_) {
      most_ = carries;
      best_ = splits_[i];
      return {true};
    }
    return most_ > 0 ? judge_.try_at(splits_[i], most_ * (1 + within)) : verdict{};
  }

  plan_judge& judge_;
  std::vector<plan_cluster> splits_;
  std::optional<plan_cluster>& best_;
  double& most_;
  double expected_ = 1;  ///< where to look for a split's load, before one is known
};

std::optional<plan_cluster> strongest(plan_judge& judge, const plan_cluster& first) {
  const auto& p = judge.problem();
  std::optional<plan_cluster> best;
  double most = 0;
  auto forms = forms_of(p, first);
  // Clusters that usually carry more come first: later ones are only compared with them.
  std::stable_partition(forms.begin(), forms.end(), [](const plan_cluster& f) { return !f.coupled(); });
  for (const auto& form : forms) split_sweep{judge, splits_of(p, form), best, most}.run();
  return best;
}

/// The parts of `c` with another choice of one of them.
plan_parts parts_with(const plan_problem& p, plan_cluster c, double plan_cluster::*part, double choice) {
  c.*part = choice;
  return parts_of(p, c);
}

}  // namespace

plan_cluster first_choice(const plan_problem& p) {
  plan_cluster c;
  c.policy = p.policies.empty() ? p.base.policy : p.policies.front();
  c.admission = p.admissions.empty() ? p.base.admission : p.admissions.front();
  const auto ssd = [&](double gb) { return parts_with(p, c, &plan_cluster::ssd_gb, gb).ssd_gb; };
  const auto nic = [&](double gbit) { return parts_with(p, c, &plan_cluster::nic_gbit, gbit).nic_gbit; };
  c.cache_factor = std::ranges::max(p.cache_factors);
  c.ssd_gb = std::ranges::max(p.ssd_gb, {}, ssd);
  c.nic_gbit = std::ranges::max(p.nic_gbit, {}, nic);
  return c;
}

plan_cluster with_least_parts(const plan_problem& p, plan_cluster c) {
  const auto ssd = [&](double gb) { return parts_with(p, c, &plan_cluster::ssd_gb, gb).ssd_gb; };
  const auto nic = [&](double gbit) { return parts_with(p, c, &plan_cluster::nic_gbit, gbit).nic_gbit; };
  const auto least_ssd = std::ranges::min(p.ssd_gb, {}, ssd),
             least_nic = std::ranges::min(p.nic_gbit, {}, nic);
  c.cache_factor = std::ranges::min(p.cache_factors);
  c.ssd_gb = least_ssd;
  c.nic_gbit = least_nic;
  return c;
}

std::vector<plan_cluster> best_machines(plan_judge& judge, const plan_cluster& first) {
  const auto& p = judge.problem();
  if (p.goal == plan_goal::goodput) {
    const auto best = strongest(judge, first);
    return best ? std::vector{*best} : std::vector<plan_cluster>{};
  }
  constexpr double machine_less = 1.25, none_less = 1;
  return cheapest(judge, first, p.goal == plan_goal::cost ? machine_less : none_less);
}

}  // namespace mooncaf::sim
