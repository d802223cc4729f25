#include "actors/metrics/report_metrics.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "runtime/request/status_fields.hpp"

namespace mooncaf {

namespace {

/// Every member of a status that has a series. @param labels  the series' labels before their own.
template <class S>
void show_fields(metrics& meters, const S& status, const std::vector<std::string>& labels = {}) {
  for_each_shown(status, [&](const auto& line, const auto& value) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
      if (!line.in) return;
      auto all = labels;
      if (*line.label != '\0') all.emplace_back(line.label);
      meters.set(*line.in, static_cast<double>(value) / (line.time ? 1e9 : 1), all);
    }
  });
}

/// A request that is prefilled here is known to decode, too: it counts once, where its prompt waits.
void show_requests(metrics& meters, std::span<const worker_load> workers,
                   std::span<const worker_id> prefills) {
  std::uint64_t running = 0, queued = 0, expected = 0;
  for (const auto& load : workers) {
    running += load.running;
    if (std::ranges::find(prefills, load.id) == prefills.end()) expected += load.waiting;
    else queued += load.waiting - std::min(load.waiting, load.running);
  }
  meters.set(series::running, static_cast<double>(running));
  meters.set(series::waiting, static_cast<double>(prefills.empty() ? expected : queued));
}

void show_shard(metrics& meters, const shard_status& s) {
  show_fields(meters, s);
  const auto to_be_had = s.slots_free + s.slots_committed - std::min(s.slots_committed, s.slots_pinned);
  const auto total = std::max<std::uint64_t>(s.slots_total, 1);
  meters.set(series::cache_usage,
             1.0 - static_cast<double>(std::min(to_be_had, total)) / static_cast<double>(total));
  if (s.ssd_read_bytes_per_s > 0)
    meters.set(series::ssd_read_rate, static_cast<double>(s.ssd_read_bytes_per_s));
}

}  // namespace

void show(metrics& meters, const node_report& report, std::span<const worker_id> prefills) {
  show_requests(meters, report.workers, prefills);
  meters.set(series::leader_term, static_cast<double>(report.term));
  meters.set(series::leads, report.leads ? 1 : 0);
  if (report.has_shard) show_shard(meters, report.shard);
  if (const auto& device = report.device; device.blocks > 0) {
    meters.set(series::device_kv_blocks, static_cast<double>(device.blocks - device.blocks_used), {"free"});
    show_fields(meters, device);
  }
  std::map<std::string, std::uint64_t> bytes;
  for (const auto& path : report.moved.paths) {
    bytes[path.path] += path.bytes;
    if (path.learned_bytes_per_s > 0) show_fields(meters, path, {to_string(path.peer), path.path});
  }
  for (const auto& rail : report.moved.rails) show_fields(meters, rail, {rail.name});
  for (const auto& [path, moved] : bytes)
    meters.set(series::transfer_bytes, static_cast<double>(moved), {path});
}

}  // namespace mooncaf
