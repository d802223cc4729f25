// The conductor's predictions for a request that has been given a place, and whether it may keep it.

#include <algorithm>
#include <cmath>

#include "runtime/sched/conductor_core.hpp"

namespace mooncaf {

namespace {

/// When a placed request meets the others: as it begins to decode, and later, when others that are in prefill
/// by now have joined it; in decode spans after the end of its prefill.
constexpr double moments[] = {0.0, 0.3, 0.8};

/// How many standard deviations above its mean the memory that others will hold is taken to be.
constexpr double memory_caution = 0.5;

/// What decoding costs rises as its load nears the SLO: as it will be, with this much in reserve.
constexpr double tbt_reserve = 1.2;

/// A request's TBT is the mean of its slowest tenth of gaps, of ten at the least: a wait for its KV is one of
/// them.
constexpr double least_gaps = 10, share_of_gaps = 0.1;

/// Where memory is short a few may wait for it at decode, which keeps it full: for this share of what the TBT
/// SLO leaves for waiting, since links want some, and of an answer's time. A longer queue fills it no better
/// and lets in who takes most of it.
constexpr double share_of_patience = 0.7, share_of_answer = 0.1;

/// A predicted wait counts for more than it is: one that turns out longer breaks an SLO, one that turns out
/// shorter leaves the link to others.
constexpr double cautious_wait = 1.4;

bool is_urgent(const schedule_request& request) noexcept { return request.priority == 0; }

duration or_default(duration wish, duration otherwise) noexcept {
  return wish > duration{} ? wish : otherwise;
}

/// Gaps that a wait of one is spread over, if answers have so many tokens.
double gaps_of(double tokens) noexcept { return std::max(least_gaps, share_of_gaps * tokens); }

}  // namespace

/// Since arrival. Urgent requests wait for each other only; the others' queue drains as fast as those that
/// are still to come, and will go first, leave time for.
duration conductor_core::predicted_ttft(const schedule_request& request, const prefill_choice& p,
                                        time_point now) const {
  constexpr double most = 0.9;
  if (is_urgent(request)) return waited(request, now) + p.cost + cluster_.prefill().urgent_queue(p.slot, now);
  const double urgent =
      std::min(urgent_work_.at(now) / static_cast<double>(cluster_.prefill().live().size()), most);
  return waited(request, now) + p.cost + bounded_duration(to_seconds(p.ttft - p.cost) / (1 - urgent));
}

// ---- memory
// ---------------------------------------------------------------------------------------------------------

std::uint64_t conductor_core::memory_needs(const candidate& c, instance_slot slot) const {
  const auto prompt = std::uint64_t{c.request.prompt_tokens};
  if (cluster_.decode().desc(slot).reserves_answers) return prompt + c.request.max_tokens;
  return prompt + cluster_.survival().likely_tokens(c.answer, c.request.max_tokens);
}

double conductor_core::memory_taken(const candidate& c, instance_slot slot) const {
  const auto& decode = cluster_.decode();
  const auto all = static_cast<double>(decode.reserved(slot));
  const auto others = static_cast<double>(decode.occupied(slot));
  switch (options_.admission) {
    case admission_policy::early_running:
      return static_cast<double>(decode.reserved_running(slot)) + others;
    case admission_policy::predictive: {
      const auto then = cluster_.forecast().at(c.now + c.prefill.ttft);
      return static_cast<double>(then.memory_tokens) / static_cast<double>(decode.live().size()) + others;
    }
    case admission_policy::per_request:
    case admission_policy::priced: {
      const auto& answers = cluster_.survival();
      const auto limit =
          to_seconds(or_default(c.request.tbt_slo, options_.tbt_slo)) * slo_share(c.request.priority);
      const auto step = to_seconds(decode.step(slot, c.request.prompt_tokens)) * tbt_margin_.factor();
      const auto patience = std::max(limit - step, 0.0) * gaps_of(answers.mean_tokens());
      const auto wait =
          std::min(share_of_patience * patience, share_of_answer * answers.mean_seconds(c.answer));
      double most = 0;
      for (const auto later : moments) {
        const auto when =
            c.now + c.prefill.ttft + bounded_duration(wait + later * to_seconds(options_.decode_span));
        const auto then = answers.at(slot, when, c.now);
        most = std::max(most, then.memory_tokens + memory_caution * std::sqrt(then.memory_variance));
      }
      return std::min(most + others, all);
    }
    default:
      return all;
  }
}

void conductor_core::ask_for_memory(const candidate& c, instance_slot slot, admission_question& q) const {
  q.memory_limit = cluster_.decode().desc(slot).capacity_tokens;
  q.memory_needs = static_cast<double>(memory_needs(c, slot));
  q.memory = q.memory_limit == 0 ? 0 : memory_taken(c, slot);
}

bool conductor_core::has_room(const candidate& c, instance_slot slot) const {
  const auto& decode = cluster_.decode();
  const auto limit = decode.desc(slot).capacity_tokens;
  if (limit == 0 || decode.reserved(slot) + memory_needs(c, slot) <= limit) return true;
  admission_question q;
  q.priority = c.request.priority;
  ask_for_memory(c, slot, q);
  return fits_memory(q);
}

/// Another decode instance, if the memory of the chosen one will be full and that one's will not.
void conductor_core::find_room(candidate& c) const {
  const auto& decode = cluster_.decode();
  if (options_.coupled || has_room(c, c.decode.slot)) return;
  const auto other = decode.roomiest(c.request.avoid);
  if (other == no_slot || other == c.decode.slot || !has_room(c, other)) return;
  const auto node = decode.desc(other).node;
  const auto from = cluster_.prefill().desc(c.prefill.slot).node;
  if (broken_.between(c.request.gateway, node) || broken_.between(from, node)) return;
  c.decode = decode.choice(other, c.request.prompt_tokens);
}

// ---- hand-over
// ------------------------------------------------------------------------------------------------------

hand_over conductor_core::kv_of(const candidate& c, instance_slot slot) const {
  const auto& node = cluster_.decode().desc(slot).node;
  if (options_.coupled || c.request.max_tokens == 1 || node == cluster_.prefill().desc(c.prefill.slot).node)
    return {};
  const auto& p = c.prefill;
  const auto reused =
      std::min(std::uint64_t{p.fetch ? p.source_blocks : p.local_blocks} * options_.block_tokens,
               std::uint64_t{c.request.prompt_tokens});
  hand_over h;
  h.from = cluster_.prefill().node(p.slot);
  h.to = *cluster_.index_of(node);
  h.begin = c.now + p.ttft - p.cost;
  h.end = c.now + p.ttft;
  h.reused = reused * options_.bytes_per_token;
  h.computed = (c.request.prompt_tokens - reused) * options_.bytes_per_token;
  return h;
}

duration conductor_core::hand_over_wait(const schedule_request& request, const prefill_choice& from,
                                        instance_slot to, time_point now) const {
  return transfers_.wait(kv_of({request, from, {}, 0, now}, to));
}

duration conductor_core::hand_over_part(const candidate& c, instance_slot slot) const {
  return bounded_duration(cautious_wait * to_seconds(hand_over_wait(c.request, c.prefill, slot, c.now)) /
                          gaps_of(cluster_.survival().mean_tokens()));
}

/// Another decode instance, if the KV would wait long on its way to the chosen one and less to that one.
void conductor_core::find_link(candidate& c) const {
  const auto limit =
      to_seconds(or_default(c.request.tbt_slo, options_.tbt_slo)) * slo_share(c.request.priority);
  const auto cost = [&](instance_slot slot) {
    return to_seconds(cluster_.decode().step(slot, c.request.prompt_tokens)) +
           to_seconds(hand_over_part(c, slot));
  };
  if (hand_over_part(c, c.decode.slot) == duration{}) return;
  const auto here = cost(c.decode.slot);
  if (here <= limit) return;
  auto best = c.decode.slot;
  auto least = here;
  const auto from = cluster_.prefill().desc(c.prefill.slot).node;
  for (const auto slot : cluster_.decode().live()) {
    const auto& d = cluster_.decode().desc(slot);
    if (std::ranges::find(c.request.avoid, d.id) != c.request.avoid.end() ||
        broken_.between(c.request.gateway, d.node) || broken_.between(from, d.node) || !has_room(c, slot))
      continue;
    if (const auto there = cost(slot); there < least) best = slot, least = there;
  }
  if (best != c.decode.slot) c.decode = cluster_.decode().choice(best, c.request.prompt_tokens);
}

// ---- admission
// ------------------------------------------------------------------------------------------------------

std::optional<rejection> conductor_core::admit(candidate& c) {
  const auto& request = c.request;
  if (request.resumed) return std::nullopt;
  admission_question q;
  q.priority = request.priority;
  q.ttft = predicted_ttft(request, c.prefill, c.now);
  q.ttft_slo = or_default(request.ttft_slo, options_.ttft_slo);
  q.tbt_now = c.decode.tbt;
  q.tbt_running = c.decode.tbt_running;
  q.tbt_slo = or_default(request.tbt_slo, options_.tbt_slo);
  q.decode_saturated = c.decode.saturated;
  q.decode_span = options_.decode_span;
  const auto& prefill = cluster_.prefill();
  q.try_prefill = prefill.pending(c.prefill.slot) == 0;
  const auto& decode = cluster_.decode();
  q.try_decode = decode.charged(c.decode.slot) == 0 && decode.reserved(c.decode.slot) == 0;
  if (options_.admission != admission_policy::none && options_.admission != admission_policy::baseline)
    ask_for_memory(c, c.decode.slot, q);
  if (options_.admission == admission_policy::predictive) {
    const auto then = cluster_.forecast().at(c.now + c.prefill.ttft);
    q.tbt_then = cluster_.decode().mean_step(then.requests + 1, then.context_tokens + request.prompt_tokens);
  }
  if (predicts_each(options_.admission)) predict_each(c, q);
  q.tbt_then += hand_over_part(c, c.decode.slot);
  return check_admission(options_.admission, q);
}

/// Decode load when this prefill ends, by what is known of each request; and what requests may cost at this
/// load.
void conductor_core::predict_each(candidate& c, admission_question& q) {
  const auto& decode = cluster_.decode();
  duration step{};
  for (const auto later : moments) {
    const auto then = cluster_.survival().at(
        c.now + c.prefill.ttft + bounded_duration(later * to_seconds(options_.decode_span)), c.now);
    step = std::max(
        step, decode.mean_step(static_cast<std::uint64_t>(then.requests + 1.5),
                               static_cast<std::uint64_t>(then.context_tokens) + c.request.prompt_tokens));
  }
  c.step = step;
  q.tbt_then = bounded_duration(to_seconds(step) * tbt_margin_.factor());
  // The own computation is known; it is the wait for others that goes wrong.
  q.ttft = c.prefill.cost + bounded_duration(to_seconds(q.ttft - c.prefill.cost) * ttft_margin_.factor());
  // Nobody prices urgent ones out.
  if (options_.admission == admission_policy::priced && !is_urgent(c.request)) price(c, q);
}

void conductor_core::price(const candidate& c, admission_question& q) {
  const auto& decode = cluster_.decode();
  const double share = slo_share(c.request.priority);
  const double slo = to_seconds(q.tbt_slo) * share;
  // An empty step takes its time, too: load is how much of the rest is taken.
  const double empty = to_seconds(decode.mean_step(0, 0));
  const double alone = to_seconds(decode.mean_step(1, c.request.prompt_tokens));
  const double room = std::max(slo - empty, 1e-9);
  double load = tbt_reserve * (to_seconds(q.tbt_then) - alone) / std::max(slo - alone, 1e-9);
  double part = (alone - empty) / room;
  if (q.memory_limit > 0) {
    const auto limit = static_cast<double>(q.memory_limit) * memory_share(c.request.priority);
    load = std::max(load, (q.memory + q.memory_needs) / limit);
    part = std::max(part, q.memory_needs / limit);
  }
  q.cost = c.prefill.cost;
  q.decode_cost = part * cluster_.survival().mean_seconds(c.answer);
  prefill_prices_.observe(to_seconds(q.cost), c.now);
  decode_prices_.observe(q.decode_cost, c.now);
  // An instance works off a second of prefill, or all of its decoding for a second, per second.
  const auto instances = [](const auto& live) { return static_cast<double>(live.size()); };
  const double queue =
      to_seconds(q.ttft - c.prefill.cost) / (to_seconds(q.ttft_slo) * slo_share(c.request.priority));
  q.cost_limit = bounded_duration(prefill_prices_.limit(queue, instances(cluster_.prefill().live()), c.now));
  q.decode_cost_limit = decode_prices_.limit(load, instances(decode.live()), c.now);
}

}  // namespace mooncaf
