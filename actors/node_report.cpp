// How a node stands: the counts of its actors, gathered for the conductor and the metrics.

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "actors/device_reach.hpp"
#include "actors/metrics/metrics.hpp"
#include "actors/node.hpp"

namespace mooncaf {

namespace {

constexpr auto answer_limit = std::chrono::seconds(5);

/// Collects the answers that make a report; the last one to come or fail completes it.
struct collection {
  node_report report;
  std::size_t missing = 0;
  caf::response_promise reply;

  void answered() {
    if (--missing == 0) reply.deliver(report);
  }
};

}  // namespace

void node::measure(const node_report& mine) const {
  if (!context_->meters) return;
  auto& meters = *context_->meters;
  // A request that is prefilled here is known to decode, too: it counts once, where its prompt waits.
  std::uint64_t running = 0, queued = 0, expected = 0;
  for (const auto& load : mine.workers) {
    const auto worker = std::ranges::find(info_.workers, load.id, &worker_info::id);
    const bool prefill = worker != info_.workers.end() && worker->role == worker_role::prefill;
    running += load.running;
    if (prefill) queued += load.waiting - std::min(load.waiting, load.running);
    if (!prefill) expected += load.waiting;
  }
  meters.set_running(static_cast<double>(running));
  meters.set_waiting(static_cast<double>(local_.prefill.empty() ? expected : queued));
  if (mine.has_shard) {
    const auto& s = mine.shard;
    for (const auto& [state, count] : {std::pair{"free", s.slots_free},
                                       {"reserved", s.slots_reserved},
                                       {"committed", s.slots_committed},
                                       {"pinned", s.slots_pinned},
                                       {"private", s.slots_private},
                                       {"quarantined", s.slots_quarantined},
                                       {"withheld", s.slots_withheld},
                                       {"ssd", s.ssd_blocks}}) {
      meters.set_blocks(state, static_cast<double>(count));
    }
    const auto to_be_had = s.slots_free + s.slots_committed - std::min(s.slots_committed, s.slots_pinned);
    const auto total = std::max<std::uint64_t>(s.slots_total, 1);
    meters.set_cache_usage(1.0 -
                           static_cast<double>(std::min(to_be_had, total)) / static_cast<double>(total));
    meters.set_hits("device", static_cast<double>(s.hits_device));
    meters.set_hits("dram", static_cast<double>(s.hits_dram));
    meters.set_hits("ssd", static_cast<double>(s.hits_ssd));
    meters.set_hits("remote", static_cast<double>(s.hits_remote));
    if (s.ssd_read_bytes_per_s > 0) meters.set_ssd_read(static_cast<double>(s.ssd_read_bytes_per_s));
  }
  if (mine.device.blocks > 0) meters.set_device_kv(mine.device);
  std::map<std::string, std::uint64_t> bytes;
  for (const auto& path : mine.moved.paths) {
    bytes[path.path] += path.bytes;
    if (path.learned_bytes_per_s > 0)
      meters.set_link(to_string(path.peer), path.path, static_cast<double>(path.learned_bytes_per_s),
                      static_cast<double>(path.learned_latency_ns) * 1e-9);
  }
  for (const auto& r : mine.moved.rails) {
    meters.set_rail(r.name, "bytes", static_cast<double>(r.bytes));
    meters.set_rail(r.name, "slices", static_cast<double>(r.slices));
    meters.set_rail(r.name, "retries", static_cast<double>(r.retries));
    meters.set_rail(r.name, "failures", static_cast<double>(r.failures));
    meters.set_rail_state(r.name, r.up, static_cast<double>(r.latency_ns) / 1e9);
  }
  for (const auto& [path, moved] : bytes) meters.set_transferred(path, static_cast<double>(moved));
}

caf::result<node_report> node::status() {
  auto all = std::make_shared<collection>();
  all->reply = make_response_promise();
  all->report.node = info_.id;
  all->report.roster = roster_version_;
  all->report.unreachable = roster_.unreachable();
  if (context_->device_blocks) all->report.device = context_->device_blocks->stats();
  if (const auto& reach = context_->reach) {
    all->report.device.sent_bytes = reach->sent_bytes;
    all->report.device.unreached = reach->why_not;
  }
  all->missing = 1 + local_.prefill.size() + local_.decode.size() + (local_.shard ? 1 : 0) +
                 (local_.messenger ? 1 : 0) + (local_.gateway ? 1 : 0);
  const auto failed = [all](const caf::error&) { all->answered(); };
  const auto load = [all](const worker_load& l) {
    all->report.requests_live += l.running + l.waiting;
    all->report.workers.push_back(l);
    all->answered();
  };
  for (const auto& worker : local_.prefill) request(worker, answer_limit, status_atom_v).then(load, failed);
  for (const auto& worker : local_.decode) request(worker, answer_limit, status_atom_v).then(load, failed);
  if (local_.shard) {
    request(local_.shard, answer_limit, status_atom_v)
        .then(
            [all](const shard_status& s) {
              all->report.has_shard = true;
              all->report.shard = s;
              all->answered();
            },
            failed);
  }
  if (local_.messenger) {
    request(local_.messenger, answer_limit, status_atom_v)
        .then(
            [all](const transfer_report& moved) {
              all->report.moved = moved;
              all->answered();
            },
            failed);
  }
  if (local_.gateway) {
    request(local_.gateway, answer_limit, status_atom_v)
        .then(
            [all](std::uint64_t live) {
              all->report.requests_live += live;
              all->answered();
            },
            failed);
  }
  auto promise = all->reply;
  all->answered();
  return promise;
}

}  // namespace mooncaf
