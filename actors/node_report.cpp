// How a node stands: the counts of its actors, gathered for the conductor and the metrics.

#include <memory>

#include "actors/device_reach.hpp"
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
