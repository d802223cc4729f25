#include "runtime/sim/compare_report.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/pages/pages.hpp"
#include "runtime/sim/json_object.hpp"
#include "runtime/sim/page.hpp"

namespace mooncaf::sim {

namespace {

using nlohmann::json;

enum class better : std::uint8_t { neither, more, less };

/// A line of results: where it stands in a run's JSON, and in which unit it is shown.
struct figure {
  const char* what;
  const char* at;  ///< JSON pointer
  double scale;
  const char* format;
  better which;
};

constexpr figure figures[] = {
    {"machines", "/options/machines", 1, "%.0f", better::less},
    {"requests", "/requests/arrived", 1, "%.0f", better::neither},
    {"inside both SLOs, %", "/slo_share", 100, "%.2f", better::more},
    {"goodput, requests/s", "/goodput_per_s", 1, "%.3f", better::more},
    {"TTFT, mean, s", "/ttft_s/mean", 1, "%.3f", better::less},
    {"TTFT, p99, s", "/ttft_s/p99", 1, "%.3f", better::less},
    {"TBT of a request, p50, ms", "/tbt_s/p50", 1000, "%.1f", better::less},
    {"TBT of a request, p99, ms", "/tbt_s/p99", 1000, "%.1f", better::less},
    {"first token too late", "/requests/ttft_missed", 1, "%.0f", better::less},
    {"tokens too slow", "/requests/tbt_missed", 1, "%.0f", better::less},
    {"prefix blocks found, %", "/hit_share", 100, "%.1f", better::more},
    {"prefill computing, % of the time", "/prefill_busy", 100, "%.1f", better::neither},
    {"decode computing, % of the time", "/decode_busy", 100, "%.1f", better::neither},
    {"decode's KV memory, % at most", "/decode_memory_most", 100, "%.1f", better::neither},
    {"requests given up", "/requests/failed", 1, "%.0f", better::less},
    {"machine-hours paid", "/machines/hours", 1, "%.2f", better::less},
    {"cost, by the prices given", "/machines/cost", 1, "%.2f", better::less},
    {"… per million tokens", "/machines/cost_per_million_tokens", 1, "%.3f", better::less},
    {"… per 1000 requests inside both", "/machines/cost_per_thousand_good", 1, "%.3f", better::less},
    {"prefill spent in vain, s", "/wasted_prefill_s", 1, "%.0f", better::less},
};

constexpr const char* columns[] = {
    "prefill_load", "decode_load", "prefill_waiting", "decode_running", "hit_share", "rejected", "paid"};

std::string shown(const char* format, double v) {
  if (std::isnan(v)) return "–";
  char text[40];
  std::snprintf(text, sizeof text, format, v);
  return text;
}

/// Options lie two levels deep; deeper values are shown as they stand.
void flatten(const json& value, const std::string& path,
             std::vector<std::pair<std::string, std::string>>& out, int depth = 0) {
  if (value.is_object() && depth < 2) {
    for (const auto& [key, inner] : value.items())
      flatten(inner, path.empty() ? key : path + "." + key, out, depth + 1);
  } else {
    out.emplace_back(path, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

bool is_number_or_null(const json& v) { return v.is_number() || v.is_null(); }

/// [n, …] of numbers and nulls.
bool is_row(const json& v, std::size_t wanted) {
  return v.is_array() && v.size() == wanted && std::ranges::all_of(v, is_number_or_null);
}

/// [[n, n], …].
bool is_cdf(const json& v) {
  return v.is_array() && std::ranges::all_of(v, [](const json& p) {
           return p.is_array() && p.size() == 2 && p[0].is_number() && p[1].is_number();
         });
}

/// @returns a missing part, or nothing.
std::string plots_of(const json& run, const std::string& name, std::string& out) {
  for (const char* c : {"ttft_cdf", "tbt_cdf"}) {
    if (!run.contains(c) || !is_cdf(run[c])) return std::string{c} + " is missing";
  }
  if (!run.contains("history") || !run["history"].is_object()) return "history is missing";
  const auto& h = run["history"];
  if (!h.contains("at_s") || !h["at_s"].is_array()) return "history.at_s is missing";
  const auto rows = h["at_s"].size();
  json data{{"name", name}, {"ttft", run["ttft_cdf"]}, {"tbt", run["tbt_cdf"]}};
  if (!is_row(h["at_s"], rows)) return "history.at_s is no row of numbers";
  data["at"] = h["at_s"];
  for (const char* c : columns) {
    if (!h.contains(c) || !is_row(h[c], rows))
      return std::string{"history."} + c + " is missing, or of another length";
    data[c] = h[c];
  }
  for (const auto& [key, at] :
       {std::pair{"ttft_slo", "/options/slo_ttft_s"}, {"tbt_slo", "/options/slo_tbt_s"}}) {
    const json::json_pointer where{at};
    if (!run.contains(where) || !run[where].is_number()) return std::string{at}.substr(1) + " is missing";
    data[key] = run[where];
  }
  // A file's name need not be UTF-8.
  out = data.dump(-1, ' ', false, json::error_handler_t::replace);
  return {};
}

/// The only best one of a line; -1: none, or several.
int best_of(const std::vector<double>& values, better which) {
  if (which == better::neither) return -1;
  const auto known = [](double v) { return !std::isnan(v); };
  if (!std::ranges::all_of(values, known)) return -1;
  const auto best =
      which == better::more ? std::ranges::max_element(values) : std::ranges::min_element(values);
  return std::ranges::count(values, *best) == 1 ? static_cast<int>(best - values.begin()) : -1;
}

}  // namespace

result<compared_run> read_run(std::string_view text, const std::string& name) {
  const auto bad = [&](const std::string& why) { return fail(ec::corrupt, name + ": " + why); };
  const auto run = json::parse(text, nullptr, false);
  if (run.is_discarded() || !run.is_object()) return bad("this is no JSON object");
  if (!run.contains("options") || !run["options"].is_object())
    return bad("this is no run: mooncaf simulate --json writes one");
  compared_run out;
  out.name = name;
  if (const auto why = plots_of(run, name, out.plots); !why.empty())
    return bad(why + ": mooncaf simulate --json of this version writes it");
  flatten(run["options"], "", out.options);
  for (const auto& f : figures) {
    const json::json_pointer at{f.at};
    const bool there = run.contains(at) && run[at].is_number();
    out.figures.push_back(there ? run[at].get<double>() * f.scale : std::numeric_limits<double>::quiet_NaN());
  }
  return out;
}

std::vector<compared_row> compare(const std::vector<compared_run>& runs) {
  std::vector<compared_row> rows;
  std::vector<std::string> names;
  for (const auto& r : runs) {
    for (const auto& [key, value] : r.options) {
      if (std::ranges::find(names, key) == names.end()) names.push_back(key);
    }
  }
  std::erase(names, "machines");  // a figure below
  for (const auto& name : names) {
    compared_row row{name, {}, -1, true};
    for (const auto& r : runs) {
      const auto at = std::ranges::find(r.options, name, &std::pair<std::string, std::string>::first);
      row.values.push_back(at == r.options.end() ? "–" : at->second);
    }
    if (std::ranges::count(row.values, row.values.front()) < std::ptrdiff_t(runs.size())) rows.push_back(row);
  }
  for (std::size_t f = 0; f < std::size(figures); ++f) {
    compared_row row{figures[f].what, {}, -1, false};
    std::vector<double> values;
    for (const auto& r : runs) {
      values.push_back(r.figures[f]);
      row.values.push_back(shown(figures[f].format, r.figures[f]));
    }
    row.best = best_of(values, figures[f].which);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string to_text(const std::vector<compared_run>& runs) {
  constexpr std::size_t first = 36, other = 18;
  std::string out(first, ' ');
  const auto cell = [&](const std::string& text) {
    out += std::string(text.size() < other ? other - text.size() : 1, ' ') + text;
  };
  for (const auto& r : runs) cell(r.name);
  out += "\n";
  for (const auto& row : compare(runs)) {
    auto what = row.what;
    what.resize(std::max(what.size() + 1, first), ' ');
    out += what;
    for (std::size_t i = 0; i < row.values.size(); ++i) {
      cell(row.values[i] + (row.best == static_cast<int>(i) ? " *" : "  "));
    }
    out += "\n";
  }
  return out + "* best of them\n";
}

std::string to_html(const std::vector<compared_run>& runs) {
  std::string table = "<div class=\"wide\"><table><tr><th></th>", data;
  for (const auto& r : runs) {
    table += "<th>" + html_text(r.name) + "</th>";
    data += (data.empty() ? "" : ",") + r.plots;
  }
  table += "</tr>";
  for (const auto& row : compare(runs)) {
    table +=
        std::string{row.option ? "<tr class=\"differs\">" : "<tr>"} + "<td>" + html_text(row.what) + "</td>";
    for (std::size_t i = 0; i < row.values.size(); ++i) {
      table += row.best == static_cast<int>(i) ? "<td class=\"best\">" : "<td>";
      table += html_text(row.values[i]) + "</td>";
    }
    table += "</tr>";
  }
  table += "</table></div>";
  return report_page(pages::compare_plots, std::to_string(runs.size()) + " runs side by side", table,
                     "{\"runs\":[" + data + "]}");
}

}  // namespace mooncaf::sim
