#include "runtime/sched/decode_forecast.hpp"

#include <algorithm>

namespace mooncaf {

decode_forecast::decode_forecast(duration span)
    : width_(std::max<std::int64_t>(span.count() / buckets_per_span, 1)) {}

void decode_forecast::add(time_point prefill_end, std::uint64_t context_tokens) {
  const auto b = bucket_of(prefill_end);
  if (buckets_.empty()) first_ = b;
  while (b < first_) {
    buckets_.emplace_front();
    --first_;
  }
  const auto i = static_cast<std::size_t>(b - first_);
  if (i >= buckets_.size()) buckets_.resize(i + 1);
  ++buckets_[i].requests;
  buckets_[i].context_tokens += context_tokens;
}

void decode_forecast::remove(time_point prefill_end, std::uint64_t context_tokens) {
  const auto b = bucket_of(prefill_end);
  if (b < first_ || b - first_ >= static_cast<std::int64_t>(buckets_.size())) return;  // trimmed
  auto& at = buckets_[static_cast<std::size_t>(b - first_)];
  if (at.requests == 0) return;
  --at.requests;
  at.context_tokens -= context_tokens;
}

decode_forecast::load decode_forecast::at(time_point when) const {
  load sum;
  const auto last =
      std::min<std::int64_t>(bucket_of(when) - first_, static_cast<std::int64_t>(buckets_.size()) - 1);
  const auto begin = std::max<std::int64_t>(bucket_of(when) - first_ - buckets_per_span + 1, 0);
  for (auto i = begin; i <= last; ++i) {
    sum.requests += buckets_[static_cast<std::size_t>(i)].requests;
    sum.context_tokens += buckets_[static_cast<std::size_t>(i)].context_tokens;
  }
  return sum;
}

void decode_forecast::trim(time_point now) {
  const auto oldest = bucket_of(now) - buckets_per_span;
  while (!buckets_.empty() && first_ < oldest) {
    buckets_.pop_front();
    ++first_;
  }
}

}  // namespace mooncaf
