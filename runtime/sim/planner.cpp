#include "runtime/sim/planner.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/sim/plan_around.hpp"

namespace mooncaf::sim {

namespace {

constexpr double worse = 0.2;  ///< prompts longer, steps slower by this share
constexpr double too_much = 1.5;

profile slowed(profile p, double factor) {
  auto& c = p.costs;
  for (auto* s : {&c.prefill_constant_s, &c.prefill_token_s, &c.prefill_pair_s, &c.prefill_cached_token_s,
                  &c.decode_constant_s, &c.decode_sequence_s, &c.decode_context_token_s}) {
    *s *= factor;
  }
  return p;
}

/// How the cluster fares at the planned load when one thing is worse than planned.
class risk_table {
 public:
  risk_table(plan_judge& judge, const plan_answer& answer)
      : judge_(judge), answer_(answer), fails_at_(judge.known_to_fail(answer.cluster)) {}

  std::vector<plan_risk> all() {
    const auto& p = judge_.problem();
    const auto& c = answer_.cluster;
    const auto as_planned = options_of(p, c);
    auto slow = as_planned;
    slow.hardware = slowed(slow.hardware, 1 + worse);
    if (slow.decode_hardware) slow.decode_hardware = slowed(*slow.decode_hardware, 1 + worse);
    const double carried = answer_.carries.front();
    // Queues make more of it than it is.
    constexpr double much_worse = (1 + worse) * (1 + worse);
    add("steps 20 % slower", slow, judge_.records(), carried / much_worse);
    add("prompts 20 % longer", as_planned,
        lengthened(judge_.records(), worse, as_planned.hardware.block_tokens), carried / much_worse);
    const auto without_one = [&](std::uint32_t instances) { return carried * (instances - 1) / instances; };
    auto fewer = c;
    --fewer.prefill;
    if (fewer.prefill > 0) {
      add(c.coupled()       ? "one machine less"
          : c.pipeline == 1 ? "one prefill machine less"
                            : "one prefill group less",
          options_of(p, fewer), judge_.records(), without_one(c.prefill));
    }
    fewer = c;
    if (c.decode > 1) {
      --fewer.decode;
      add("one decode machine less", options_of(p, fewer), judge_.records(), without_one(c.decode));
    }
    return std::move(rows_);
  }

 private:
  void add(std::string what, const simulation_options& options, const std::vector<workload_record>& records,
           double guess) {
    const auto& p = judge_.problem();
    const double planned = answer_.planned_load;
    plan_risk row{std::move(what), judge_.share(answer_.cluster, options, records, planned), 0};
    const bool fine = row.slo_share >= p.target;
    const auto holds = [&](double load) {
      if (fine ? load <= planned : load >= planned) return fine;
      if (load >= fails_at_) return false;  // already where all is as planned
      return judge_.meets(answer_.cluster, options, records, load);
    };
    row.carries = std::max(largest_load(holds, guess, rough), fine ? planned : 0);
    rows_.push_back(std::move(row));
  }

  plan_judge& judge_;
  const plan_answer& answer_;
  double fails_at_;
  std::vector<plan_risk> rows_;
};

void price_plan(const plan_problem& p, const std::vector<workload_record>& records, plan_answer& a) {
  double in = 0, out = 0;
  for (const auto& r : records) in += r.input_tokens, out += r.output_tokens;
  const double span =
      std::max(static_cast<double>(records.back().timestamp_ms - records.front().timestamp_ms) * 1e-3, 1e-3);
  a.trace_lasts_s = span / a.planned_load;
  a.cost_per_hour = cost_of(p, a.cluster);
  const double per_second = a.cost_per_hour / 3600, scale = a.planned_load / span;
  a.cost_per_million_tokens = per_second / ((in + out) * scale) * 1e6;
  a.cost_per_million_output_tokens = out > 0 ? per_second / (out * scale) * 1e6 : 0;
}

/// Tries the admission policies at overload, and takes the best one if it carries as much as the cluster does
/// without it.
void choose_admission(plan_judge& judge, plan_answer& a) {
  const auto& p = judge.problem();
  const double carried = p.goal == plan_goal::goodput ? judge.known_to_carry(a.cluster) : p.load * p.headroom;
  a.overload_load = too_much * carried;
  std::vector<admission_policy> all{admissions_to_compare.begin(), admissions_to_compare.end()};
  if (std::ranges::find(all, a.cluster.admission) == all.end()) all.push_back(a.cluster.admission);
  for (const auto admission : all) {
    auto c = a.cluster;
    c.admission = admission;
    a.overload.push_back({admission, judge.share(c, options_of(p, c), judge.records(), a.overload_load)});
  }
  const auto made_of_it = [&](admission_policy admission) {
    const auto at = std::ranges::find(a.overload, admission, &plan_overload::admission);
    return at == a.overload.end() ? 0 : at->slo_share;
  };
  constexpr double worth_it = 0.01;
  auto best = a.cluster;
  for (const auto& other : with_other(p, a.cluster, plan_part::admission)) {
    if (made_of_it(other.admission) < made_of_it(best.admission) + worth_it) continue;
    const bool carries =
        p.goal == plan_goal::goodput ? judge.holds(other, carried) : judge.holds_always(other, carried);
    if (carries) best = other;
  }
  a.cluster = best;
}

/// How much the cluster carries, with every seed.
void ask_seeds(plan_judge& judge, plan_answer& a) {
  const auto& p = judge.problem();
  double guess = p.goal == plan_goal::goodput ? judge.known_to_carry(a.cluster) : p.load * p.headroom;
  for (std::uint32_t draw = 0; draw < p.seeds; ++draw) {
    // The search knows it within 2 %, and draws differ by little: small steps do.
    constexpr double small = 1.03;
    a.carries.push_back(guess = judge.capacity(a.cluster, guess, small - 1, draw, 1.0 / 64, small));
  }
  std::ranges::sort(a.carries);
  a.planned_load = p.goal == plan_goal::goodput ? a.carries.front() / p.headroom : p.load;
  a.planned_share = 1;
  for (std::uint32_t draw = 0; draw < p.seeds && a.planned_load > 0; ++draw)
    a.planned_share = std::min(a.planned_share, judge.share(a.cluster, a.planned_load, draw));
}

}  // namespace

std::vector<workload_record> lengthened(std::vector<workload_record> records, double share,
                                        std::uint32_t block_tokens) {
  std::uint64_t fresh = std::uint64_t{1} << 62;
  for (auto& r : records) {
    const auto full = r.input_tokens / block_tokens;
    r.input_tokens += static_cast<std::uint32_t>(share * r.input_tokens);
    const auto blocks = (std::uint64_t{r.input_tokens} + block_tokens - 1) / block_tokens;
    r.hash_ids.resize(std::min<std::uint64_t>(full, blocks));
    while (r.hash_ids.size() < blocks) r.hash_ids.push_back(fresh++);
  }
  return records;
}

result<plan_answer> plan(const plan_problem& problem, const std::vector<workload_record>& records,
                         plan_progress progress) {
  if (const auto fine = check_problem(problem); !fine) return fail(fine.error());
  plan_judge judge{problem, records, std::move(progress)};
  plan_answer a;
  const auto best = best_cluster(judge);
  a.runs = judge.runs();
  if (!best) return a;
  a.cluster = *best;
  const auto rest = expected_around(judge, a.cluster);
  judge.begin("admission", 2 * admissions_to_compare.size() + rest);
  choose_admission(judge, a);
  judge.begin("other seeds", 3 * problem.seeds + rest);
  ask_seeds(judge, a);
  if (!(a.planned_load > 0)) return a;
  a.found = true;
  price_plan(problem, records, a);
  judge.begin("what pushes it over", rest);
  a.risks = risk_table{judge, a}.all();
  look_around(judge, a);
  a.runs = judge.runs();
  return a;
}

}  // namespace mooncaf::sim
