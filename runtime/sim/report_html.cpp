#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "runtime/pages/pages.hpp"
#include "runtime/sim/page.hpp"
#include "runtime/sim/report.hpp"

namespace mooncaf::sim {

namespace {

std::string number(double v) {
  char text[32];
  if (!std::isfinite(v)) return "null";
  std::snprintf(text, sizeof text, "%.5g", v);
  return text;
}

/// Appends [a,b,…].
template <class Range, class Get>
void list(std::string& out, const Range& values, Get&& get) {
  out += '[';
  bool first = true;
  for (const auto& v : values) {
    if (!first) out += ',';
    first = false;
    out += number(get(v));
  }
  out += ']';
}

void cdf(std::string& out, const char* name, const log_histogram& h) {
  out += "\"" + std::string{name} + "\":" + json_cdf(h, 0.001) + ",";
}

void series(std::string& out, const char* name, const outcome& o, double timeline_row::*field) {
  out += "\"" + std::string{name} + "\":";
  list(out, o.history.rows(), [&](const timeline_row& r) { return r.*field; });
  out += ',';
}

void rows_of(std::string& out, const char* name, const outcome& o, std::vector<float> timeline_row::*field,
             std::size_t most) {
  const auto count = o.history.rows().empty() ? 0 : (o.history.rows().front().*field).size();
  out += "\"" + std::string{name} + "\":[";
  for (std::size_t i = 0; i < count && i < most; ++i) {
    if (i > 0) out += ',';
    list(out, o.history.rows(), [&](const timeline_row& r) { return static_cast<double>((r.*field)[i]); });
  }
  out += "],";
}

/// Instances that stand in one row of the heat map, so that there are not more rows than pixels.
struct busy_rows {
  std::vector<std::vector<double>> shares;  ///< mean over the instances of the row, per moment
  std::vector<std::string> names;
  std::size_t most = 1;  ///< instances of a row
};

busy_rows busy_of(const outcome& o, bool coupled) {
  constexpr std::size_t most_rows = 96;
  busy_rows out;
  const auto& rows = o.history.rows();
  const auto count = rows.empty() ? 0 : rows.front().busy.size();
  out.most = (count + most_rows - 1) / most_rows;
  const auto add = [&](std::size_t begin, std::size_t end, const std::string& role) {
    for (auto at = begin; at < end; at += out.most) {
      const auto behind = std::min(at + out.most, end);
      auto& shares = out.shares.emplace_back();
      for (const auto& r : rows) {
        double sum = 0;
        for (auto i = at; i < behind; ++i) sum += static_cast<double>(r.busy[i]);
        shares.push_back(sum / static_cast<double>(behind - at));
      }
      out.names.push_back(role + std::to_string(at - begin) +
                          (behind - at > 1 ? "–" + std::to_string(behind - 1 - begin) : ""));
    }
  };
  const std::size_t prefill = std::min<std::size_t>(o.prefill_instances, count);
  add(0, prefill, coupled ? "coupled " : "prefill ");
  add(prefill, count, "decode ");
  return out;
}

void busy(std::string& out, const busy_rows& rows) {
  out += "\"busy\":[";
  for (std::size_t i = 0; i < rows.shares.size(); ++i) {
    if (i > 0) out += ',';
    list(out, rows.shares[i], [](double v) { return v; });
  }
  out += "],\"busy_names\":[";
  for (std::size_t i = 0; i < rows.names.size(); ++i) out += (i > 0 ? ",\"" : "\"") + rows.names[i] + "\"";
  out += "],\"busy_note\":\"";
  if (rows.most > 1) out += "a row is the mean of up to " + std::to_string(rows.most) + " instances";
  out += "\",";
}

/// Which machines died, and when: marks in the plots over time, as many as can be told apart.
void deaths(std::string& out, const outcome& o) {
  constexpr int most = 60;
  int left = most;
  out += "\"deaths\":[";
  for (const auto& a : o.absences) {
    if (!a.failed || left-- <= 0) continue;
    out += (out.back() == '[' ? "[" : ",[") + number(a.from_s) + ",\"" + std::string{to_string(a.role)} +
           " " + std::to_string(a.instance) + "\"]";
  }
  out += "],";
}

}  // namespace

std::string to_html(const simulation_options& options, const outcome& o) {
  std::string data = "{";
  cdf(data, "ttft", o.ttft);
  cdf(data, "tbt", o.tbt);
  cdf(data, "gap", o.gap);
  data += "\"ttft_slo\":" + number(options.ttft_slo_s) + ",\"tbt_slo\":" + number(options.tbt_slo_s) + ",";
  series(data, "at", o, &timeline_row::at);
  series(data, "prefill_load", o, &timeline_row::prefill_load);
  series(data, "decode_load", o, &timeline_row::decode_load);
  series(data, "prefill_waiting", o, &timeline_row::prefill_waiting);
  series(data, "decode_running", o, &timeline_row::decode_running);
  series(data, "decode_waiting", o, &timeline_row::decode_waiting);
  data += "\"hit_share\":";
  list(data, o.history.rows(), [](const timeline_row& r) { return r.hit_share(); });
  data += ',';
  series(data, "rejected", o, &timeline_row::rejected);
  series(data, "decode_batch", o, &timeline_row::decode_batch);
  series(data, "decode_memory", o, &timeline_row::decode_memory);
  series(data, "prefill_serving", o, &timeline_row::prefill_serving);
  series(data, "decode_serving", o, &timeline_row::decode_serving);
  series(data, "paid", o, &timeline_row::paid);
  deaths(data, o);
  // Where something went wrong, lines stand in the plots over time.
  data += "\"marks\":[";
  for (const auto& d : options.disturbances) {
    if (d.mtbf_s > 0) continue;  // deaths are marked, and the time in which they may come says nothing
    data += (data.back() == '[' ? "" : ",") + number(d.at_s) + "," + number(d.at_s + d.for_s);
  }
  data += "],";
  busy(data, busy_of(o, options.coupled != coupled_mode::off));
  rows_of(data, "replicas", o, &timeline_row::replicas, options.watch.size());
  data += "\"watch\":[";
  for (std::size_t i = 0; i < options.watch.size(); ++i)
    data += (i == 0 ? "\"" : ",\"") + std::to_string(options.watch[i]) + "\"";
  data += "],\"prefill\":" + std::to_string(options.prefill) + "}";
  return report_page(pages::run_plots, describe(options),
                     "<pre>" + html_text(to_table(options, o)) + "</pre>", data);
}

}  // namespace mooncaf::sim
