#include "runtime/sim/planner.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace mooncaf::sim {

namespace {

constexpr double worse = 0.2;  ///< prompts longer, steps slower by this share
constexpr double too_much = 1.5;
constexpr double hardly_any = 0.1;  ///< of what the best carries: less is shown as nothing
constexpr double rough = 0.1;       ///< how exactly is asked what is not recommended
constexpr std::array policies_to_compare{placement_policy::random, placement_policy::load_balancing,
                                         placement_policy::cache_aware, placement_policy::kvcache_centric};
constexpr std::array admissions_to_compare{admission_policy::none, admission_policy::queue,
                                           admission_policy::early, admission_policy::priced};
constexpr std::array cache_sizes{0.25, 0.5, 2.0};

profile slowed(profile p, double factor) {
  auto& c = p.costs;
  for (auto* s : {&c.prefill_constant_s, &c.prefill_token_s, &c.prefill_pair_s, &c.prefill_cached_token_s,
                  &c.decode_constant_s, &c.decode_sequence_s, &c.decode_context_token_s}) {
    *s *= factor;
  }
  return p;
}

/// What happens to the cluster at the planned load when one thing is worse than planned.
class risk_table {
 public:
  risk_table(plan_judge& judge, const plan_answer& answer) : judge_(judge), answer_(answer) {}

  std::vector<plan_risk> all() {
    const auto& p = judge_.problem();
    const auto& c = answer_.cluster;
    const auto as_planned = options_of(p, c);
    auto slow = as_planned;
    slow.hardware = slowed(slow.hardware, 1 + worse);
    if (slow.decode_hardware) slow.decode_hardware = slowed(*slow.decode_hardware, 1 + worse);
    add("steps 20 % slower", slow, judge_.records());
    add("prompts 20 % longer", as_planned,
        lengthened(judge_.records(), worse, as_planned.hardware.block_tokens));
    auto fewer = c;
    --fewer.prefill;
    if (fewer.prefill > 0) {
      add(c.coupled()       ? "one machine less"
          : c.pipeline == 1 ? "one prefill machine less"
                            : "one prefill group less",
          options_of(p, fewer), judge_.records());
    }
    fewer = c;
    if (c.decode > 1) {
      --fewer.decode;
      add("one decode machine less", options_of(p, fewer), judge_.records());
    }
    return std::move(rows_);
  }

 private:
  void add(std::string what, const simulation_options& options, const std::vector<workload_record>& records) {
    const auto& p = judge_.problem();
    plan_risk row{std::move(what), 1, 0};
    row.slo_share = slo_share_of(options, records, answer_.planned_load);
    const double planned = answer_.planned_load;
    const auto holds = [&](double load) {
      return load == planned ? row.slo_share >= p.target : meets(options, records, p.target, load);
    };
    row.carries = largest_load(holds, planned, rough);
    rows_.push_back(std::move(row));
  }

  plan_judge& judge_;
  const plan_answer& answer_;
  std::vector<plan_risk> rows_;
};

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

void price(const plan_problem& p, const std::vector<workload_record>& records, plan_answer& a) {
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

void look_around(plan_judge& judge, plan_answer& a) {
  const auto& p = judge.problem();
  const double known = a.carries.front();
  const auto point = [&](const plan_cluster& c) {
    // The other way of working is often far behind.
    const double near = c.coupled() == a.cluster.coupled() ? 1.1 : 2;
    return plan_point{c, judge.capacity(c, known, rough, 0, known * hardly_any, near)};
  };
  for (const auto& c : neighbours_of(p, a.cluster)) a.around.push_back(point(c));
  for (const auto policy : policies_to_compare) {
    auto c = a.cluster;
    c.policy = policy;
    a.policies.push_back(point(c));
  }
  for (const double factor : cache_sizes) {
    auto c = a.cluster;
    c.cache_factor *= factor;
    a.caches.push_back(point(c));
  }
  a.overload_load = too_much * known;
  for (const auto admission : admissions_to_compare) {
    auto o = options_of(p, a.cluster);
    o.admission = admission;
    a.overload.push_back({admission, slo_share_of(o, judge.records(), a.overload_load)});
  }
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
                         std::function<void(std::uint64_t, const plan_cluster&)> progress) {
  if (const auto fine = check_problem(problem); !fine) return fail(fine.error());
  plan_judge judge{problem, records, std::move(progress)};
  plan_answer a;
  const auto best = best_cluster(judge);
  a.runs = judge.runs();
  if (!best) return a;
  a.found = true;
  a.cluster = *best;
  double guess =
      problem.goal == plan_goal::goodput ? judge.known_to_carry(a.cluster) : problem.load * problem.headroom;
  for (std::uint32_t draw = 0; draw < problem.seeds; ++draw) {
    // The search knows it within 2 %, and draws differ by little: small steps do.
    constexpr double small = 1.03;
    a.carries.push_back(guess = judge.capacity(a.cluster, guess, 0.02, draw, 1.0 / 64, small));
  }
  std::ranges::sort(a.carries);
  a.planned_load = problem.goal == plan_goal::goodput ? a.carries.front() / problem.headroom : problem.load;
  if (!(a.planned_load > 0)) {
    a.found = false;
    return a;
  }
  a.planned_share = 1;
  for (std::uint32_t draw = 0; draw < problem.seeds; ++draw) {
    auto o = options_of(problem, a.cluster);
    o.seed += draw;
    a.planned_share = std::min(a.planned_share, slo_share_of(o, records, a.planned_load));
  }
  price(problem, records, a);
  a.risks = risk_table{judge, a}.all();
  look_around(judge, a);
  a.runs = judge.runs();
  return a;
}

}  // namespace mooncaf::sim
