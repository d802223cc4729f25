#include "runtime/sim/attempts.hpp"

#include <algorithm>

#include "runtime/sched/retry_rules.hpp"

namespace mooncaf::sim {

attempts::attempts(world& w, arrivals& source)
    : w_(w), source_(source), queue_(w.journal, w.conductor, w.queue_options()) {}

void attempts::ask(std::uint32_t slot) {
  const auto& r = w_.requests[slot];
  schedule_request question;
  question.id = r.id;
  question.keys = r.keys;
  question.prompt_tokens = r.prompt_tokens;
  question.max_tokens = max_tokens_of(r);
  question.priority = r.priority;
  question.share = r.share;
  question.arrival = time_point{duration{r.arrival}};
  question.resumed = r.delivered > 0;
  queue_.submit(question, w_.time.clock(), decided_);
}

void attempts::look_for_room() {
  if (queue_.size() > 0) queue_.advance(w_.time.clock(), decided_);
}

void attempts::unplaced(std::uint32_t slot, const rejection& why) {
  const auto& r = w_.requests[slot];
  const auto waited = w_.time.now() - past_of(slot).placing_since;
  if (r.delivered > 0 || waited <= duration{retry_rules::placing_limit}.count()) return try_later(slot);
  refuse(slot, why);
}

void attempts::refuse(std::uint32_t slot, const rejection& why) {
  count_refusal(w_.requests[slot], why);
  close(slot);
}

void attempts::refuse_placed(std::uint32_t slot, const rejection& why) {
  const auto id = w_.requests[slot].id;
  if (why.cause.code == ec::slo_unreachable) w_.conductor.refused_at_decode(id, w_.time.clock());
  else w_.conductor.failed(id, w_.time.clock());
  look_for_room();
  refuse(slot, why);
}

void attempts::count_refusal(const request_state_record& r, const rejection& why) {
  request_counts c;
  ++missed_;
  switch (why.stage) {
    case reject_stage::placement:
    case reject_stage::queue:
      ++c.rejected_placement;
      break;
    case reject_stage::prefill:
      ++c.rejected_prefill;
      break;
    case reject_stage::decode:
      ++c.rejected_decode;
      break;
    case reject_stage::memory:
      ++c.rejected_memory;
      break;
    case reject_stage::at_decode:
      ++(why.cause.code == ec::out_of_space ? c.rejected_memory : c.rejected_at_decode);
      w_.out.wasted_prefill_s += r.prefill_seconds;
      break;
  }
  count(r, c);
}

void attempts::first_token(std::uint32_t slot) {
  auto& r = w_.requests[slot];
  const auto& o = w_.options;
  r.first_token = w_.time.now();
  const double computing = r.prefill_seconds / w_.layout.pipeline();
  w_.out.prefill_s += r.prefill_seconds;
  w_.out.prefill_alone_s += w_.prefill_costs.prefill(r.prompt_tokens, r.cached_tokens);
  if (r.delivered == 0) {
    const double ttft = to_sec(w_.time.now() - r.arrival);
    w_.out.ttft.add(ttft);
    missed_ += ttft > o.ttft_slo_s;
    w_.out.queueing.add(std::max(ttft - computing, 0.0));
  } else {
    resumes(slot);
  }
  ++w_.out.output_tokens;
  w_.conductor.first_token(r.id, r.prompt_tokens - r.cached_tokens, r.cached_tokens, duration{r.computing},
                           w_.time.clock());
  look_for_room();
  r.decode_tokens = std::max(r.output_tokens, 1u) - 1;
}

void attempts::finish(std::uint32_t slot, double tbt) {
  const auto& r = w_.requests[slot];
  const auto first_token = r.delivered > 0 ? past_.at(slot).first_token : r.first_token;
  const bool late = to_sec(first_token - r.arrival) > w_.options.ttft_slo_s;
  const bool slow = tbt > w_.options.tbt_slo_s;
  request_counts c{.completed = 1};
  c.ttft_missed = late, c.tbt_missed = slow;
  c.slo_met = !late && !slow;
  count(r, c);
  const double came = to_sec(r.arrival);
  w_.out.judged_met += !late && !slow && came >= w_.options.judged_from_s && came < w_.options.judged_to_s;
  if (late || slow) w_.out.missed_prefill_s += r.prefill_seconds;
  missed_ += slow && !late;  // a late one was counted at its first token
  if (r.output_tokens + r.delivered > 1) w_.out.tbt.add(tbt);
  w_.conductor.finished(r.id, w_.time.clock(), r.output_tokens, duration{from_sec(whole_us(tbt))});
  look_for_room();
  close(slot);
}

void attempts::close(std::uint32_t slot) {
  const auto session = w_.requests[slot].session;
  w_.requests.close(slot);
  if (!past_.empty()) past_.erase(slot);
  source_.answered(session);
}

attempts::past_attempts& attempts::past_of(std::uint32_t slot) {
  const auto [at, fresh] = past_.try_emplace(slot);
  if (fresh) at->second.placing_since = w_.requests[slot].arrival;
  return at->second;
}

void attempts::torn(const torn_answer& answer) {
  auto& past = past_of(answer.slot);
  w_.requests[answer.slot].decoded = answer.tokens;
  past.last_token = answer.last;
  past.gaps.insert(past.gaps.end(), answer.gaps.begin(), answer.gaps.end());
}

void attempts::lose(std::uint32_t slot) {
  auto& r = w_.requests[slot];
  auto& past = past_of(slot);
  ++w_.out.attempts_lost;
  w_.conductor.failed(r.id, w_.time.clock());
  w_.out.lost_prefill_s += r.prefill_seconds - past.prefill_seconds;
  past.prefill_seconds = r.prefill_seconds;
  if (r.first_token > 0) {
    const auto tokens = r.decoded + 1;
    if (r.delivered == 0) past.first_token = r.first_token;
    if (r.decoded == 0) past.last_token = r.first_token;
    w_.out.output_tokens += r.decoded;
    r.delivered += tokens;
    r.prompt_tokens += tokens;
    r.output_tokens -= tokens;
  }
  r.begin_anew();
  past.placing_since = w_.time.now();
  if (++past.losses >= retry_rules::loss_limit) return give_up(slot);
  try_later(slot);
}

/// The answer goes on: the time since its last token counts as one of its gaps.
void attempts::resumes(std::uint32_t slot) {
  auto& past = past_.at(slot);
  const double pause = to_sec(w_.time.now() - past.last_token);
  past.gaps.emplace_back(pause, 1);
  past.last_token = w_.time.now();
  w_.out.gap.add(pause);
  w_.out.pause.add(pause);
}

void attempts::try_later(std::uint32_t slot) {
  const auto attempt = ++past_of(slot).attempt;
  if (attempt >= retry_rules::placing_attempt_limit) return give_up(slot);
  w_.requests.renew(slot);
  const duration back_off = retry_rules::back_off(attempt);
  w_.time.add(w_.time.now() + back_off.count(), event_kind::retry, slot,
              request_table::stamp_of(w_.requests[slot].id));
}

void attempts::give_up(std::uint32_t slot) {
  const auto& r = w_.requests[slot];
  count(r, {.failed = 1});
  const bool was_late =
      r.delivered > 0 && to_sec(past_.at(slot).first_token - r.arrival) > w_.options.ttft_slo_s;
  missed_ += !was_late;
  close(slot);
}

std::uint32_t attempts::max_tokens_of(const request_state_record& r) const noexcept {
  const auto most = r.max_tokens;
  return most - std::min(most - 1, r.delivered);
}

std::span<const token_gaps::value_type> attempts::gaps_before(std::uint32_t slot) const {
  if (past_.empty()) return {};
  const auto at = past_.find(slot);
  return at == past_.end() ? std::span<const token_gaps::value_type>{} : at->second.gaps;
}

double attempts::tbt_of_before(std::uint32_t slot) const {
  return step_history{}.tbt(0, 0, 0, w_.options.tbt, gaps_before(slot));
}

}  // namespace mooncaf::sim
