#include "runtime/sched/admission.hpp"

#include <algorithm>
#include <string>

namespace mooncaf {

namespace {

duration share_of(duration slo, std::uint8_t priority) noexcept {
  return bounded_duration(to_seconds(slo) * slo_share(priority));
}

std::string text(duration t) { return std::to_string(t.count() / 1'000'000) + " ms"; }

rejection missed(reject_stage stage, std::string_view what, duration predicted, duration limit,
                 duration retry_after) {
  return {{ec::slo_unreachable,
           "predicted " + std::string{what} + " " + text(predicted) + " exceeds " + text(limit)},
          retry_after,
          stage};
}

/// Until a decode load that is `predicted` has fallen to `limit`: requests leave evenly over `span`.
duration until_fallen(duration predicted, duration limit, duration span) noexcept {
  return bounded_duration(to_seconds(span) * (1 - to_seconds(limit) / to_seconds(predicted)));
}

/// Up to which step a waiting request joins. It asks again and again, and so goes when the prediction is at its lowest: some
/// of what the others add is kept in reserve.
duration limit_of_wait(const admission_question& q) noexcept {
  constexpr double reserve = 1.2;
  const double slo = to_seconds(share_of(q.tbt_slo, std::max<std::uint8_t>(q.priority, 1)));
  const double alone = std::min(to_seconds(q.tbt_alone), slo);
  return bounded_duration(alone + (slo - alone) * q.tbt_room / reserve);
}

/// The request is too dear at this load; half an SLO later it may not be.
std::optional<rejection> priced_out(admission_policy policy, const admission_question& q) {
  if (policy != admission_policy::priced) return std::nullopt;
  if (q.cost > q.cost_limit && !q.try_prefill) {
    return rejection{{ec::overloaded, "needs " + text(q.cost) + " of prefill, at most " + text(q.cost_limit) +
                                          " is taken with the queues as they are"},
                     q.ttft_slo / 2,
                     reject_stage::prefill};
  }
  if (q.decode_cost > q.decode_cost_limit) {
    return rejection{{ec::overloaded, "would take " + std::to_string(q.decode_cost / q.decode_cost_limit) +
                                          " times as much of decoding as is given to one request now"},
                     q.decode_span / 2,
                     reject_stage::decode};
  }
  return std::nullopt;
}

/// Requests that hold the memory leave evenly over t_d.
rejection no_room(const admission_question& q) {
  const auto tokens = [](double n) { return std::to_string(static_cast<std::uint64_t>(n)); };
  const double limit = static_cast<double>(q.memory_limit) * memory_share(q.priority);
  const double excess = q.memory + q.memory_needs - limit;
  return {{ec::overloaded, "decode's memory: " + tokens(q.memory) + " tokens are taken by then, " +
                               tokens(q.memory_needs) + " more do not fit " + tokens(limit)},
          bounded_duration(to_seconds(q.decode_span) * std::min(excess / std::max(q.memory, 1.0), 1.0)),
          reject_stage::memory};
}

}  // namespace

bool fits_memory(const admission_question& q) noexcept {
  if (q.memory_limit == 0 || q.memory <= 0) return true;
  return q.memory + q.memory_needs <= static_cast<double>(q.memory_limit) * memory_share(q.priority);
}

std::optional<rejection> check_admission(admission_policy policy, const admission_question& q) {
  if (policy == admission_policy::none) return std::nullopt;
  if (policy == admission_policy::queue) {
    if (q.try_decode) return std::nullopt;
    const auto limit = limit_of_wait(q);
    if (q.tbt_then > limit)
      return missed(reject_stage::queue, "TBT", q.tbt_then, limit,
                    until_fallen(q.tbt_then, limit, q.decode_span));
    if (fits_memory(q)) return std::nullopt;
    auto waits = no_room(q);
    waits.stage = reject_stage::queue;
    return waits;
  }
  const auto ttft_limit = share_of(q.ttft_slo, q.priority);
  // The queue drains as time passes: the request fits when the excess is done.
  if (q.ttft > ttft_limit && !q.try_prefill)
    return missed(reject_stage::prefill, "TTFT", q.ttft, ttft_limit, q.ttft - ttft_limit);
  if (policy == admission_policy::baseline) return std::nullopt;
  if (q.try_decode) return std::nullopt;
  if (!fits_memory(q)) return no_room(q);
  const auto tbt_limit = share_of(q.tbt_slo, q.priority);
  if (policy == admission_policy::early && q.decode_saturated) {
    return rejection{{ec::overloaded, "every decode batch is full and as many requests wait"},
                     q.decode_span / 2,
                     reject_stage::decode};
  }
  if (auto refused = priced_out(policy, q)) return refused;
  const auto tbt = policy == admission_policy::early           ? q.tbt_now
                   : policy == admission_policy::early_running ? q.tbt_running
                                                               : q.tbt_then;
  if (tbt > tbt_limit) {
    return missed(reject_stage::decode, "TBT", tbt, tbt_limit, until_fallen(tbt, tbt_limit, q.decode_span));
  }
  return std::nullopt;
}

std::optional<rejection> admit_at_decode(const decode_model& model, std::uint64_t batch,
                                         std::uint64_t context_tokens, std::uint64_t request_tokens,
                                         duration tbt_slo, std::uint8_t priority) {
  const auto limit = share_of(tbt_slo, priority);
  const auto step = model.estimate(batch + 1, context_tokens + request_tokens);
  // Alone on its instance a request is as fast as it gets; refusing it would serve no other.
  if (step <= limit || batch == 0) return std::nullopt;
  return missed(reject_stage::at_decode, "TBT", step, limit, duration{std::chrono::seconds(1)});
}

}  // namespace mooncaf
