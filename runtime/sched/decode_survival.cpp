#include "runtime/sched/decode_survival.hpp"

#include <algorithm>
#include <cmath>

namespace mooncaf {

namespace {

constexpr double shortest = 0.05;  // seconds
constexpr double per_octave = 5;
constexpr double fading = 0.999;  // of what was seen before, with each observation

}  // namespace

/// Bucket b counts what lasted from edges()[b] to edges()[b + 1] seconds.
const std::array<double, decode_times::buckets + 1>& decode_times::edges() noexcept {
  static const auto table = [] {
    std::array<double, buckets + 1> t{};
    for (std::size_t b = 1; b <= buckets; ++b) {
      t[b] = shortest * std::exp2((static_cast<double>(b) - 1) / per_octave);
    }
    return t;
  }();
  return table;
}

std::size_t decode_times::bucket_of(double seconds) noexcept {
  if (!(seconds > shortest)) return 0;
  return std::min(static_cast<std::size_t>(std::log2(seconds / shortest) * per_octave) + 1, buckets - 1);
}

void decode_times::observe(std::size_t c, duration took) noexcept {
  auto& mine = of_[c];
  for (auto& n : mine.seen) n *= fading;
  mine.total = mine.total * fading + 1;
  mine.seen[bucket_of(to_seconds(took))] += 1;
  if (++mine.undrawn >= redraw_every || (mine.total >= enough && mine.beyond[0] == 0)) draw(mine);
}

void decode_times::draw(history& of) noexcept {
  of.undrawn = 0;
  const auto& edge = edges();
  const double share = 1 / of.total;
  double longer = 0;  // weight of the buckets above b
  auto b = buckets - 1;
  for (auto i = points; i-- > 0;) {
    const double at = static_cast<double>(i) * point_ns * 1e-9;
    while (at < edge[b]) longer += of.seen[b--];
    const double above = (edge[b + 1] - at) / (edge[b + 1] - edge[b]);
    of.beyond[i] = share * (longer + of.seen[b] * std::clamp(above, 0.0, 1.0));
  }
}

double decode_times::still_there(std::size_t c, duration elapsed, duration later,
                                 duration otherwise) const noexcept {
  const auto& mine = of_[c];
  if (mine.total < enough || mine.beyond[0] == 0) return elapsed + later < otherwise ? 1 : 0;
  const auto now = static_cast<std::size_t>(elapsed.count() / point_ns);
  const auto then = static_cast<std::size_t>((elapsed + later).count() / point_ns);
  // Longer than (almost) anything seen: it may go on for as long again.
  if (now >= points || mine.beyond[now] < 1e-3) {
    return then == 0 ? 1 : static_cast<double>(now) / static_cast<double>(then);
  }
  return then < points ? mine.beyond[then] / mine.beyond[now] : 0;
}

decode_survival::bucket* decode_survival::find(time_point t) {
  const auto b = std::max(number_of(t), first_);
  const auto i = static_cast<std::size_t>(b - first_);
  return i < buckets_.size() ? &buckets_[i] : nullptr;
}

void decode_survival::add(time_point prefill_end, std::uint64_t prompt_tokens) {
  const auto b = number_of(prefill_end);
  if (buckets_.empty()) first_ = b;
  while (b < first_) {
    buckets_.emplace_front();
    --first_;
  }
  const auto i = static_cast<std::size_t>(b - first_);
  if (i >= buckets_.size()) buckets_.resize(i + 1);
  const auto c = decode_times::class_of(prompt_tokens);
  ++buckets_[i].requests[c];
  buckets_[i].context[c] += prompt_tokens;
}

void decode_survival::remove(time_point prefill_end, std::uint64_t prompt_tokens) {
  auto* b = find(prefill_end);
  const auto c = decode_times::class_of(prompt_tokens);
  if (b == nullptr || b->requests[c] == 0) return;
  --b->requests[c];
  b->context[c] -= prompt_tokens;
}

void decode_survival::observe(time_point began, std::uint64_t prompt_tokens, time_point now) noexcept {
  times_.observe(decode_times::class_of(prompt_tokens), std::max(now - began, duration{}));
}

decode_survival::load decode_survival::at(time_point when, time_point now) const {
  load sum;
  const auto last =
      std::min<std::int64_t>(number_of(when) - first_, static_cast<std::int64_t>(buckets_.size()) - 1);
  for (std::int64_t i = 0; i <= last; ++i) {
    const auto& b = buckets_[static_cast<std::size_t>(i)];
    const time_point ended{duration{(first_ + i) * width + width / 2}};
    const auto elapsed = std::max<duration>(now - ended, duration{});
    const auto later = std::max<duration>(when - std::max(now, ended), duration{});
    for (std::size_t c = 0; c < decode_times::classes; ++c) {
      if (b.requests[c] == 0) continue;
      const double p = times_.still_there(c, elapsed, later, span_);
      sum.requests += p * b.requests[c];
      sum.context_tokens += p * static_cast<double>(b.context[c]);
    }
  }
  return sum;
}

void decode_survival::trim(time_point now) {
  const auto oldest = number_of(now) - kept;
  while (buckets_.size() > 1 && first_ < oldest) {
    // Whoever is still there counts with the oldest that is kept.
    for (std::size_t c = 0; c < decode_times::classes; ++c) {
      buckets_[1].requests[c] += buckets_[0].requests[c];
      buckets_[1].context[c] += buckets_[0].context[c];
    }
    buckets_.pop_front();
    ++first_;
  }
}

}  // namespace mooncaf
