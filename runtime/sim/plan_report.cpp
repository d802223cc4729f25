#include "runtime/sim/plan_report.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "runtime/sim/json_object.hpp"
#include "runtime/sim/report.hpp"

namespace mooncaf::sim {

namespace {

[[gnu::format(printf, 2, 3)]] void put(std::string& out, const char* format, ...) {
  char line[512];
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  out += line;
}

const char* name_of(plan_goal g) {
  constexpr const char* names[] = {"goodput", "nodes", "cost"};
  return names[static_cast<std::size_t>(g)];
}

void head(std::string& out, const plan_problem& p, const plan_answer& a, const std::string& currency) {
  const auto o = options_of(p, a.cluster);
  put(out, "recommended          %s = %u machines; %s, %s admission\n", describe(p, a.cluster).c_str(),
      a.cluster.machines(), std::string{to_string(o.policy)}.c_str(),
      std::string{to_string(o.admission)}.c_str());
  put(out, "each of them         %llu tokens of KV in memory, %llu on disk, %.0f Gbit/s\n",
      static_cast<unsigned long long>(o.hardware.dram_tokens),
      static_cast<unsigned long long>(o.hardware.ssd_tokens), o.hardware.nic_bytes_per_s * 8e-9);
  put(out,
      "carries              %.2f to %.2f times this traffic (%zu seeds, jitter %.2g) with %.1f %% inside "
      "both SLOs\n",
      a.carries.front(), a.carries.back(), a.carries.size(), o.jitter, 100 * p.target);
  put(out,
      "plan for             %.2f times at most, %.2f below the cliff: there %.2f %% are inside both SLOs\n",
      a.planned_load, a.carries.front() / a.planned_load, 100 * a.planned_share);
  const auto safest = std::ranges::max_element(a.overload, {}, &plan_overload::slo_share);
  if (safest != a.overload.end()) {
    put(out, "for more than that   --admission %s: of %.2f times the traffic %.1f %% end inside both SLOs\n",
        std::string{to_string(safest->admission)}.c_str(), a.overload_load, 100 * safest->slo_share);
  }
  if (!currency.empty()) {
    put(out,
        "costs                %.2f %s an hour; %.3f %s per million tokens, %.3f %s per million of answers\n",
        a.cost_per_hour, currency.c_str(), a.cost_per_million_tokens, currency.c_str(),
        a.cost_per_million_output_tokens, currency.c_str());
  }
  const double slos = a.trace_lasts_s / p.base.ttft_slo_s;
  if (slos < 10) {
    put(out,
        "beware               the trace lasts %.0f s at this load, %.1f TTFT SLOs: queues have no time to "
        "grow; a "
        "longer trace says more\n",
        a.trace_lasts_s, slos);
  }
  for (const auto& value : p.base.assumed) put(out, "not in the profile   %s is assumed\n", value.c_str());
}

void risks(std::string& out, const plan_answer& a) {
  put(out, "\ndistance to the cliff, at %.2f times the traffic\n", a.planned_load);
  put(out, "                               inside SLOs    still carries\n");
  put(out, "  %-28s %9.2f %%  %9.2f x\n", "as planned", 100 * a.planned_share, a.carries.front());
  for (const auto& r : a.risks) {
    put(out, "  %-28s %9.2f %%  %9.2f x%s\n", r.what.c_str(), 100 * r.slo_share, r.carries,
        r.carries < a.planned_load ? "   falls over" : "");
  }
}

/// What a million tokens costs on a cluster that is given as much as its headroom allows; 0 if it carries
/// nothing.
double price_at(const plan_problem& p, const plan_answer& a, const plan_point& at) {
  const double tokens_per_hour = a.cost_per_hour / a.cost_per_million_tokens * 1e6 / a.planned_load;
  return at.carries > 0 ? cost_of(p, at.cluster) / (tokens_per_hour * at.carries / p.headroom) * 1e6 : 0;
}

void points(std::string& out, const char* title, const plan_problem& p, const plan_answer& a,
            const std::vector<plan_point>& list, const std::string& currency) {
  if (list.empty()) return;
  const double carried = std::max(a.carries.back(), 1e-9);
  put(out, "\n%s%s\n", title, currency.empty() ? "" : (", " + currency + " per million tokens").c_str());
  for (const auto& at : list) {
    const auto o = options_of(p, at.cluster);
    put(out, "  %-44s %-16s %12llu %8.2f x  ", describe(p, at.cluster).c_str(),
        std::string{to_string(o.policy)}.c_str(), static_cast<unsigned long long>(o.hardware.dram_tokens),
        at.carries);
    if (!currency.empty()) put(out, "%8.3f  ", price_at(p, a, at));
    out += std::string(std::min<std::size_t>(static_cast<std::size_t>(at.carries / carried * 30), 45), '#');
    out += at.cluster == a.cluster ? " <\n" : "\n";
  }
}

std::string json_of(const plan_problem& p, const plan_cluster& c) {
  const auto o = options_of(p, c);
  return json_object{}
      .text("mode", c.coupled() ? "coupled" : "disaggregated")
      .text("coupled", name_of(o.coupled))
      .text("prefill_machine", p.kinds[c.prefill_kind].name)
      .text("decode_machine", p.kinds[c.decode_kind].name)
      .count("machines", c.machines())
      .count("prefill", c.prefill)
      .count("pipeline", c.pipeline)
      .count("decode", c.decode)
      .count("coupled_chunk", c.chunk)
      .text("policy", to_string(o.policy))
      .text("admission", to_string(o.admission))
      .count("dram_tokens", o.hardware.dram_tokens)
      .count("ssd_tokens", o.hardware.ssd_tokens)
      .number("nic_gbit_per_s", o.hardware.nic_bytes_per_s * 8e-9)
      .done();
}

std::string json_of(const plan_problem& p, const plan_answer& a, const std::vector<plan_point>& list,
                    bool priced) {
  std::vector<std::string> all;
  for (const auto& at : list) {
    json_object j;
    j.raw("cluster", json_of(p, at.cluster)).number("carries", at.carries);
    if (priced) j.number("cost_per_million_tokens", price_at(p, a, at));
    all.push_back(j.done());
  }
  return json_list(all);
}

std::string json_of_problem(const plan_problem& p) {
  std::vector<std::string> kinds, assumed;
  for (const auto& k : p.kinds) {
    kinds.push_back(json_object{}.text("name", k.name).number("node_hour", k.node_hour).done());
  }
  for (const auto& value : p.base.assumed) assumed.push_back(json_text(value));
  return json_object{}
      .text("goal", name_of(p.goal))
      .count("nodes", p.nodes)
      .number("load", p.load)
      .number("headroom", p.headroom)
      .number("target", p.target)
      .count("seeds", p.seeds)
      .number("jitter", p.base.jitter)
      .number("slo_ttft_s", p.base.ttft_slo_s)
      .number("slo_tbt_s", p.base.tbt_slo_s)
      .raw("machines", json_list(kinds))
      .raw("assumed", json_list(assumed))
      .done();
}

}  // namespace

std::string describe(const plan_problem& p, const plan_cluster& c) {
  std::string text;
  const auto of = [&](std::uint32_t kind) { return p.kinds.size() > 1 ? " " + p.kinds[kind].name : ""; };
  if (c.coupled()) {
    put(text, "%u coupled%s, chunks of %u", c.prefill, of(c.prefill_kind).c_str(), c.chunk);
    return text;
  }
  put(text, "%u prefill%s", c.prefill, of(c.prefill_kind).c_str());
  if (c.pipeline > 1) put(text, " x %u machines", c.pipeline);
  put(text, " + %u decode%s", c.decode, of(c.decode_kind).c_str());
  return text;
}

std::string to_text(const plan_problem& p, const plan_answer& a, const std::string& currency) {
  std::string out;
  if (!a.found) {
    put(out, "No cluster of %s%u machines carries %s%.3g times this traffic with %.1f %% inside the SLOs.\n",
        p.goal == plan_goal::goodput ? "" : "at most ", p.nodes, p.goal == plan_goal::goodput ? "even " : "",
        p.goal == plan_goal::goodput ? 1.0 / 64 : p.load * p.headroom, 100 * p.target);
    return out;
  }
  head(out, p, a, currency);
  risks(out, a);
  points(out, "around it: cluster, policy, cache tokens of a prefill machine, carries", p, a, a.around,
         currency);
  points(out, "policies", p, a, a.policies, currency);
  points(out, "memory for KV", p, a, a.caches, currency);
  put(out, "\nif %.2f times the traffic comes, inside both SLOs by admission:", a.overload_load);
  for (const auto& o : a.overload) {
    put(out, " %s %.1f %%", std::string{to_string(o.admission)}.c_str(), 100 * o.slo_share);
  }
  put(out, "\n%llu simulations\n", static_cast<unsigned long long>(a.runs));
  return out;
}

std::string to_json(const plan_problem& p, const plan_answer& a, const std::string& currency) {
  json_object j;
  j.raw("problem", json_of_problem(p)).flag("found", a.found).count("simulations", a.runs);
  if (!a.found) return j.done() + "\n";
  std::vector<std::string> carries, risks, overload;
  for (const double c : a.carries) carries.push_back(json_number(c));
  for (const auto& r : a.risks) {
    risks.push_back(json_object{}
                        .text("what", r.what)
                        .number("slo_share", r.slo_share)
                        .number("carries", r.carries)
                        .done());
  }
  for (const auto& o : a.overload) {
    overload.push_back(
        json_object{}.text("admission", to_string(o.admission)).number("slo_share", o.slo_share).done());
  }
  j.raw("cluster", json_of(p, a.cluster)).raw("carries", json_list(carries));
  j.number("planned_load", a.planned_load)
      .number("planned_share", a.planned_share)
      .number("trace_lasts_s", a.trace_lasts_s);
  if (!currency.empty()) {
    j.text("currency", currency).number("cost_per_hour", a.cost_per_hour);
    j.number("cost_per_million_tokens", a.cost_per_million_tokens);
    j.number("cost_per_million_output_tokens", a.cost_per_million_output_tokens);
  }
  j.raw("risks", json_list(risks))
      .raw("around", json_of(p, a, a.around, !currency.empty()))
      .raw("policies", json_of(p, a, a.policies, !currency.empty()));
  j.raw("caches", json_of(p, a, a.caches, !currency.empty())).number("overload_load", a.overload_load);
  return j.raw("overload", json_list(overload)).done() + "\n";
}

}  // namespace mooncaf::sim
