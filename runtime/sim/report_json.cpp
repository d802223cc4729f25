#include "runtime/sim/json_object.hpp"
#include "runtime/sim/report.hpp"
#include "runtime/sim/running_cost.hpp"

namespace mooncaf::sim {

namespace {

/// Every option that changes an outcome, so that a run can be made again, and held against the server's
/// defaults.
std::string json_of(const log_histogram& h) {
  return json_object{}
      .count("count", h.count())
      .number("mean", h.mean())
      .number("p50", h.quantile(0.5))
      .number("p90", h.quantile(0.9))
      .number("p99", h.quantile(0.99))
      .number("max", h.max())
      .done();
}

std::string json_of(const request_counts& c) {
  return json_object{}
      .count("arrived", c.arrived)
      .count("completed", c.completed)
      .count("slo_met", c.slo_met)
      .count("ttft_missed", c.ttft_missed)
      .count("tbt_missed", c.tbt_missed)
      .count("rejected_placement", c.rejected_placement)
      .count("rejected_prefill", c.rejected_prefill)
      .count("rejected_decode", c.rejected_decode)
      .count("rejected_at_decode", c.rejected_at_decode)
      .count("rejected_memory", c.rejected_memory)
      .count("failed", c.failed)
      .done();
}

std::string json_of(const profile& p) {
  json_object j;
  j.text("name", p.name);
  visit_numbers(p, [&](const std::string& key, double value) { j.number(key, value); });
  return j.done();
}

const char* name_of(tbt_metric m) { return m == tbt_metric::p90 ? "p90" : "slowest_tenth"; }

std::string json_of(const elastic_options& e) {
  const auto range = [](const instance_range& r) {
    return std::to_string(r.least) + "-" + std::to_string(r.most);
  };
  json_object j;
  if (e.prefill.scales()) j.text("scale_prefill", range(e.prefill));
  if (e.decode.scales()) j.text("scale_decode", range(e.decode));
  if (e.nodes.scales()) j.text("scale_nodes", range(e.nodes));
  j.number("start_s", e.start_s).number("target", e.target).number("down_after_s", e.down_after_s);
  return j.flag("switch_roles", e.switch_roles)
      .number("switch_s", e.switch_s)
      .number("hold_s", e.hold_s)
      .number("every_s", e.every_s)
      .done();
}

/// Every option that changes an outcome, so that a run can be made again, and held against the server's
/// defaults.
std::string json_of(const simulation_options& o) {
  json_object j;
  j.text("profile", o.hardware.name).raw("hardware", json_of(o.hardware));
  if (o.decode_hardware) j.raw("decode_hardware", json_of(*o.decode_hardware));
  std::vector<std::string> assumed;
  for (const auto& value : o.assumed) assumed.push_back(json_text(value));
  j.raw("assumed", json_list(assumed));
  j.count("machines", o.machines()).count("prefill", o.prefill).count("decode", o.decode);
  j.count("pipeline", o.pipeline).text("coupled", name_of(o.coupled)).count("coupled_chunk", o.coupled_chunk);
  j.flag("cache", o.local_cache)
      .text("policy", to_string(o.policy))
      .text("admission", to_string(o.admission));
  j.count("max_queued", o.max_queued).number("threshold", o.balancing_threshold);
  j.number("slo_ttft_s", o.ttft_slo_s).number("slo_tbt_s", o.tbt_slo_s).text("tbt", name_of(o.tbt));
  j.number("decode_span_s", o.decode_span_s).count("max_tokens", o.max_tokens);
  j.text("prefetch", to_string(o.prefetch.mode))
      .number("prefetch_timeout_base_s", to_seconds(o.prefetch.base))
      .number("prefetch_timeout_per_ki_token_s", to_seconds(o.prefetch.per_1024_tokens));
  j.count("prefetch_threshold", o.prefetch.threshold_tokens).number("hot_copy_share", o.hot_copy_share);
  j.text("eviction", to_string(o.eviction)).flag("leaf_first", o.leaf_first).count("copy_age", o.copy_age);
  j.text("write_policy", to_string(o.write)).text("device_write_policy", to_string(o.device_write));
  j.count("selective_hits", o.selective_hits);
  j.flag("layerwise", o.layerwise).number("high_share", o.high_share).number("low_share", o.low_share);
  std::vector<std::string> disturbed;
  for (const auto& d : o.disturbances) disturbed.push_back(json_text(to_string(d)));
  j.raw("disturbances", json_list(disturbed));
  if (o.elastic.any()) j.raw("elastic", json_of(o.elastic));
  if (!o.price.currency.empty()) {
    j.text("currency", o.price.currency)
        .number("prefill_node_hour", o.price.prefill)
        .number("decode_node_hour", o.price.decode);
  }
  j.number("report_interval_s", o.report_interval_s).number("speed", o.speed).number("jitter", o.jitter);
  return j.count("seed", o.seed).done();
}

/// [a,b,…], with null for NaN and infinity.
template <class Range, class Get>
std::string json_row(const Range& values, Get&& get) {
  std::vector<std::string> all;
  for (const auto& v : values) all.push_back(json_number(get(v)));
  return json_list(all);
}

std::string json_columns(const timeline& t, std::vector<float> timeline_row::*field) {
  std::vector<std::string> all;
  const auto count = t.rows().empty() ? 0 : (t.rows().front().*field).size();
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(
        json_row(t.rows(), [&](const timeline_row& r) { return static_cast<double>((r.*field)[i]); }));
  }
  return json_list(all);
}

constexpr double cdf_step = 0.005;

std::string json_of_machines(const simulation_options& options, const outcome& o) {
  constexpr const char* kinds[] = {"starts", "serves", "drains", "stops"};
  const auto cost = cost_of(options, o);
  json_object j;
  j.number("prefill_s", o.prefill_machine_s).number("decode_s", o.decode_machine_s);
  j.count("most_prefill", o.most_prefill).count("most_decode", o.most_decode);
  j.number("hours", cost.machine_hours).number("hours_of_peak", cost.peak_hours);
  if (!options.price.currency.empty()) {
    j.number("cost", cost.total).number("cost_of_peak", cost.peak_total);
    j.number("cost_per_million_tokens", cost.per_million_tokens);
    j.number("cost_per_million_output_tokens", cost.per_million_output_tokens);
    j.number("cost_per_thousand_good", cost.per_thousand_good);
  }
  std::vector<std::string> changes;
  for (const auto& c : o.changes) {
    changes.push_back(json_object{}
                          .number("at_s", c.at_s)
                          .text("role", to_string(c.role))
                          .count("instance", c.instance)
                          .text("what", kinds[static_cast<std::size_t>(c.what)])
                          .done());
  }
  return j.raw("changes", json_list(changes)).done();
}

}  // namespace

std::string json_cdf(const log_histogram& h, double step) {
  std::string out;
  double last = -1;
  h.for_each([&](double value, double share) {
    if (share - last < step && share < 1) return;  // a page has no pixels for more points
    last = share;
    char point[64];
    std::snprintf(point, sizeof point, "%s[%.5g,%.5g]", out.empty() ? "" : ",", value, share);
    out += point;
  });
  return "[" + out + "]";
}

std::string to_json(const timeline& t) {
  const auto column = [&](double timeline_row::*field) {
    return json_row(t.rows(), [&](const timeline_row& r) { return r.*field; });
  };
  return json_object{}
      .raw("at_s", column(&timeline_row::at))
      .raw("prefill_load", column(&timeline_row::prefill_load))
      .raw("decode_load", column(&timeline_row::decode_load))
      .raw("prefill_waiting", column(&timeline_row::prefill_waiting))
      .raw("decode_running", column(&timeline_row::decode_running))
      .raw("decode_waiting", column(&timeline_row::decode_waiting))
      .raw("decode_batch", column(&timeline_row::decode_batch))
      .raw("decode_memory", column(&timeline_row::decode_memory))
      .raw("prefill_serving", column(&timeline_row::prefill_serving))
      .raw("decode_serving", column(&timeline_row::decode_serving))
      .raw("paid", column(&timeline_row::paid))
      .raw("hit_share", json_row(t.rows(), [](const timeline_row& r) { return r.hit_share(); }))
      .raw("rejected", column(&timeline_row::rejected))
      .raw("busy", json_columns(t, &timeline_row::busy))
      .raw("replicas", json_columns(t, &timeline_row::replicas))
      .done();
}

/// Scripts read these names: one that was published stays.
std::string to_json(const simulation_options& options, const outcome& o) {
  json_object j;
  j.raw("options", json_of(options)).raw("requests", json_of(o.all()));
  j.raw("high", json_of(o.by_priority[0]))
      .raw("normal", json_of(o.by_priority[1]))
      .raw("low", json_of(o.by_priority[2]));
  json_object tenants;
  for (const auto& [owner, counts] : o.by_tenant) tenants.raw(std::to_string(owner), json_of(counts));
  j.raw("tenants", tenants.done());
  j.raw("ttft_s", json_of(o.ttft)).raw("queueing_s", json_of(o.queueing)).raw("gap_s", json_of(o.gap));
  j.raw("tbt_s", json_of(o.tbt)).raw("handover_s", json_of(o.handover));
  j.raw("ttft_cdf", json_cdf(o.ttft, cdf_step)).raw("tbt_cdf", json_cdf(o.tbt, cdf_step));
  j.number("goodput_per_s", o.goodput()).number("slo_share", o.slo_share());
  j.number("wasted_prefill_s", o.wasted_prefill_s).number("missed_prefill_s", o.missed_prefill_s);
  j.count("blocks_dram", o.blocks_dram)
      .count("blocks_ssd", o.blocks_ssd)
      .count("blocks_remote", o.blocks_remote);
  j.count("blocks_missed", o.blocks_missed).number("hit_share", o.hit_share()).count("fetches", o.fetches);
  j.count("fetches_shared", o.fetches_shared);
  j.count("hot_copies", o.hot_copies);
  j.number("bytes_streamed", o.bytes_streamed).number("bytes_fetched", o.bytes_fetched);
  j.number("bytes_ssd_read", o.bytes_ssd_read).number("bytes_ssd_written", o.bytes_ssd_written);
  if (const auto& d = o.device; d.blocks > 0) {
    j.raw("device", json_object{}
                        .count("blocks", d.blocks)
                        .count("blocks_used", d.blocks_used)
                        .count("hit_tokens", d.hit_tokens)
                        .count("loaded_tokens", d.loaded_tokens)
                        .count("loaded_bytes", d.loaded_bytes)
                        .count("stored_bytes", d.stored_bytes)
                        .count("unwritten_blocks", d.unwritten_blocks)
                        .count("lost_blocks", d.lost_blocks)
                        .done());
  }
  j.count("prompt_tokens", o.prompt_tokens).count("computed_tokens", o.computed_tokens);
  j.count("output_tokens", o.output_tokens).number("span_s", o.span_s);
  j.number("prefill_busy", o.prefill_busy)
      .number("decode_busy", o.decode_busy)
      .number("network_busy", o.network_busy);
  j.number("decode_batch", o.decode_batch).number("decode_memory", o.decode_memory);
  j.number("decode_memory_most", o.decode_memory_most).number("decode_step", o.decode_step);
  std::vector<std::string> away;
  for (const auto& a : o.absences) {
    away.push_back(json_object{}
                       .text("role", to_string(a.role))
                       .text("why", a.failed ? "failed" : "restarted")
                       .count("instance", a.instance)
                       .number("from_s", a.from_s)
                       .number("until_s", a.until_s)
                       .done());
  }
  j.raw("absences", json_list(away));
  j.count("attempts_lost", o.attempts_lost).number("lost_prefill_s", o.lost_prefill_s);
  j.raw("pause_s", json_of(o.pause)).raw("machines", json_of_machines(options, o));
  std::vector<std::string> watched;
  for (const auto id : options.watch) watched.push_back(json_text(std::to_string(id)));
  j.raw("watched_blocks", json_list(watched)).raw("history", to_json(o.history));
  return j.done() + "\n";
}

}  // namespace mooncaf::sim
