#include "actors/gateway.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <utility>

#include "actors/conversions.hpp"
#include "actors/log.hpp"
#include "actors/metrics/metrics.hpp"
#include "actors/stray_errors.hpp"
#include "runtime/sched/block_hash.hpp"

namespace mooncaf {

namespace {

constexpr auto tick_interval = std::chrono::milliseconds(50);
constexpr auto schedule_limit = std::chrono::seconds(5);
constexpr auto placing_limit = std::chrono::seconds(15);  ///< without a live instance of a role, then 503
constexpr std::uint32_t attempt_limit = 16;               ///< some 15 s with the waits between them
constexpr std::uint32_t placing_attempt_limit = 64;       ///< … that found no worker to go to
constexpr std::uint32_t loss_limit = 4;  ///< a request that kills workers must not kill them all

/// Waits longer from attempt to attempt: a dead worker is known at once, a full one needs time.
duration back_off(std::uint32_t attempt) {
  return std::chrono::milliseconds(20) * (1u << std::min(attempt, 6u));
}

/// What a client is told when attempt after attempt failed: that it may come again, unless memory or queues
/// are full, which it has to know.
error gave_up(std::uint32_t attempts, const error& last) {
  if (last.code == ec::overloaded || last.code == ec::out_of_space) return last;
  return {ec::unavailable, std::to_string(attempts) + " attempts failed, the last with: " + to_string(last)};
}

/// Whole seconds, since that is what the header holds; at least one.
std::chrono::seconds retry_after_of(std::int64_t ns) {
  return std::max(std::chrono::ceil<std::chrono::seconds>(duration{ns}), std::chrono::seconds(1));
}

/// Why a request got no answer, as the metrics call it.
const char* outcome_of(ec cause) {
  return cause == ec::overloaded || cause == ec::slo_unreachable ? "rejected" : "failed";
}

}  // namespace

gateway::gateway(caf::actor_config& config, context_ptr context)
    : gateway_actor::base(config),
      context_(std::move(context)),
      ids_(context_->id, request_issuer::gateway) {}

gateway_actor::behavior_type gateway::make_behavior() {
  outlive_stray_errors(*this);
  delayed_send(this, tick_interval, tick_atom_v);
  return {
      [this](first_atom, const first_token& message) { first(message); },
      [this](tokens_atom, const token_batch& batch) {
        for (const auto& run : batch.runs) tokens(run);
      },
      [this](failed_atom, const attempt_failed& message) { attempt_over(message); },
      [this](peer_up_atom, const node_info& peer) {
        auto& mine = workers_of_[peer.id];
        mine.clear();
        for (const auto& worker : peer.workers) {
          mine.push_back(worker.id);
          workers_[worker.id] = worker.handle;
        }
      },
      [this](peer_down_atom, node_id peer) { peer_lost(peer); },
      [this](follow_atom, const caf::actor& conductor) {
        conductor_ = conductor ? caf::actor_cast<conductor_actor>(conductor) : conductor_actor{};
      },
      [this](status_atom) { return static_cast<std::uint64_t>(requests_.size()); },
      [this](submit_atom, const client_request_ptr& client) { submit(client); },
      [this](cancel_atom, const client_request_ptr& client) { client_gone(client); },
      [this](cluster_atom, const cluster_query_ptr& query) {
        if (!conductor_) return query->answer({});
        request(conductor_, schedule_limit, status_atom_v)
            .then([query](const std::string& json) { query->answer(json); },
                  [query](const caf::error&) { query->answer({}); });
      },
      [this](tick_atom) {
        tick();
        delayed_send(this, tick_interval, tick_atom_v);
      },
  };
}

void gateway::on_exit() {
  for (auto& [id, request] : requests_) {
    if (!request->over) request->what.sink->failed(error{ec::unavailable, "the server is stopping"}, {});
  }
  requests_.clear();
  workers_.clear();
  conductor_ = nullptr;
}

void gateway::submit(const client_request_ptr& client) {
  std::vector<generation> pending = std::move(client->generations);
  client->generations.clear();
  while (!pending.empty()) {
    generation leader = std::move(pending.front());
    std::vector<generation> followers, others;
    for (auto i = pending.begin() + 1; i != pending.end(); ++i) {
      (i->prompt == leader.prompt ? followers : others).push_back(std::move(*i));
    }
    start(client, std::move(leader), std::move(followers));
    pending = std::move(others);
  }
}

void gateway::start(const client_request_ptr& client, generation what, std::vector<generation> followers) {
  auto request = std::make_shared<live>();
  request->id.request = ids_.next();
  request->client = client;
  request->what = std::move(what);
  request->followers = std::move(followers);
  request->root = root_key(context_->root, context_->layout, request->what.cache_salt);
  request->placing_since = clock().now();
  requests_.emplace(request->id.request, request);
  if (requests_.size() > context_->opts.gateway.max_requests) {
    return fail(request,
                error{ec::overloaded, "the gateway holds its limit of " +
                                          std::to_string(context_->opts.gateway.max_requests) + " requests"},
                std::chrono::ceil<std::chrono::seconds>(places_.refuse(clock().now())));
  }
  schedule(request);
}

void gateway::schedule(const live_ptr& request) {
  if (!conductor_) {
    request->retry_at = clock().now() + back_off(request->id.attempt);
    return;
  }
  const auto& what = request->what;
  auto tokens = what.prompt;
  tokens.insert(tokens.end(), request->output.begin(), request->output.end());
  schedule_job job;
  job.id = request->id;
  // What a request with log-probabilities of its prompt could find in a cache is of no use to it.
  if (!scores_prompt(*request)) job.keys = block_keys(tokens, context_->layout.block_tokens, request->root);
  job.prompt_tokens = static_cast<std::uint32_t>(tokens.size());
  job.max_tokens = what.sampling.max_tokens - static_cast<std::uint32_t>(request->output.size());
  job.priority = what.priority;
  job.ttft_slo_ns = what.ttft_slo.count();
  job.tbt_slo_ns = what.tbt_slo.count();
  job.age_ns = (clock().now() - request->client->arrived).count();
  job.resumed = !request->output.empty();
  job.avoid = request->avoid;
  job.gateway = context_->id;
  request->scheduling = true;
  this->request(conductor_, schedule_limit, schedule_atom_v, std::move(job))
      .then(
          [this, request](const placement_msg& where) {
            request->scheduling = false;
            if (!request->over) dispatch(request, where);  // else `forget` has given it back
          },
          [this, request, id = request->id](const caf::error& e) {
            request->scheduling = false;
            // A late answer is dropped, and what it would have charged with it.
            give_back(id, request_stage::cancelled);
            if (!request->over) rejected(request, e);
          });
}

void gateway::rejected(const live_ptr& request, const caf::error& why) {
  const auto cause = from_caf(why);
  if (clock().now() - request->placing_since > placing_limit && request->output.empty()) {
    return fail(request, error{ec::unavailable, "no placement: " + cause.detail}, std::chrono::seconds(2));
  }
  again(request, cause);
}

void gateway::dispatch(const live_ptr& request, const placement_msg& where) {
  if (where.rejection.code == ec::unavailable) return rejected(request, to_caf(where.rejection));
  request->placing_since = clock().now();
  if (where.queued) return schedule(request);
  if (where.rejection.code != ec::none) {
    return fail(request, where.rejection, retry_after_of(where.retry_after_ns));
  }
  const auto prefill = workers_.find(where.prefill);
  const auto decode = workers_.find(where.decode);
  request->placed = where;
  if (prefill == workers_.end() || decode == workers_.end()) {
    // The conductor knows a worker whose node has not introduced itself here yet.
    return again(request,
                 error{ec::unavailable, "a worker of the placement is not connected to this gateway yet"});
  }
  request->prefill = prefill->second;
  request->decode = decode->second;
  const auto& what = request->what;
  generate_job job;
  job.id = request->id;
  job.tokens = what.prompt;
  job.tokens.insert(job.tokens.end(), request->output.begin(), request->output.end());
  job.prompt_tokens = static_cast<std::uint32_t>(what.prompt.size());
  job.root = request->root;
  job.keys = block_keys(job.tokens, context_->layout.block_tokens, job.root);
  job.sampling = what.sampling;
  job.sampling.prompt_logprobs = scores_prompt(*request);
  job.priority = what.priority;
  const auto slo = what.ttft_slo.count() > 0 ? what.ttft_slo : context_->opts.scheduler.ttft_slo;
  job.ttft_slo_ns = std::max<std::int64_t>((slo - (clock().now() - request->client->arrived)).count(), 0);
  job.age_ns = (clock().now() - request->client->arrived).count();
  job.tbt_slo_ns = what.tbt_slo.count() > 0 ? what.tbt_slo.count() : context_->opts.scheduler.tbt_slo.count();
  job.placement = where;
  job.gateway_node = context_->id;
  job.gateway = caf::actor_cast<caf::actor>(gateway_actor{this});
  job.prefill = request->prefill;
  job.decode = request->decode;
  send(caf::actor_cast<decode_worker_actor>(request->decode), job_atom_v, job);
  send(caf::actor_cast<prefill_worker_actor>(request->prefill), job_atom_v, std::move(job));
}

gateway::live_ptr gateway::find(const attempt_id& id) const {
  const auto i = requests_.find(id.request);
  return i == requests_.end() || i->second->id != id || i->second->over ? nullptr : i->second;
}

void gateway::first(const first_token& message) {
  const auto request = find(message.id);
  if (!request) return;
  if (request->output.empty()) {
    request->stats = message.stats;
    request->ttft = clock().now() - request->client->arrived;
    if (context_->meters) {
      const auto prompt = static_cast<std::uint32_t>(request->what.prompt.size());
      context_->meters->first_token(request->ttft, prompt, message.stats.cached_tokens);
    }
    if (scores_prompt(*request)) {
      std::vector<sampled_token> scores;
      for (const auto& t : message.prompt) scores.push_back(from_message(t));
      request->what.sink->prompt(request->what.prompt, scores);
    }
    for (auto& follower : std::exchange(request->followers, {}))
      start(request->client, std::move(follower), {});
  }
  if (conductor_) {
    request_event event;
    event.id = request->id;
    event.stage = request_stage::first_token;
    event.new_tokens = message.stats.computed_tokens;
    event.cached_tokens = message.stats.cached_tokens;
    // Logits of a whole prompt take time that no estimate is about.
    event.compute_ns = scores_prompt(*request) ? 0 : message.stats.compute_ns;
    event.ttft_ns = request->ttft.count();
    send(conductor_, event_atom_v, event);
  }
  if (!deliver(request, message.token)) return stop_early(request);
  if (message.finish != finish_kind::none) return finish(request, message.finish);
  for (const auto& run : std::exchange(request->early, {})) tokens(run);
}

void gateway::tokens(const token_run& run) {
  const auto request = find(run.id);
  if (!request) return;
  if (run.position > request->output.size()) {
    request->early.push_back(run);
    return;
  }
  request->decoding = true;
  auto position = run.position;
  for (const auto& token : run.tokens) {
    if (position++ != request->output.size()) continue;
    if (!deliver(request, token)) return stop_early(request);
  }
  if (run.finish != finish_kind::none) finish(request, run.finish);
}

bool gateway::deliver(const live_ptr& request, const token_msg& token) {
  const auto now = clock().now();
  if (context_->meters) {
    if (!request->output.empty()) context_->meters->token_gap(now - request->last_token);
    context_->meters->tokens_generated(1);
  }
  request->output.push_back(token.id);
  request->last_token = now;
  return request->what.sink->token(from_message(token));
}

void gateway::attempt_over(const attempt_failed& message) {
  const auto request = find(message.id);
  if (!request) return;
  stop_workers(request, true, true);
  if (message.cause.code == ec::slo_unreachable) {
    if (context_->meters) context_->meters->prefill_wasted(message.wasted_prefill_tokens);
    request->wasted_tokens = message.wasted_prefill_tokens;
    return fail(request, message.cause, retry_after_of(message.retry_after_ns));
  }
  if (!message.retriable) return fail(request, message.cause, {});
  if (request->id.attempt + 1 >= attempt_limit) {
    return fail(request, gave_up(request->id.attempt + 1, message.cause), std::chrono::seconds(1));
  }
  request->avoid.push_back(request->placed->decode);
  again(request, message.cause);
}

void gateway::again(const live_ptr& request, const error& cause) {
  if (request->id.attempt + 1 >= placing_attempt_limit) return fail(request, cause, std::chrono::seconds(2));
  log_info("again", {{"request", to_string(request->id.request)}, {"cause", to_string(cause)}});
  if (request->placed) {
    give_back(request->id, request_stage::failed);
    request->placing_since = clock().now();
  }
  ++request->id.attempt;
  request->placed.reset();
  request->prefill = nullptr;
  request->decode = nullptr;
  request->decoding = false;
  request->early.clear();
  request->retry_at = clock().now() + back_off(request->id.attempt);
}

void gateway::stop_workers(const live_ptr& request, bool prefill, bool decode) {
  if (!request->placed) return;
  if (decode && request->decode)
    send(caf::actor_cast<decode_worker_actor>(request->decode), cancel_atom_v, request->id);
  if (prefill && request->prefill) {
    // Its answer says that it wrote its last, which matters to the decode worker alone.
    this->request(caf::actor_cast<prefill_worker_actor>(request->prefill), schedule_limit, cancel_atom_v,
                  request->id)
        .then([] {}, [](const caf::error&) {});
  }
}

void gateway::finish(const live_ptr& request, finish_kind reason) {
  generation_report report;
  report.cached_tokens = request->stats.cached_tokens;
  report.output_tokens = static_cast<std::uint32_t>(request->output.size());
  report.prefill = request->stats;
  if (request->placed) report.placement = *request->placed;
  report.ttft = request->ttft;
  measure_end(request, "finished");  // first: a client that has its answer finds it counted
  request->what.sink->finished(reason, report);
  forget(request, request_stage::finished);
}

void gateway::stop_early(const live_ptr& request) {
  stop_workers(request, true, true);
  finish(request, finish_kind::stop);
}

void gateway::client_gone(const client_request_ptr& client) {
  std::vector<live_ptr> mine;
  for (const auto& [id, request] : requests_) {
    if (request->client == client) mine.push_back(request);
  }
  for (const auto& request : mine) {
    stop_workers(request, true, true);
    measure_end(request, "cancelled");
    forget(request, request_stage::cancelled);
  }
}

void gateway::fail(const live_ptr& request, const error& cause, std::chrono::seconds retry_after) {
  stop_workers(request, true, true);
  measure_end(request, outcome_of(cause.code));
  request->what.sink->failed(cause, retry_after);
  for (auto& follower : request->followers) follower.sink->failed(cause, retry_after);
  forget(request, cause.code == ec::slo_unreachable && request->placed ? request_stage::refused
                                                                       : request_stage::failed);
}

void gateway::measure_end(const live_ptr& request, const std::string& outcome) {
  if (!context_->meters) return;
  const auto elapsed = clock().now() - request->client->arrived;
  for (std::size_t i = 0; i <= request->followers.size(); ++i)
    context_->meters->request_over(outcome, elapsed);
}

void gateway::forget(const live_ptr& request, request_stage stage) {
  request->over = true;
  // One that waits in the conductor's queue leaves it.
  if (conductor_ && (request->placed || request->scheduling)) {
    request_event event;
    event.id = request->id;
    event.stage = stage;
    event.wasted_tokens = request->wasted_tokens;
    event.output_tokens = static_cast<std::uint32_t>(request->output.size());
    send(conductor_, event_atom_v, event);
  }
  requests_.erase(request->id.request);
  if (requests_.size() < context_->opts.gateway.max_requests) places_.left(clock().now());
}

void gateway::give_back(const attempt_id& id, request_stage stage) {
  if (!conductor_) return;
  request_event event;
  event.id = id;
  event.stage = stage;
  send(conductor_, event_atom_v, event);
}

void gateway::peer_lost(node_id peer) {
  if (const auto i = workers_of_.find(peer); i != workers_of_.end()) {
    for (const auto id : i->second) workers_.erase(id);
    workers_of_.erase(i);
  }
  std::vector<live_ptr> hit;
  for (const auto& [id, request] : requests_) {
    if (!request->placed) continue;
    const bool prefill = request->placed->prefill_node == peer && !request->decoding;
    if (prefill || request->placed->decode_node == peer) hit.push_back(request);
  }
  for (const auto& request : hit) {
    stop_workers(request, request->placed->prefill_node != peer, request->placed->decode_node != peer);
    if (++request->losses >= loss_limit) {
      fail(request,
           error{ec::unavailable,
                 std::to_string(request->losses) + " nodes were lost while they served this request"},
           std::chrono::seconds(2));
    } else {
      again(request, error{ec::peer_lost, "node " + to_string(peer) + " is gone"});
    }
  }
}

void gateway::tick() {
  const auto now = clock().now();
  std::vector<live_ptr> late, due;
  std::size_t placeless = 0;
  for (const auto& [id, request] : requests_) {
    placeless += !request->placed;
    if (now - request->client->arrived > context_->opts.gateway.request_timeout) {
      late.push_back(request);
    } else if (!request->placed && !request->scheduling && now >= request->retry_at) {
      due.push_back(request);
    }
  }
  if (context_->meters) context_->meters->set_queued(static_cast<double>(placeless));
  for (const auto& request : late) {
    fail(request, error{ec::timed_out, "the request took longer than gateway.request_timeout"}, {});
  }
  for (const auto& request : due) {
    if (!conductor_ && now - request->placing_since > placing_limit && request->output.empty()) {
      fail(request, error{ec::unavailable, "no conductor is reachable"}, std::chrono::seconds(2));
    } else {
      schedule(request);
    }
  }
}

}  // namespace mooncaf
