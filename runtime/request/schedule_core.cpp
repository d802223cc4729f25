#include "runtime/request/schedule_core.hpp"

#include <utility>

namespace mooncaf {

namespace {

constexpr auto patience =
    std::chrono::seconds(2);  ///< well inside the time that a gateway waits for an answer
constexpr auto absence = std::chrono::seconds(10);

placement_msg still_queued(const attempt_id& id) {
  placement_msg out;
  out.id = id;
  out.queued = true;
  return out;
}

}  // namespace

void schedule_core::answer(asker& who, placement_msg message) {
  if (const auto asked = std::exchange(who.question, {})) answers_.emplace_back(*asked, std::move(message));
}

void schedule_core::ask(const schedule_job& job, ticket asked, time_point now) {
  const auto id = charge_id(job.id);
  auto& who = askers_[id];
  answer(who, still_queued(job.id));  // the gateway has given up on it
  who.question = asked;
  who.since = now;
  if (who.ready) {
    answer(who, *std::exchange(who.ready, {}));
    askers_.erase(id);
    return;
  }
  who.job = job;
  who.job.keys.clear();
  schedule_request request;
  request.id = id;
  request.keys = job.keys;
  request.prompt_tokens = job.prompt_tokens;
  request.max_tokens = job.max_tokens;
  request.priority = job.priority;
  request.ttft_slo = duration{job.ttft_slo_ns};
  request.tbt_slo = duration{job.tbt_slo_ns};
  request.avoid = job.avoid;
  request.gateway = job.gateway;
  request.arrival = now - duration{job.age_ns};
  request.resumed = job.resumed;
  request.tenant = job.tenant;
  request.share = job.share;
  queue_.submit(request, now, decided_);
  tell(decided_, now);
}

void schedule_core::advance(time_point now) {
  if (queue_.size() == 0) return;
  queue_.advance(now, decided_);
  tell(decided_, now);
}

void schedule_core::tell(std::vector<decision>& decided, time_point now) {
  for (const auto& d : decided) {
    const auto i = askers_.find(d.id);
    if (i == askers_.end()) continue;
    auto& who = i->second;
    const auto message = message_of(who, d);
    if (d.outcome) placed_(who.job, message);
    if (who.question) {
      answer(who, message);
      askers_.erase(i);
    } else {
      who.ready = message;
      who.since = now;
    }
  }
  decided.clear();
}

placement_msg schedule_core::message_of(const asker& who, const decision& d) const {
  placement_msg out;
  out.id = who.job.id;
  if (!d.outcome) {
    out.rejection = d.outcome.error().cause;
    out.retry_after_ns = d.outcome.error().retry_after.count();
    return out;
  }
  const auto& placed = *d.outcome;
  out.prefill = placed.prefill;
  out.decode = placed.decode;
  out.prefill_node = placed.prefill_node;
  out.decode_node = placed.decode_node;
  out.local_blocks = placed.local_blocks;
  out.source = placed.source;
  out.source_blocks = placed.source_blocks;
  out.source_tier = placed.source_tier;
  out.beside = placed.beside;
  out.predicted_ttft_ns = placed.predicted_ttft.count();
  out.predicted_tbt_ns = placed.predicted_tbt.count();
  out.check_at_decode = checks_at_decode(core_.rule().policy);
  return out;
}

bool schedule_core::withdraw(const attempt_id& id) {
  const bool waited = queue_.withdraw(charge_id(id));
  if (const auto i = askers_.find(charge_id(id)); i != askers_.end()) {
    answer(i->second, still_queued(id));
    askers_.erase(i);
  }
  return waited;
}

void schedule_core::forget_gateway(node_id gateway) {
  std::vector<attempt_id> gone;
  for (const auto& [id, who] : askers_) {
    if (who.job.gateway == gateway) gone.push_back(who.job.id);
  }
  for (const auto& id : gone) withdraw(id);
}

void schedule_core::forget_all() {
  std::vector<attempt_id> all;
  for (const auto& [id, who] : askers_) all.push_back(who.job.id);
  for (const auto& id : all) withdraw(id);
}

void schedule_core::tick(time_point now) {
  advance(now);
  std::vector<attempt_id> gone;
  for (auto& [id, who] : askers_) {
    if (who.question) {
      if (now - who.since < patience) continue;
      answer(who, still_queued(who.job.id));
      who.since = now;
    } else if (now - who.since > absence) {
      gone.push_back(who.job.id);
    }
  }
  for (const auto& id : gone) {
    if (!withdraw(id)) core_.cancelled(charge_id(id), now);
  }
}

void schedule_core::close() {
  for (auto& [id, who] : askers_) answer(who, still_queued(who.job.id));
  askers_.clear();
}

}  // namespace mooncaf
