#include "actors/node.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <map>
#include <memory>
#include <utility>

#include "actors/executor.hpp"
#include "actors/log.hpp"
#include "actors/metrics/metrics.hpp"
#include "actors/stray_errors.hpp"

namespace mooncaf {

namespace {

constexpr auto report_interval = std::chrono::milliseconds(200);
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

node::node(caf::actor_config& config, context_ptr context, local_actors local, node_info self_info,
           std::optional<host_port> join, dial_function dial, executor_actor dialler)
    : node_actor::base(config),
      context_(std::move(context)),
      local_(std::move(local)),
      info_(std::move(self_info)),
      join_(std::move(join)),
      dial_(std::move(dial)),
      dialler_(std::move(dialler)) {}

node_actor::behavior_type node::make_behavior() {
  outlive_stray_errors(*this);
  info_.node = caf::actor_cast<caf::actor>(node_actor{this});
  set_down_handler([this](const caf::down_msg& down) { lost(down); });
  return {
      [this](listen_atom, std::uint16_t port) {
        info_.control_port = port;
        if (local_.gateway) send(local_.gateway, peer_up_atom_v, info_);
        if (local_.conductor) join(local_.conductor);
        send(this, tick_atom_v);
      },
      [this](hello_atom, const node_info& peer) -> caf::result<node_info> {
        if (peer.fingerprint != info_.fingerprint) {
          return to_caf(error{ec::incompatible, "this node serves " + info_.model + " (" + info_.layout +
                                                    "), the other " + peer.model + " (" + peer.layout + ")"});
        }
        meet(peer);
        return info_;
      },
      [this](status_atom) { return status(); },
      [this](tick_atom) { tick(); },
  };
}

void node::on_exit() {
  local_ = {};
  conductor_ = nullptr;
  dialler_ = nullptr;
  dial_ = nullptr;
  peers_.clear();
  info_ = {};
}

void node::tick() {
  report();
  if (!conductor_ && join_ && !dialling_) look_for_conductor();
  delayed_send(this, report_interval, tick_atom_v);
}

void node::look_for_conductor() {
  greet(*join_, [this](const node_info& found) {
    if (found.conductor) {
      conductor_node_ = found.id;
      join(caf::actor_cast<conductor_actor>(found.conductor));
    } else {
      log_warn("join", {{"at", to_string(*join_)}, {"problem", "no conductor runs there"}});
    }
  });
}

void node::greet(const host_port& where, std::function<void(const node_info&)> then) {
  dialling_ = true;
  auto found = std::make_shared<result<node_actor>>(fail(ec::internal));
  auto task = make_task([dial = dial_, where, found] { *found = dial(where.host, where.port); });
  request(dialler_, caf::infinite, run_atom_v, std::move(task))
      .then([this, where, found, then](const task_ptr&) {
        dialling_ = false;
        if (!*found) {
          log_warn("dial", {{"peer", to_string(where)}, {"problem", to_string(found->error())}});
          return;
        }
        request(**found, answer_limit, hello_atom_v, info_)
            .then(
                [this, then](const node_info& peer) {
                  meet(peer);
                  then(peer);
                },
                [where](const caf::error& e) {
                  log_warn("hello", {{"peer", to_string(where)}, {"problem", to_string(from_caf(e))}});
                });
      });
}

void node::join(const conductor_actor& conductor) {
  request(conductor, answer_limit, join_atom_v, info_)
      .then(
          [this, conductor](const std::vector<node_info>& members) {
            follow(conductor);
            for (const auto& member : members) {
              if (member.id == info_.id || peers_.contains(member.id)) continue;
              greet({member.host, member.control_port}, [](const node_info&) {});
            }
          },
          [this](const caf::error& e) {
            log_warn("join", {{"problem", to_string(from_caf(e))}});
            if (from_caf(e) == ec::incompatible) quit(to_caf(from_caf(e)));
          });
}

void node::meet(const node_info& peer) {
  if (peer.id == info_.id || !peers_.emplace(peer.id, peer).second) return;
  log_info("peer up", {{"peer", peer.name}, {"roles", peer.roles}});
  monitor(peer.node);
  if (local_.messenger) send(local_.messenger, peer_up_atom_v, peer);
  if (local_.keeper) send(local_.keeper, peer_up_atom_v, peer.id);
  if (local_.gateway) send(local_.gateway, peer_up_atom_v, peer);
}

void node::lost(const caf::down_msg& down) {
  for (auto i = peers_.begin(); i != peers_.end(); ++i) {
    if (i->second.node.address() != down.source) continue;
    const auto id = i->first;
    log_warn("peer down", {{"peer", i->second.name}, {"reason", caf::to_string(down.reason)}});
    peers_.erase(i);
    if (local_.messenger) send(local_.messenger, peer_down_atom_v, id);
    if (local_.keeper) send(local_.keeper, peer_down_atom_v, id);
    if (local_.gateway) send(local_.gateway, peer_down_atom_v, id);
    for (const auto& worker : local_.prefill) send(worker, peer_down_atom_v, id);
    for (const auto& worker : local_.decode) send(worker, peer_down_atom_v, id);
    if (id == conductor_node_) follow(conductor_actor{});
    return;
  }
}

void node::follow(const conductor_actor& conductor) {
  conductor_ = conductor;
  const auto handle = conductor ? caf::actor_cast<caf::actor>(conductor) : caf::actor{};
  if (local_.gateway) send(local_.gateway, follow_atom_v, handle);
  if (local_.shard && conductor) send(local_.shard, follow_atom_v, handle);
}

void node::report() {
  request(node_actor{this}, answer_limit, status_atom_v)
      .then(
          [this](const node_report& mine) {
            measure(mine);
            if (conductor_) send(conductor_, report_atom_v, mine);
          },
          [](const caf::error&) {});
}

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
                                       {"ssd", s.ssd_blocks}}) {
      meters.set_blocks(state, static_cast<double>(count));
    }
    const auto to_be_had = s.slots_free + s.slots_committed - std::min(s.slots_committed, s.slots_pinned);
    const auto total = std::max<std::uint64_t>(s.slots_total, 1);
    meters.set_cache_usage(1.0 -
                           static_cast<double>(std::min(to_be_had, total)) / static_cast<double>(total));
    meters.set_hits("dram", static_cast<double>(s.hits_dram));
    meters.set_hits("ssd", static_cast<double>(s.hits_ssd));
    meters.set_hits("remote", static_cast<double>(s.hits_remote));
  }
  std::map<std::string, std::uint64_t> bytes;
  for (const auto& path : mine.moved.paths) bytes[path.path] += path.bytes;
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
