#include <cstdarg>
#include <cstdio>

#include "runtime/sim/report.hpp"

namespace mooncaf::sim {

namespace {

[[gnu::format(printf, 2, 3)]] void put(std::string& out, const char* format, ...) {
  char line[256];
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  out += line;
}

double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

void distribution(std::string& out, const char* name, const log_histogram& h) {
  put(out, "  %-22s %9.3f %9.3f %9.3f %9.3f %9.3f\n", name, h.mean(), h.quantile(0.5), h.quantile(0.9),
      h.quantile(0.99), h.max());
}

void requests(std::string& out, const outcome& o) {
  const auto c = o.all();
  const auto line = [&](const char* name, std::uint64_t n) {
    put(out, "  %-30s %10llu  %5.1f %%\n", name, static_cast<unsigned long long>(n),
        share(static_cast<double>(n), static_cast<double>(c.arrived)));
  };
  put(out, "requests\n");
  line("arrived", c.arrived);
  line("completed", c.completed);
  line("… inside both SLOs", c.slo_met);
  line("… first token too late", c.ttft_missed);
  line("… tokens too slow", c.tbt_missed);
  line("rejected", c.rejected());
  if (c.rejected() > 0) {
    line("… no instance", c.rejected_placement);
    line("… TTFT predicted too long", c.rejected_prefill);
    line("… TBT predicted too long", c.rejected_decode);
    line("… at decode, after prefill", c.rejected_at_decode);
    line("… decode's memory would be full", c.rejected_memory);
  }
  constexpr const char* names[] = {"high", "normal", "low"};
  if (c.arrived == o.by_priority[1].arrived) return;
  for (std::size_t p = 0; p < priorities; ++p) {
    const auto& mine = o.by_priority[p];
    put(out, "  %-6s priority: %llu arrived, %.2f %% inside both SLOs, %.1f %% rejected\n", names[p],
        static_cast<unsigned long long>(mine.arrived),
        share(static_cast<double>(mine.slo_met), static_cast<double>(mine.arrived)),
        share(static_cast<double>(mine.rejected()), static_cast<double>(mine.arrived)));
  }
}

void cache(std::string& out, const outcome& o) {
  const auto of = static_cast<double>(o.blocks());
  put(out, "prefix blocks        found %.1f %%: own memory %.1f, own disk %.1f, other nodes %.1f\n",
      100 * o.hit_share(), share(static_cast<double>(o.blocks_dram), of),
      share(static_cast<double>(o.blocks_ssd), of), share(static_cast<double>(o.blocks_remote), of));
  put(out, "prompt tokens        %llu, computed %.1f %%\n", static_cast<unsigned long long>(o.prompt_tokens),
      share(static_cast<double>(o.computed_tokens), static_cast<double>(o.prompt_tokens)));
  put(out,
      "bytes moved, GB      prefill to decode %.0f, prefixes between nodes %.0f (%llu fetches), disk %.0f "
      "read, %.0f written\n",
      o.bytes_streamed * 1e-9, o.bytes_fetched * 1e-9, static_cast<unsigned long long>(o.fetches),
      o.bytes_ssd_read * 1e-9, o.bytes_ssd_written * 1e-9);
}

const char* name_of(coupled_mode m) {
  constexpr const char* names[] = {"off", "one_by_one", "batched", "chunked"};
  return names[static_cast<std::size_t>(m)];
}

/// Writes members of a JSON object; numbers only, and texts that need no escapes but those of `quote`.
class json_object {
 public:
  json_object& number(const char* key, double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.9g", value);
    return raw(key, text);
  }
  json_object& count(const char* key, std::uint64_t value) { return raw(key, std::to_string(value)); }
  json_object& text(const char* key, std::string_view value) {
    std::string quoted = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return raw(key, quoted + "\"");
  }
  json_object& raw(const char* key, const std::string& value) {
    out_ += (out_.empty() ? "\"" : ",\"") + std::string{key} + "\":" + value;
    return *this;
  }
  std::string done() const { return "{" + out_ + "}"; }

 private:
  std::string out_;
};

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
      .done();
}

std::string json_of(const simulation_options& o) {
  return json_object{}
      .text("profile", o.hardware.name)
      .count("prefill", o.prefill)
      .count("decode", o.decode)
      .count("pipeline", o.pipeline)
      .text("coupled", name_of(o.coupled))
      .text("policy", to_string(o.policy))
      .text("admission", to_string(o.admission))
      .number("slo_ttft_s", o.ttft_slo_s)
      .number("slo_tbt_s", o.tbt_slo_s)
      .number("speed", o.speed)
      .number("jitter", o.jitter)
      .count("seed", o.seed)
      .done();
}

}  // namespace

std::string describe(const simulation_options& o) {
  std::string text;
  if (o.coupled != coupled_mode::off) {
    put(text, "%u coupled instances (%s)", o.prefill + o.decode, name_of(o.coupled));
  } else {
    put(text, "%u prefill", o.prefill);
    if (o.pipeline > 1) put(text, " x %u nodes", o.pipeline);
    put(text, " + %u decode", o.decode);
  }
  put(text, " of %s; %s, admission %s; TTFT %.3g s, TBT %.3g s; speed %.3g", o.hardware.name.c_str(),
      std::string{to_string(o.policy)}.c_str(), std::string{to_string(o.admission)}.c_str(), o.ttft_slo_s,
      o.tbt_slo_s, o.speed);
  return text;
}

std::string to_table(const simulation_options& options, const outcome& o) {
  std::string out = describe(options) + "\n\n";
  put(out, "seconds                     mean       p50       p90       p99       max\n");
  distribution(out, "TTFT", o.ttft);
  distribution(out, "… of it waiting", o.queueing);
  distribution(out, "TBT, all gaps", o.gap);
  distribution(out, options.tbt == tbt_metric::p90 ? "TBT, p90 of a request" : "TBT, slowest tenth", o.tbt);
  distribution(out, "hand-over to decode", o.handover);
  out += "\n";
  requests(out, o);
  out += "\n";
  put(out, "goodput              %.3f requests/s inside both SLOs, %.1f %% of all\n", o.goodput(),
      100 * o.slo_share());
  put(out, "wasted prefill       %.1f s refused afterwards, %.1f s outside the SLOs\n", o.wasted_prefill_s,
      o.missed_prefill_s);
  cache(out, o);
  put(out, "utilisation          prefill %.1f %%, decode %.1f %%, senders %.1f %%, over %.0f s\n",
      100 * o.prefill_busy, 100 * o.decode_busy, 100 * o.network_busy, o.span_s);
  return out;
}

std::string to_json(const simulation_options& options, const outcome& o) {
  json_object j;
  j.raw("options", json_of(options)).raw("requests", json_of(o.all()));
  j.raw("high", json_of(o.by_priority[0]))
      .raw("normal", json_of(o.by_priority[1]))
      .raw("low", json_of(o.by_priority[2]));
  j.raw("ttft_s", json_of(o.ttft)).raw("queueing_s", json_of(o.queueing)).raw("gap_s", json_of(o.gap));
  j.raw("tbt_s", json_of(o.tbt)).raw("handover_s", json_of(o.handover));
  j.number("goodput_per_s", o.goodput()).number("slo_share", o.slo_share());
  j.number("wasted_prefill_s", o.wasted_prefill_s).number("missed_prefill_s", o.missed_prefill_s);
  j.count("blocks_dram", o.blocks_dram)
      .count("blocks_ssd", o.blocks_ssd)
      .count("blocks_remote", o.blocks_remote);
  j.count("blocks_missed", o.blocks_missed).number("hit_share", o.hit_share()).count("fetches", o.fetches);
  j.number("bytes_streamed", o.bytes_streamed).number("bytes_fetched", o.bytes_fetched);
  j.number("bytes_ssd_read", o.bytes_ssd_read).number("bytes_ssd_written", o.bytes_ssd_written);
  j.count("prompt_tokens", o.prompt_tokens).count("computed_tokens", o.computed_tokens);
  j.count("output_tokens", o.output_tokens).number("span_s", o.span_s);
  j.number("prefill_busy", o.prefill_busy)
      .number("decode_busy", o.decode_busy)
      .number("network_busy", o.network_busy);
  return j.done() + "\n";
}

}  // namespace mooncaf::sim
