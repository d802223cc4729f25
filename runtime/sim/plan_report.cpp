#include "runtime/sim/plan_report.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "runtime/sim/derived_profile.hpp"
#include "runtime/sim/json_object.hpp"
#include "runtime/sim/plan_around.hpp"
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

const char* name_of(plan_part part) {
  constexpr const char* names[] = {"policy", "admission", "memory for KV", "SSD for KV", "network"};
  return names[static_cast<std::size_t>(part)];
}

/// The parts of one machine that prefills: "2 x 983 GB" would say less.
std::string parts_line(const plan_problem& p, const plan_cluster& c) {
  const auto o = options_of(p, c);
  const auto parts = parts_of(p, c);
  std::string text;
  put(text, "%.0f GB of memory for KV (%llu tokens), %.0f GB on SSD, %.0f Gbit/s", parts.cache_gb,
      static_cast<unsigned long long>(o.hardware.dram_tokens), parts.ssd_gb, parts.nic_gbit);
  return text;
}

/// How many devices share every layer; "" where a profile does not say.
std::string devices_line(const plan_problem& p, const plan_cluster& c) {
  std::string text;
  const auto add = [&](std::uint32_t kind, const char* role) {
    const auto machine = parse_deployment(p.kinds[kind].name);
    if (!machine) return;
    put(text, "%s%s over %u %s", text.empty() ? "" : ", ", role, machine->devices,
        std::string{machine->device.name}.c_str());
  };
  if (c.coupled() || c.prefill_kind == c.decode_kind) {
    add(c.prefill_kind, "every layer");
  } else {
    add(c.prefill_kind, "every layer of prefill");
    add(c.decode_kind, "of decode");
  }
  return text;
}

/// First the reader's main question: the cluster, and how much it carries.
void head(std::string& out, const plan_problem& p, const plan_answer& a, const std::string& currency) {
  const auto o = options_of(p, a.cluster);
  put(out, "recommended          %s = %u machines; %s, %s admission\n", describe(p, a.cluster).c_str(),
      a.cluster.machines(), std::string{to_string(o.policy)}.c_str(),
      std::string{to_string(o.admission)}.c_str());
  put(out, "each of them         %s\n", parts_line(p, a.cluster).c_str());
  if (const auto devices = devices_line(p, a.cluster); !devices.empty())
    put(out, "tensor parallel      %s\n", devices.c_str());
  put(out,
      "carries              %.2f to %.2f times this traffic (%zu seeds, jitter %.2g) with %.1f %% inside "
      "both SLOs\n",
      a.carries.front(), a.carries.back(), a.carries.size(), o.jitter, 100 * p.target);
  put(out,
      "plan for             %.2f times at most, %.2f below the cliff: there %.2f %% are inside both SLOs\n",
      a.planned_load, a.carries.front() / a.planned_load, 100 * a.planned_share);
  const auto* made = overload_of(a, a.cluster.admission);
  if (made != nullptr) {
    put(out,
        "if more comes        of %.2f times the traffic %.1f %% end inside both SLOs with this admission",
        a.overload_load, 100 * made->slo_share);
    const auto most = std::ranges::max_element(a.overload, {}, &plan_overload::slo_share);
    if (most->slo_share > made->slo_share + 0.01) {
      put(out, ", %.1f %% with %s", 100 * most->slo_share, std::string{to_string(most->admission)}.c_str());
    }
    out += "\n";
  }
  if (!currency.empty()) {
    put(out,
        "costs                %.2f %s an hour; %.3f %s per million tokens, %.3f %s per million of answers\n",
        a.cost_per_hour, currency.c_str(), a.cost_per_million_tokens, currency.c_str(),
        a.cost_per_million_output_tokens, currency.c_str());
  }
  if (a.cluster.pipeline > 1) {
    put(out, "beware               the %u machines of a group are devices of one host to the server\n",
        a.cluster.pipeline);
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

/// The price of a cluster that is given as much as its headroom allows.
double price_of(const plan_problem& p, const plan_answer& a, const plan_point& at) {
  return price_at(p, a, at.cluster, at.carries / p.headroom);
}

std::string bar_of(const plan_answer& a, double carries) {
  const double carried = std::max(a.carries.front(), 1e-9);
  return std::string(std::min<std::size_t>(static_cast<std::size_t>(carries / carried * 30), 45), '#');
}

/// Nothing where nothing is carried.
std::string price_text(double price) {
  std::string text;
  if (price > 0) put(text, "%8.3f  ", price);
  else put(text, "%8s  ", "");
  return text;
}

std::string less_than(double carries) {
  std::string text;
  put(text, "<%.2f", carries);
  return text;
}

template <class Name>
void points(std::string& out, const char* title, const plan_problem& p, const plan_answer& a,
            const std::vector<plan_point>& list, const std::string& currency, Name&& name) {
  put(out, "%-46s  carries%s\n", title,
      currency.empty() ? "" : ("  " + currency + " per million tokens").c_str());
  for (const auto& at : list) {
    put(out, "  %-44s ", name(at.cluster).c_str());
    if (at.carries > 0) put(out, "%8.2f x  ", at.carries);
    else put(out, "%8s x  ", less_than(hardly_any * a.carries.front()).c_str());
    if (!currency.empty()) out += price_text(price_of(p, a, at));
    out += bar_of(a, at.carries) + (at.cluster == a.cluster ? " <\n" : "\n");
  }
}

void other_loads(std::string& out, const plan_problem& p, const plan_answer& a, const std::string& currency) {
  if (a.sizes.empty()) return;
  put(out, "\n%s%s\n",
      p.goal == plan_goal::goodput ? "more and fewer machines: planned for" : "what other loads need",
      currency.empty() ? "" : (", " + currency + " an hour and per million tokens").c_str());
  for (const auto& s : a.sizes) {
    put(out, "  %8.2f x  %-40s", s.load,
        (describe(p, s.cluster) + " = " + std::to_string(s.cluster.machines())).c_str());
    if (!currency.empty()) put(out, " %10.2f %8.3f", cost_of(p, s.cluster), s.cost_per_million_tokens);
    out += s.cluster == a.cluster ? " <\n" : "\n";
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
      .number("ssd_gb", parts_of(p, c).ssd_gb)
      .number("dram_gb", parts_of(p, c).cache_gb)
      .number("nic_gbit_per_s", o.hardware.nic_bytes_per_s * 8e-9)
      .done();
}

template <class Name>
std::string json_of(const plan_problem& p, const plan_answer& a, const std::vector<plan_point>& list,
                    bool priced, Name&& name) {
  std::vector<std::string> all;
  for (const auto& at : list) {
    json_object j;
    j.text("name", name(at.cluster)).flag("chosen", at.cluster == a.cluster);
    j.raw("cluster", json_of(p, at.cluster)).number("carries", at.carries);
    if (priced) j.number("cost_per_million_tokens", price_of(p, a, at));
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

std::string describe(const plan_problem& p, const plan_cluster& c, plan_part part) {
  const auto parts = parts_of(p, c);
  std::string text;
  switch (part) {
    case plan_part::policy:
      return std::string{to_string(c.policy)};
    case plan_part::admission:
      return std::string{to_string(c.admission)};
    case plan_part::cache:
      put(text, "%.0f GB of memory", parts.cache_gb);
      break;
    case plan_part::ssd:
      put(text, "%.0f GB of SSD", parts.ssd_gb);
      break;
    case plan_part::nic:
      put(text, "%.4g Gbit/s", parts.nic_gbit);
      break;
  }
  return text;
}

const plan_overload* overload_of(const plan_answer& a, admission_policy admission) {
  const auto at = std::ranges::find(a.overload, admission, &plan_overload::admission);
  return at == a.overload.end() ? nullptr : &*at;
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
  const auto cluster = [&](const plan_cluster& c) { return describe(p, c); };
  out += "\n";
  points(out, "around it", p, a, a.around, currency, cluster);
  out += "\n";
  for (const auto& w : a.worth) {
    const auto part = [&](const plan_cluster& c) { return describe(p, c, w.part); };
    points(out, name_of(w.part), p, a, w.points, currency, part);
  }
  other_loads(out, p, a, currency);
  put(out, "\nif %.2f times the traffic comes, inside both SLOs by admission:", a.overload_load);
  for (const auto& o : a.overload) {
    put(out, " %s %.1f %%", std::string{to_string(o.admission)}.c_str(), 100 * o.slo_share);
  }
  put(out, "\n%llu simulations\n", static_cast<unsigned long long>(a.runs));
  return out;
}

/// Everything the text says, and the clusters that were looked at, for programs.
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
  const bool priced = !currency.empty();
  j.raw("risks", json_list(risks));
  j.raw("around", json_of(p, a, a.around, priced, [&](const plan_cluster& c) { return describe(p, c); }));
  std::vector<std::string> worth, cliff, sizes;
  for (const auto& w : a.worth) {
    const auto name = [&](const plan_cluster& c) { return describe(p, c, w.part); };
    worth.push_back(json_object{}
                        .text("what", name_of(w.part))
                        .raw("points", json_of(p, a, w.points, priced, name))
                        .done());
  }
  for (const auto& s : a.cliff)
    cliff.push_back(json_object{}.number("load", s.load).number("slo_share", s.share).done());
  for (const auto& s : a.sizes) {
    json_object size;
    size.number("load", s.load).text("name", describe(p, s.cluster)).raw("cluster", json_of(p, s.cluster));
    if (priced) {
      size.number("cost_per_hour", cost_of(p, s.cluster))
          .number("cost_per_million_tokens", s.cost_per_million_tokens);
    }
    sizes.push_back(size.flag("chosen", s.cluster == a.cluster).done());
  }
  j.raw("worth", json_list(worth)).raw("cliff", json_list(cliff)).raw("sizes", json_list(sizes));
  j.number("overload_load", a.overload_load);
  return j.raw("overload", json_list(overload)).done() + "\n";
}

}  // namespace mooncaf::sim
