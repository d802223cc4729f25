#include "actors/gateway.hpp"

#include <caf/send.hpp>
#include <string>
#include <utility>

#include "actors/log.hpp"
#include "actors/metrics/metrics.hpp"
#include "actors/stray_errors.hpp"

namespace mooncaf {

namespace {

/// What the core sees goes to the log, and to the metrics where there are any.
class metered final : public gateway_observer {
 public:
  explicit metered(std::shared_ptr<metrics> meters) : meters_(std::move(meters)) {}

  void first_token(duration ttft, std::uint32_t prompt_tokens, std::uint32_t cached_tokens) override {
    if (meters_) meters_->first_token(ttft, prompt_tokens, cached_tokens);
  }
  void token(std::optional<duration> gap) override {
    if (!meters_) return;
    if (gap) meters_->token_gap(*gap);
    meters_->tokens_generated(1);
  }
  void prefill_wasted(std::uint32_t tokens) override {
    if (meters_) meters_->prefill_wasted(tokens);
  }
  void attempt_failed(request_id request, const error& cause) override {
    log_info("again", {{"request", to_string(request)}, {"cause", to_string(cause)}});
  }
  void over(std::string_view outcome, duration elapsed) override {
    if (meters_) meters_->request_over(std::string{outcome}, elapsed);
  }
  void waiting(std::size_t requests) override {
    if (meters_) meters_->set_queued(static_cast<double>(requests));
  }

 private:
  std::shared_ptr<metrics> meters_;
};

gateway_limits limits_of(const options& o) {
  return {o.gateway.max_requests, o.gateway.request_timeout, o.scheduler.ttft_slo, o.scheduler.tbt_slo};
}

}  // namespace

gateway::gateway(caf::actor_config& config, context_ptr context)
    : gateway_actor::base(config),
      context_(std::move(context)),
      observer_(std::make_unique<metered>(context_->meters)),
      core_(context_->id, context_->root, context_->layout, limits_of(context_->opts), *observer_) {}

gateway_actor::behavior_type gateway::make_behavior() {
  outlive_stray_errors(*this);
  delayed_send(this, gateway_tick, tick_atom_v);
  return {
      [this](first_atom, const first_token& message) {
        core_.first(message, clock().now());
        act();
      },
      [this](tokens_atom, const token_batch& batch) {
        for (const auto& run : batch.runs) core_.tokens(run, clock().now());
        act();
      },
      [this](failed_atom, const attempt_failed& message) {
        core_.attempt_over(message, clock().now());
        act();
      },
      [this](peer_up_atom, const node_info& peer) { peer_up(peer); },
      [this](peer_down_atom, node_id peer) { peer_down(peer); },
      [this](follow_atom, const caf::actor& conductor) {
        conductor_ = conductor ? caf::actor_cast<conductor_actor>(conductor) : conductor_actor{};
        core_.set_conductor(conductor_ != nullptr);
      },
      [this](status_atom) { return static_cast<std::uint64_t>(core_.size()); },
      [this](submit_atom, const client_request_ptr& client) {
        core_.submit(client, clock().now());
        act();
      },
      [this](cancel_atom, const client_request_ptr& client) {
        core_.client_gone(client, clock().now());
        act();
      },
      [this](cluster_atom, const cluster_query_ptr& query) {
        if (!conductor_) return query->answer({});
        request(conductor_, schedule_limit, status_atom_v)
            .then([query](const std::string& json) { query->answer(json); },
                  [query](const caf::error&) { query->answer({}); });
      },
      [this](tick_atom) {
        core_.tick(clock().now());
        act();
        delayed_send(this, gateway_tick, tick_atom_v);
      },
  };
}

void gateway::on_exit() {
  core_.close();
  workers_.clear();
  conductor_ = nullptr;
}

void gateway::act() {
  for (auto& action : core_.take_actions()) {
    std::visit([this](auto& what) { carry_out(std::move(what)); }, action);
  }
}

void gateway::carry_out(schedule_job&& job) {
  const auto id = job.id;
  const auto asked = clock().now();
  request(conductor_, schedule_limit, schedule_atom_v, std::move(job))
      .then(
          [this, id, asked](const placement_msg& where) {
            const auto now = clock().now();
            if (context_->meters) context_->meters->placed(now - asked);
            core_.answered(id, where, now);
            act();
          },
          [this, id](const caf::error& e) {
            core_.unanswered(id, from_caf(e), clock().now());
            act();
          });
}

void gateway::carry_out(const request_event& event) { send(conductor_, event_atom_v, event); }

void gateway::carry_out(work_order&& order) {
  const auto& prefill = workers_.at(order.placement.prefill).handle;
  const auto& decode = workers_.at(order.placement.decode).handle;
  generate_job job{std::move(order), caf::actor_cast<caf::actor>(gateway_actor{this}), prefill, decode};
  send(caf::actor_cast<decode_worker_actor>(job.decode), job_atom_v, job);
  send(caf::actor_cast<prefill_worker_actor>(job.prefill), job_atom_v, std::move(job));
}

void gateway::carry_out(const stop_order& order) {
  const auto worker = workers_.find(order.worker);
  if (worker == workers_.end()) return;  // its node is gone
  const auto& handle = worker->second.handle;
  if (order.role == worker_role::decode)
    return send(caf::actor_cast<decode_worker_actor>(handle), cancel_atom_v, order.id);
  // Its answer says that it wrote its last, which matters to the decode worker alone.
  request(caf::actor_cast<prefill_worker_actor>(handle), schedule_limit, cancel_atom_v, order.id)
      .then([] {}, [](const caf::error&) {});
}

void gateway::carry_out(worker_roll&& roll) {
  const auto worker = workers_.find(roll.worker);
  if (worker == workers_.end()) return;
  const auto& [node, role, handle] = worker->second;
  const auto answered = [this, id = roll.worker](const roll_answer& answer) {
    core_.rolled(id, answer, clock().now());
    act();
  };
  const auto silent = [](const caf::error&) {};  // its links tell whether it lives
  if (role == worker_role::decode) {
    request(caf::actor_cast<decode_worker_actor>(handle), schedule_limit, roll_atom_v, std::move(roll.call))
        .then(answered, silent);
  } else {
    request(caf::actor_cast<prefill_worker_actor>(handle), schedule_limit, roll_atom_v, std::move(roll.call))
        .then(answered, silent);
  }
}

void gateway::peer_up(const node_info& peer) {
  std::vector<worker_id> ids;
  for (const auto& worker : peer.workers) {
    ids.push_back(worker.id);
    workers_[worker.id] = {peer.id, worker.role, worker.handle};
  }
  core_.peer_up(peer.id, std::move(ids), clock().now());
  act();
}

void gateway::peer_down(node_id peer) {
  core_.peer_down(peer, clock().now());
  act();
  std::erase_if(workers_, [&](const auto& entry) { return entry.second.node == peer; });
}

}  // namespace mooncaf
