#include "actors/gateway.hpp"

#include <caf/send.hpp>
#include <string>
#include <utility>

#include "actors/stray_errors.hpp"
#include "runtime/log/log.hpp"

namespace mooncaf {

namespace {

gateway_limits limits_of(const options& o) {
  return {o.gateway.max_requests, o.gateway.request_timeout, o.scheduler.ttft_slo, o.scheduler.tbt_slo};
}

}  // namespace

gateway::gateway(caf::actor_config& config, const context_ptr& context)
    : gateway(config, context, std::make_unique<gateway_meter>(context->meters, context->traces)) {}

gateway::gateway(caf::actor_config& config, const context_ptr& context, std::unique_ptr<gateway_meter> meter)
    : core_actor(config, context->id, context->root, context->layout, limits_of(context->opts), *meter),
      meter_(std::move(meter)) {}

/// Only the question how the cluster stands goes by the core: it belongs to no request.
gateway_actor::behavior_type gateway::make_behavior() {
  outlive_stray_errors(*this);
  delayed_send(this, gateway_tick, tick_atom_v);
  return {
      [this](first_atom, const first_token& message) { tell(&gateway_core::first, message); },
      [this](tokens_atom, const token_batch& batch) {
        for (const auto& run : batch.runs) tell(&gateway_core::tokens, run);
      },
      [this](failed_atom, const attempt_failed& message) { tell(&gateway_core::attempt_over, message); },
      [this](peer_up_atom, const node_info& peer) { peer_up(peer); },
      [this](peer_down_atom, node_id peer) { peer_down(peer); },
      [this](follow_atom, const caf::actor& conductor, std::uint64_t term) {
        conductor_ = conductor ? caf::actor_cast<conductor_actor>(conductor) : conductor_actor{};
        tell(&gateway_core::set_conductor, conductor_ != nullptr, term);
      },
      [this](status_atom) { return static_cast<std::uint64_t>(core_.size()); },
      [this](submit_atom, const client_request_ptr& client) { tell(&gateway_core::submit, client); },
      [this](cancel_atom, const client_request_ptr& client) { tell(&gateway_core::client_gone, client); },
      [this](cluster_atom, const cluster_query_ptr& query) {
        const auto nobody = [query] { query->answer(fail(ec::unavailable, "no conductor answers")); };
        if (!conductor_) return nobody();
        request(conductor_, schedule_limit, status_atom_v)
            .then([query](const cluster_status& status) { query->answer(status); },
                  [nobody](const caf::error&) { nobody(); });
      },
      [this](keep_atom, const kept_query_ptr& query) { ask_for_kept(query); },
      [this](tick_atom) {
        tell(&gateway_core::tick);
        delayed_send(this, gateway_tick, tick_atom_v);
      },
  };
}

/// A shard that does not answer keeps nothing, as far as can be told.
void gateway::ask_for_kept(const kept_query_ptr& query) {
  struct collection {
    kept_query_ptr query;
    std::vector<kept_status> all;
    ~collection() { query->answer(std::move(all)); }
  };
  const auto all = std::make_shared<collection>();
  all->query = query;
  for (const auto& [node, shard] : shards_)
    request(shard, schedule_limit, keep_atom_v, query->tenant, query->drop)
        .then(
            [all](const std::vector<kept_status>& some) {
              all->all.insert(all->all.end(), some.begin(), some.end());
            },
            [all](const caf::error&) {});
}

void gateway::on_exit() {
  core_.close();
  workers_.clear();
  shards_.clear();
  conductor_ = nullptr;
}

void gateway::carry_out(schedule_job& job) {
  const auto id = job.id;
  const auto asked = now();
  request(conductor_, schedule_limit, schedule_atom_v, std::move(job))
      .then(
          [this, id, asked](const placement_msg& where) {
            meter_->placed(now() - asked);
            tell(&gateway_core::answered, id, where);
          },
          [this, id](const caf::error& e) { tell(&gateway_core::unanswered, id, from_caf(e)); });
}

void gateway::carry_out(const request_event& event) { send(conductor_, event_atom_v, event); }

void gateway::carry_out(work_order& order) {
  const auto& prefill = workers_.at(order.placement.prefill).handle;
  const auto& decode = workers_.at(order.placement.decode).handle;
  generate_job job{std::move(order), caf::actor_cast<caf::actor>(gateway_actor{this}), prefill, decode};
  send(caf::actor_cast<decode_worker_actor>(job.decode), job_atom_v, job);
  if (job.prefill != job.decode)  // one that is both, an engine's, has it
    send(caf::actor_cast<prefill_worker_actor>(job.prefill), job_atom_v, std::move(job));
}

/// Calls a function with the typed handle of a worker, unless its node is gone.
template <class Function>
void gateway::with_worker(worker_id id, Function what) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  const auto& handle = found->second.handle;
  if (found->second.role == worker_role::decode) what(caf::actor_cast<decode_worker_actor>(handle));
  else what(caf::actor_cast<prefill_worker_actor>(handle));
}

void gateway::carry_out(const stop_order& order) {
  with_worker(order.worker, [&](const auto& worker) { stop(worker, order.id); });
}

void gateway::stop(const decode_worker_actor& worker, const attempt_id& id) {
  send(worker, cancel_atom_v, id);
}

void gateway::stop(const prefill_worker_actor& worker, const attempt_id& id) {
  // Its answer says that it wrote its last, which matters to the decode worker alone.
  request(worker, schedule_limit, cancel_atom_v, id).then([] {}, [](const caf::error&) {});
}

void gateway::carry_out(worker_roll& roll) {
  const auto answered = [this, id = roll.worker](const roll_answer& answer) {
    tell(&gateway_core::rolled, id, answer);
  };
  with_worker(roll.worker, [&](const auto& worker) {
    // Its links tell whether a silent worker lives.
    request(worker, schedule_limit, roll_atom_v, std::move(roll.call)).then(answered, [](const caf::error&) {
    });
  });
}

void gateway::peer_up(const node_info& peer) {
  std::vector<worker_id> ids;
  for (const auto& worker : peer.workers) {
    ids.push_back(worker.id);
    workers_[worker.id] = {peer.id, worker.role, worker.handle};
  }
  if (peer.shard) shards_[peer.id] = caf::actor_cast<cache_shard_actor>(peer.shard);
  tell(&gateway_core::peer_up, peer.id, std::move(ids));
}

void gateway::peer_down(node_id peer) {
  tell(&gateway_core::peer_down, peer);
  std::erase_if(workers_, [&](const auto& entry) { return entry.second.node == peer; });
  shards_.erase(peer);
}

}  // namespace mooncaf
