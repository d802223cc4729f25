#include "runtime/request/gateway_core.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "runtime/sched/block_hash.hpp"
#include "runtime/sched/retry_rules.hpp"

namespace mooncaf {

namespace {

using retry_rules::attempt_limit;
using retry_rules::back_off;
using retry_rules::loss_limit;
using retry_rules::placing_attempt_limit;
using retry_rules::placing_limit;

constexpr auto resuming_limit =
    std::chrono::seconds(30);  ///< as `placing_limit`, of an answer that has begun
constexpr auto roll_interval = std::chrono::seconds(2);

/// As `placing_limit` where no worker has ever been: nothing restarts that a request could wait for.
constexpr auto first_worker_limit = std::chrono::seconds(1);

/// The error that a client gets when attempt after attempt failed: it may come again, unless memory or queues
/// are full, which it has to know.
error gave_up(std::uint32_t attempts, const error& last) {
  if (last.code == ec::overloaded || last.code == ec::out_of_space) return last;
  return {ec::unavailable, std::to_string(attempts) + " attempts failed, the last with: " + to_string(last)};
}

/// Whole seconds, since the header holds nothing finer; at least one.
std::chrono::seconds retry_after_of(std::int64_t ns) {
  return std::max(std::chrono::ceil<std::chrono::seconds>(duration{ns}), std::chrono::seconds(1));
}

/// Why a request got no answer, as the metrics call it.
std::string_view outcome_of(ec cause) {
  return cause == ec::overloaded || cause == ec::slo_unreachable ? "rejected" : "failed";
}

}  // namespace

gateway_core::gateway_core(node_id self, block_key root, const kv_layout& layout,
                           const gateway_limits& limits, gateway_observer& observer)
    : self_(self),
      root_(root),
      layout_(layout),
      limits_(limits),
      observer_(observer),
      ids_(self, request_issuer::gateway) {}

// ---- clients ----

void gateway_core::submit(const client_request_ptr& client, time_point now) {
  std::vector<generation> pending = std::move(client->generations);
  client->generations.clear();
  while (!pending.empty()) {
    generation leader = std::move(pending.front());
    std::vector<generation> followers, others;
    for (auto i = pending.begin() + 1; i != pending.end(); ++i) {
      (i->prompt == leader.prompt ? followers : others).push_back(std::move(*i));
    }
    start(client, std::move(leader), std::move(followers), now);
    pending = std::move(others);
  }
}

void gateway_core::start(const client_request_ptr& client, generation what, std::vector<generation> followers,
                         time_point now) {
  auto request = std::make_shared<live>();
  request->id.request = ids_.next();
  request->client = client;
  request->what = std::move(what);
  request->followers = std::move(followers);
  request->root = root_key(adapted_root(root_, request->what.adapter), layout_, request->what.cache_salt);
  request->placing_since = now;
  requests_.emplace(request->id.request, request);
  if (requests_.size() > limits_.max_requests) {
    return fail(request,
                error{ec::overloaded,
                      "the gateway holds its limit of " + std::to_string(limits_.max_requests) + " requests"},
                std::chrono::ceil<std::chrono::seconds>(places_.refuse(now)), now);
  }
  schedule(request, now);
}

void gateway_core::client_gone(const client_request_ptr& client, time_point now) {
  std::vector<live_ptr> mine;
  for (const auto& [id, request] : requests_) {
    if (request->client == client) mine.push_back(request);
  }
  for (const auto& request : mine) {
    stop_workers(request);
    measure_end(request, "cancelled", finish_reason::none, nullptr, now);
    forget(request, request_stage::cancelled, now);
  }
}

void gateway_core::close() {
  const error stopping{ec::unavailable, "the server is stopping"};
  for (auto& [id, request] : requests_) {
    request->what.sink->failed(stopping, {});
    for (auto& follower : request->followers) follower.sink->failed(stopping, {});
  }
  requests_.clear();
  actions_.clear();
}

// ---- a place ----

void gateway_core::schedule(const live_ptr& request, time_point now) {
  if (!conductor_) {
    request->retry_at = now + back_off(request->id.attempt);
    return;
  }
  const auto& what = request->what;
  auto tokens = what.prompt;
  tokens.insert(tokens.end(), request->output.begin(), request->output.end());
  schedule_job job;
  job.id = request->id;
  if (!computes_prompt(*request)) job.keys = block_keys(tokens, layout_.block_tokens, request->root);
  job.prompt_tokens = static_cast<std::uint32_t>(tokens.size());
  job.max_tokens = what.sampling.max_tokens - static_cast<std::uint32_t>(request->output.size());
  job.priority = what.priority;
  job.tenant = what.tenant;
  job.share = what.share;
  job.ttft_slo_ns = what.ttft_slo.count();
  job.tbt_slo_ns = what.tbt_slo.count();
  job.age_ns = (now - request->client->arrived).count();
  job.resumed = !request->output.empty();
  job.avoid = request->avoid;
  job.gateway = self_;
  request->scheduling = true;
  if (traced_attempt(*request) == nullptr)
    request->attempts.push_back({.attempt = request->id.attempt, .asked = now});
  actions_.emplace_back(std::move(job));
}

void gateway_core::set_conductor(bool present, std::uint64_t term, time_point now) {
  conductor_ = present;
  term_ = term;
  if (!present) return;
  std::vector<live_ptr> placeless;
  for (const auto& [id, request] : requests_) {
    if (!request->placed) placeless.push_back(request);
  }
  for (const auto& request : placeless) {
    // An answer to the earlier question is of another attempt. It may come from this same conductor, which charges for it.
    if (request->scheduling) give_back(request->id, request_stage::cancelled);
    request->id.attempt += std::exchange(request->scheduling, false);
    schedule(request, now);
  }
}

void gateway_core::answered(const attempt_id& id, const placement_msg& where, time_point now) {
  const auto request = find(id);
  if (!request || !request->scheduling) return;  // `forget` or `set_conductor` has given it back
  const bool placed = where.rejection.code == ec::none && !where.queued;
  if (placed && where.term < term_)
    return unanswered(id, error{ec::unavailable, "a conductor placed it that leads no more"}, now);
  request->scheduling = false;
  dispatch(request, where, now);
}

void gateway_core::unanswered(const attempt_id& id, const error& why, time_point now) {
  // A late answer is dropped, and the conductor is told to release its charge.
  give_back(id, request_stage::cancelled);
  const auto request = find(id);
  if (!request || !request->scheduling) return;
  request->scheduling = false;
  rejected(request, why, now);
}

bool gateway_core::waited(const live& request, duration limit, time_point now) {
  return now - request.placing_since > (request.output.empty() ? limit : duration{resuming_limit});
}

void gateway_core::rejected(const live_ptr& request, const error& cause, time_point now) {
  if (waited(*request, had_workers_ ? duration{placing_limit} : first_worker_limit, now)) {
    return fail(request, error{ec::unavailable, "no placement: " + cause.detail}, std::chrono::seconds(2),
                now);
  }
  again(request, cause, now);
}

void gateway_core::dispatch(const live_ptr& request, const placement_msg& where, time_point now) {
  if (where.rejection.code == ec::unavailable) return rejected(request, where.rejection, now);
  request->placing_since = now;
  if (where.queued) return schedule(request, now);
  if (where.rejection.code != ec::none) {
    return fail(request, where.rejection, retry_after_of(where.retry_after_ns), now);
  }
  request->placed = where;
  if (!workers_.contains(where.prefill) || !workers_.contains(where.decode)) {
    // The conductor knows a worker whose node has not introduced itself here yet.
    return again(request,
                 error{ec::unavailable, "a worker of the placement is not connected to this gateway yet"},
                 now);
  }
  request->dispatched = true;
  if (auto* attempt = traced_attempt(*request)) {
    attempt->placed = now;
    attempt->where = where;
  }
  actions_.emplace_back(order_for(*request, now));
}

work_order gateway_core::order_for(const live& request, time_point now) const {
  const auto& what = request.what;
  work_order job;
  job.id = request.id;
  job.tokens = what.prompt;
  job.tokens.insert(job.tokens.end(), request.output.begin(), request.output.end());
  job.prompt_tokens = static_cast<std::uint32_t>(what.prompt.size());
  job.root = request.root;
  job.keys = block_keys(job.tokens, layout_.block_tokens, job.root);
  job.sampling = what.sampling;
  if (!scores_prompt(request)) job.sampling.prompt_logprobs = -1;
  job.priority = what.priority;
  const auto age = now - request.client->arrived;
  const auto slo = what.ttft_slo.count() > 0 ? what.ttft_slo : limits_.ttft_slo;
  job.ttft_slo_ns = std::max<std::int64_t>((slo - age).count(), 0);
  job.age_ns = age.count();
  job.tbt_slo_ns = what.tbt_slo.count() > 0 ? what.tbt_slo.count() : limits_.tbt_slo.count();
  job.placement = *request.placed;
  job.gateway_node = self_;
  job.keeper = what.keeper;
  for (const auto& [tokens, ttl] : what.keep)
    if (tokens >= layout_.block_tokens) job.keep.push_back({tokens / layout_.block_tokens, ttl.count()});
  return job;
}

// ---- tokens ----

gateway_core::live_ptr gateway_core::find(const attempt_id& id) const {
  const auto i = requests_.find(id.request);
  return i == requests_.end() || i->second->id != id ? nullptr : i->second;
}

void gateway_core::first_of_all(const live_ptr& request, const first_token& message, time_point now) {
  request->stats = message.stats;
  request->ttft = now - request->client->arrived;
  observer_.first_token(request->ttft, static_cast<std::uint32_t>(request->what.prompt.size()),
                        message.stats.cached_tokens);
  if (scores_prompt(*request)) {
    std::vector<sampled_token> scores;
    for (const auto& t : message.prompt) scores.push_back(from_message(t));
    request->what.sink->prompt(request->what.prompt, scores);
  }
  if (!message.pooled.empty()) {
    std::vector<float> values;
    for (const auto bits : message.pooled) values.push_back(std::bit_cast<float>(bits));
    request->what.sink->pooled(values);
  }
  for (auto& follower : std::exchange(request->followers, {}))
    start(request->client, std::move(follower), {}, now);
}

void gateway_core::first(const first_token& message, time_point now) {
  const auto request = find(message.id);
  if (!request) return;
  request->prefilled = true;
  if (auto* attempt = traced_attempt(*request)) {
    attempt->first = now;
    attempt->stats = message.stats;
  }
  hear(*request, now);
  if (request->output.empty()) first_of_all(request, message, now);
  request_event event;
  event.id = request->id;
  event.stage = request_stage::first_token;
  event.new_tokens = message.stats.computed_tokens;
  event.cached_tokens = message.stats.cached_tokens;
  // Logits of a whole prompt take time that no estimate is about.
  event.compute_ns = scores_prompt(*request) ? 0 : message.stats.compute_ns;
  event.ttft_ns = request->ttft.count();
  tell(event);
  if (!deliver(request, message.token, now)) return stop_early(request, now);
  if (message.finish != finish_reason::none) {
    // The prefill side tells it, too, but over another link: that word may be lost, or come before the job.
    stop_decode(request);
    return finish(request, message.finish, now);
  }
  for (const auto& run : std::exchange(request->early, {})) tokens(run, now);
}

void gateway_core::tokens(const token_run& run, time_point now) {
  const auto request = find(run.id);
  if (!request) return;
  hear(*request, now);
  if (run.position > request->output.size()) {
    request->early.push_back(run);
    return;
  }
  request->decoding = true;
  auto position = run.position;
  for (const auto& token : run.tokens) {
    if (position++ != request->output.size()) continue;
    if (!deliver(request, token, now)) return stop_early(request, now);
  }
  if (run.finish != finish_reason::none) finish(request, run.finish, now);
}

bool gateway_core::deliver(const live_ptr& request, const token_msg& token, time_point now) {
  const auto gap = request->output.empty() ? std::nullopt : std::optional{now - request->last_token};
  observer_.token(gap);
  if (gap) request->gaps.add(*gap);
  request->output.push_back(token.id);
  request->last_token = now;
  return request->what.sink->token(from_message(token));
}

// ---- failures ----

void gateway_core::attempt_over(const attempt_failed& message, time_point now) {
  const auto request = find(message.id);
  if (!request || !request->placed) return;
  if (message.cause.code == ec::slo_unreachable) {
    observer_.prefill_wasted(message.wasted_prefill_tokens);
    request->wasted_tokens = message.wasted_prefill_tokens;
    return fail(request, message.cause, retry_after_of(message.retry_after_ns), now);
  }
  if (!message.retriable) return fail(request, message.cause, {}, now);
  if (request->id.attempt + 1 >= attempt_limit) {
    return fail(request, gave_up(request->id.attempt + 1, message.cause), std::chrono::seconds(1), now);
  }
  stop_workers(request);
  if (message.lost_device && ++request->losses >= loss_limit) return give_up_lost(request, now);
  request->avoid.push_back(request->placed->decode);
  again(request, message.cause, now);
}

void gateway_core::again(const live_ptr& request, const error& cause, time_point now) {
  if (request->id.attempt + 1 >= placing_attempt_limit)
    return fail(request, cause, std::chrono::seconds(2), now);
  observer_.attempt_failed(request->id.request, cause);
  if (auto* attempt = traced_attempt(*request)) {
    attempt->over = now;
    attempt->failure = to_string(cause);
  }
  if (request->placed) {
    give_back(request->id, request_stage::failed);
    request->placing_since = now;
  }
  ++request->id.attempt;
  request->placed.reset();
  request->dispatched = false;
  request->prefilled = false;
  request->missed = false;
  request->stands = request->stood = {};
  request->decoding = false;
  request->early.clear();
  request->retry_at = now + back_off(request->id.attempt);
}

void gateway_core::peer_up(node_id peer, std::vector<worker_id> workers, time_point now) {
  for (const auto id : workers) workers_.insert(id);
  had_workers_ |= !workers.empty();
  call_roll(workers, now);
  workers_of_[peer] = std::move(workers);
}

void gateway_core::call_roll(const std::vector<worker_id>& workers, time_point now) {
  std::unordered_map<worker_id, roll_call> calls;
  for (const auto worker : workers) calls[worker].gateway = self_;
  for (const auto& [id, request] : requests_) {
    if (!request->dispatched) continue;
    bool called = false;
    for (const auto worker : {request->placed->prefill, request->placed->decode}) {
      const auto i = calls.find(worker);
      if (i == calls.end()) continue;
      i->second.live.push_back(request->id);
      called = true;
    }
    if (!called) continue;
    request->called = now;
    request->stood = std::exchange(request->stands, {});
  }
  for (const auto worker : workers) actions_.emplace_back(worker_roll{worker, std::move(calls[worker])});
}

void gateway_core::hear(live& request, time_point now) {
  request.heard = now;
  request.missed = false;
  request.stands = request.stood = {};
}

void gateway_core::rolled(worker_id worker, const roll_answer& answer, time_point now) {
  for (const auto& id : answer.unknown) stands_still(worker, id, true, now);
  for (const auto& id : answer.waiting) stands_still(worker, id, false, now);
}

void gateway_core::stands_still(worker_id worker, const attempt_id& id, bool unknown, time_point now) {
  const auto request = find(id);
  if (!request || !request->dispatched) return;
  // A question that left before the latest news is asked again.
  if (request->heard >= request->called) return;
  const bool decode = worker == request->placed->decode;
  request->stands[decode] = true;
  // A prefill worker forgets an attempt that it has handed over. A decode worker's last words may still be on
  // their way over another link, so one miss is not believed.
  const bool gone = unknown && (decode || !request->prefilled) && std::exchange(request->missed, true);
  // Each worker waits for the other, or for one that has ended the attempt; and messages between them had
  // time to arrive.
  constexpr std::array both{true, true};
  const bool stuck = request->stands == both && request->stood == both;
  if (!gone && !stuck) return;
  attempt_failed message;
  message.id = id;
  message.cause = {ec::internal, gone ? "worker " + to_string(worker) + " does not know the attempt"
                                      : "its workers wait for each other"};
  attempt_over(message, now);
}

void gateway_core::peer_down(node_id peer, time_point now) {
  if (const auto gone = workers_of_.extract(peer)) {
    for (const auto id : gone.mapped()) workers_.erase(id);
  }
  std::vector<live_ptr> hit;
  for (const auto& [id, request] : requests_) {
    if (!request->placed) continue;
    const bool prefill = request->placed->prefill_node == peer && !request->decoding;
    if (prefill || request->placed->decode_node == peer) hit.push_back(request);
  }
  for (const auto& request : hit) {
    // The lost worker is told to stop, too: the link may have been renewed before this node heard of the
    // break, and the job may have left over the new link, where only this order ends it.
    stop_workers(request);
    if (++request->losses >= loss_limit) {
      give_up_lost(request, now);
    } else {
      again(request, error{ec::peer_lost, "node " + to_string(peer) + " is gone"}, now);
    }
  }
}

void gateway_core::give_up_lost(const live_ptr& request, time_point now) {
  fail(request,
       error{ec::unavailable,
             std::to_string(request->losses) + " nodes or devices were lost while they served this request"},
       std::chrono::seconds(2), now);
}

void gateway_core::stop_workers(const live_ptr& request) {
  if (!request->dispatched) return;
  stop_decode(request);
  actions_.emplace_back(stop_order{request->id, request->placed->prefill, worker_role::prefill});
}

void gateway_core::stop_decode(const live_ptr& request) {
  actions_.emplace_back(stop_order{request->id, request->placed->decode, worker_role::decode});
}

// ---- ends ----

void gateway_core::finish(const live_ptr& request, finish_reason reason, time_point now) {
  generation_report report;
  report.cached_tokens = request->stats.cached_tokens;
  report.output_tokens = static_cast<std::uint32_t>(request->output.size());
  report.prefill = request->stats;
  if (request->placed) report.placement = *request->placed;
  report.ttft = request->ttft;
  // First: a client that has its answer finds it counted.
  measure_end(request, "finished", reason, nullptr, now);
  request->what.sink->finished(reason, report);
  forget(request, request_stage::finished, now);
}

void gateway_core::stop_early(const live_ptr& request, time_point now) {
  stop_workers(request);
  finish(request, finish_reason::stop, now);
}

void gateway_core::fail(const live_ptr& request, const error& cause, std::chrono::seconds retry_after,
                        time_point now) {
  stop_workers(request);
  measure_end(request, outcome_of(cause.code), finish_reason::none, &cause, now);
  request->what.sink->failed(cause, retry_after);
  for (auto& follower : request->followers) follower.sink->failed(cause, retry_after);
  forget(
      request,
      cause.code == ec::slo_unreachable && request->placed ? request_stage::refused : request_stage::failed,
      now);
}

void gateway_core::measure_end(const live_ptr& request, std::string_view outcome, finish_reason finish,
                               const error* failure, time_point now) {
  for (std::size_t i = 0; i <= request->followers.size(); ++i)
    observer_.over(outcome, request->client->tenant, now - request->client->arrived);
  observer_.traced({.id = request->id.request,
                    .traceparent = request->client->traceparent,
                    .name = request->client->trace_id,
                    .tenant = request->client->tenant,
                    .arrived = request->client->arrived,
                    .ended = now,
                    .outcome = outcome,
                    .failure = failure == nullptr ? std::string{} : to_string(*failure),
                    .finish = finish,
                    .prompt_tokens = static_cast<std::uint32_t>(request->what.prompt.size()),
                    .cached_tokens = request->stats.cached_tokens,
                    .output_tokens = static_cast<std::uint32_t>(request->output.size()),
                    .ttft = request->ttft,
                    .attempts = std::move(request->attempts)});
}

void gateway_core::forget(const live_ptr& request, request_stage stage, time_point now) {
  // One that waits in the conductor's queue leaves it.
  if (request->placed || request->scheduling) {
    request_event event;
    event.id = request->id;
    event.stage = stage;
    event.wasted_tokens = request->wasted_tokens;
    event.output_tokens = static_cast<std::uint32_t>(request->output.size());
    if (stage == request_stage::finished) event.tbt_ns = request->gaps.mean().count();
    tell(event);
  }
  requests_.erase(request->id.request);
  if (requests_.size() < limits_.max_requests) places_.left(now);
}

void gateway_core::give_back(const attempt_id& id, request_stage stage) {
  request_event event;
  event.id = id;
  event.stage = stage;
  tell(event);
}

void gateway_core::tell(const request_event& event) {
  if (conductor_) actions_.emplace_back(event);
}

void gateway_core::tick(time_point now) {
  std::vector<live_ptr> late, due;
  std::size_t placeless = 0;
  for (const auto& [id, request] : requests_) {
    placeless += !request->placed;
    if (now - request->client->arrived > limits_.request_timeout) {
      late.push_back(request);
    } else if (!request->placed && !request->scheduling && now >= request->retry_at) {
      due.push_back(request);
    }
  }
  observer_.waiting(placeless);
  for (const auto& request : late) {
    fail(request, error{ec::timed_out, "the request took longer than gateway.request_timeout"}, {}, now);
  }
  if (now >= roll_at_) {
    roll_at_ = now + roll_interval;
    call_roll({workers_.begin(), workers_.end()}, now);
  }
  for (const auto& request : due) {
    if (!conductor_ && waited(*request, placing_limit, now)) {
      fail(request, error{ec::unavailable, "no conductor is reachable"}, std::chrono::seconds(2), now);
    } else {
      schedule(request, now);
    }
  }
}

}  // namespace mooncaf
