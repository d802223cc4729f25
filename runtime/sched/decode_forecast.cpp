#include "runtime/sched/decode_forecast.hpp"

#include <algorithm>

namespace mooncaf {

decode_forecast::decode_forecast(duration span)
    : width_(std::max<std::int64_t>(span.count() / buckets_per_span, 1)) {}

void decode_forecast::add(time_point prefill_end, std::uint64_t context_tokens, std::uint64_t memory_tokens) {
  auto& at = buckets_.at(bucket_of(prefill_end));
  ++at.requests;
  at.context_tokens += context_tokens;
  at.memory_tokens += memory_tokens;
}

void decode_forecast::remove(time_point prefill_end, std::uint64_t context_tokens,
                             std::uint64_t memory_tokens) {
  auto* at = buckets_.find(bucket_of(prefill_end));
  if (at == nullptr) return;  // trimmed
  if (--at->requests == 0) return buckets_.erase(bucket_of(prefill_end));
  at->context_tokens -= context_tokens;
  at->memory_tokens -= memory_tokens;
}

decode_forecast::load decode_forecast::at(time_point when) const {
  load sum;
  const auto last = bucket_of(when);
  for (auto i = buckets_.from(last - buckets_per_span + 1); i != buckets_.end() && i->first <= last; ++i) {
    sum.requests += i->second.requests;
    sum.context_tokens += i->second.context_tokens;
    sum.memory_tokens += i->second.memory_tokens;
  }
  return sum;
}

void decode_forecast::trim(time_point now) { buckets_.drop_before(bucket_of(now) - buckets_per_span); }

}  // namespace mooncaf
