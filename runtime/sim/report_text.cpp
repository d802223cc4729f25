#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <string_view>

#include "runtime/sim/report.hpp"
#include "runtime/sim/running_cost.hpp"

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

/// `text` in a column of `width` characters: printf counts bytes, of which "…" has three.
std::string column(std::string_view text, std::size_t width) {
  const auto characters = static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  return std::string{text} + std::string(width - std::min(width, characters), ' ');
}

double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

void distribution(std::string& out, const char* name, const log_histogram& h) {
  put(out, "  %s %9.3f %9.3f %9.3f %9.3f %9.3f\n", column(name, 22).c_str(), h.mean(), h.quantile(0.5),
      h.quantile(0.9), h.quantile(0.99), h.max());
}

/// Refusals are told by the stage that they reached, since the later ones wasted work.
void requests(std::string& out, const outcome& o) {
  const auto c = o.all();
  const auto line = [&](const char* name, std::uint64_t n) {
    put(out, "  %s %10llu  %5.1f %%\n", column(name, 30).c_str(), static_cast<unsigned long long>(n),
        share(static_cast<double>(n), static_cast<double>(c.arrived)));
  };
  put(out, "requests\n");
  line("arrived", c.arrived);
  line("completed", c.completed);
  line("… inside both SLOs", c.slo_met);
  line("… first token too late", c.ttft_missed);
  line("… tokens too slow", c.tbt_missed);
  if (c.failed > 0) line("given up", c.failed);
  line("rejected", c.rejected());
  if (c.rejected() > 0) {
    line("… no instance", c.rejected_placement);
    line("… TTFT predicted too long", c.rejected_prefill);
    line("… TBT predicted too long", c.rejected_decode);
    line("… at decode, after prefill", c.rejected_at_decode);
    line("… decode's memory would be full", c.rejected_memory);
  }
  const auto part = [&](const std::string& name, const request_counts& mine) {
    put(out, "  %s: %llu arrived, %.2f %% inside both SLOs, %.1f %% rejected\n", name.c_str(),
        static_cast<unsigned long long>(mine.arrived),
        share(static_cast<double>(mine.slo_met), static_cast<double>(mine.arrived)),
        share(static_cast<double>(mine.rejected()), static_cast<double>(mine.arrived)));
  };
  constexpr const char* names[] = {"high  ", "normal", "low   "};
  for (std::size_t p = 0; c.arrived != o.by_priority[1].arrived && p < priorities; ++p)
    part(std::string{names[p]} + " priority", o.by_priority[p]);
  for (const auto& [owner, mine] : o.by_tenant) part("tenant " + std::to_string(owner), mine);
}

void cache(std::string& out, const outcome& o) {
  const auto of = static_cast<double>(o.blocks());
  put(out, "prefix blocks        found %.1f %%: own memory %.1f, own disk %.1f, other nodes %.1f\n",
      100 * o.hit_share(), share(static_cast<double>(o.blocks_dram), of),
      share(static_cast<double>(o.blocks_ssd), of), share(static_cast<double>(o.blocks_remote), of));
  put(out, "prompt tokens        %llu, computed %.1f %%\n", static_cast<unsigned long long>(o.prompt_tokens),
      share(static_cast<double>(o.computed_tokens), static_cast<double>(o.prompt_tokens)));
  if (const auto& d = o.device; d.blocks > 0) {
    const auto read = static_cast<double>(d.hit_tokens + d.loaded_tokens);
    put(out,
        "device memory        held %.1f %% of the KV that steps read; link, GB: %.1f loaded, %.1f written "
        "back; %llu blocks there alone in the end, %llu lost\n",
        share(static_cast<double>(d.hit_tokens), read), static_cast<double>(d.loaded_bytes) * 1e-9,
        static_cast<double>(d.stored_bytes) * 1e-9, static_cast<unsigned long long>(d.unwritten_blocks),
        static_cast<unsigned long long>(d.lost_blocks));
  }
  put(out,
      "bytes moved, GB      prefill to decode %.0f, prefixes between nodes %.0f (%llu fetches, %llu of them "
      "from several), disk %.0f "
      "read, %.0f written; %llu hot blocks copied\n",
      o.bytes_streamed * 1e-9, o.bytes_fetched * 1e-9, static_cast<unsigned long long>(o.fetches),
      static_cast<unsigned long long>(o.fetches_shared), o.bytes_ssd_read * 1e-9, o.bytes_ssd_written * 1e-9,
      static_cast<unsigned long long>(o.hot_copies));
}

void went_wrong(std::string& out, const outcome& o) {
  constexpr std::size_t most = 20;
  for (std::size_t i = 0; i < o.absences.size() && i < most; ++i) {
    const auto& a = o.absences[i];
    put(out, "%-20s %s %u from %.1f to %.1f s\n", a.failed ? "died" : "away",
        std::string{to_string(a.role)}.c_str(), a.instance, a.from_s, a.until_s);
  }
  if (o.absences.size() > most)
    put(out, "away or died         %zu times more: --json has all\n", o.absences.size() - most);
  if (o.attempts_lost == 0) return;
  put(out, "died with machines   %llu attempts, %.1f s of prefill",
      static_cast<unsigned long long>(o.attempts_lost), o.lost_prefill_s);
  if (o.pause.count() > 0) {
    put(out, "; %llu answers went on after a pause of %.2f s (%.2f at most)",
        static_cast<unsigned long long>(o.pause.count()), o.pause.mean(), o.pause.max());
  }
  out += "\n";
}

/// The machines that were paid for.
void machines(std::string& out, const simulation_options& options, const outcome& o) {
  const auto cost = cost_of(options, o);
  const auto mean = [&](double machine_s) { return o.span_s > 0 ? machine_s / o.span_s : 0; };
  if (options.elastic.any()) {
    const auto count = [&](change_kind k) { return std::ranges::count(o.changes, k, &machine_change::what); };
    if (options.coupled != coupled_mode::off) {
      put(out, "machines             %.2f coupled on average, %u at most", mean(o.prefill_machine_s),
          o.most_prefill);
    } else {
      put(out, "machines             %.2f prefill and %.2f decode on average, %u and %u at most",
          mean(o.prefill_machine_s), mean(o.decode_machine_s), o.most_prefill, o.most_decode);
    }
    put(out, "; %td started, %td let go\n", count(change_kind::starts), count(change_kind::stops));
  }
  put(out, "paid                 %.2f machine-hours", cost.machine_hours);
  const auto* currency = options.price.currency.c_str();
  if (*currency != 0) {
    put(out,
        ", %.2f %s: %.3f per million tokens, %.3f per million of answers, %.3f per 1000 requests inside "
        "both SLOs",
        cost.total, currency, cost.per_million_tokens, cost.per_million_output_tokens,
        cost.per_thousand_good);
  }
  out += "\n";
  if (!options.elastic.scales()) return;
  put(out, "the peak's, always   %.2f machine-hours", cost.peak_hours);
  if (*currency != 0) put(out, ", %.2f %s", cost.peak_total, currency);
  put(out, ": %.0f %% more\n", cost.machine_hours > 0 ? 100 * (cost.peak_hours / cost.machine_hours - 1) : 0);
}

}  // namespace

const char* name_of(coupled_mode m) {
  constexpr const char* names[] = {"off", "one_by_one", "batched", "chunked"};
  return names[static_cast<std::size_t>(m)];
}

std::string describe(const simulation_options& o) {
  std::string text;
  if (o.coupled != coupled_mode::off) {
    put(text, "%u coupled instances (%s)", o.prefill + o.decode, name_of(o.coupled));
  } else {
    put(text, "%u prefill", o.prefill);
    if (o.pipeline > 1) put(text, " x %u nodes", o.pipeline);
    put(text, " + %u decode", o.decode);
  }
  if (o.decode_hardware) put(text, " of %s and %s", o.hardware.name.c_str(), o.decode_hardware->name.c_str());
  else put(text, " of %s", o.hardware.name.c_str());
  put(text, "; %s, admission %s; TTFT %.3g s, TBT %.3g s; speed %.3g",
      std::string{to_string(o.policy)}.c_str(), std::string{to_string(o.admission)}.c_str(), o.ttft_slo_s,
      o.tbt_slo_s, o.speed);
  return text;
}

std::string to_table(const simulation_options& options, const outcome& o) {
  std::string out;
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
  put(out, "time computing       prefill %.1f %%, decode %.1f %%, senders %.1f %%, over %.0f s\n",
      100 * o.prefill_busy, 100 * o.decode_busy, 100 * o.network_busy, o.span_s);
  put(out,
      "decode fills         %.1f %% of its batch, %.1f %% of its KV memory (%.1f %% at most), %.1f %% of the "
      "TBT "
      "SLO with a step\n",
      100 * o.decode_batch, 100 * o.decode_memory, 100 * o.decode_memory_most, 100 * o.decode_step);
  for (const auto& value : options.assumed) put(out, "not in the profile   %s is assumed\n", value.c_str());
  for (const auto& d : options.disturbances) put(out, "disturbed            %s\n", to_string(d).c_str());
  went_wrong(out, o);
  if (options.elastic.any() || !options.price.currency.empty()) machines(out, options, o);
  return out;
}

}  // namespace mooncaf::sim
