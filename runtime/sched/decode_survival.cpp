#include "runtime/sched/decode_survival.hpp"

#include <algorithm>
#include <cmath>

namespace mooncaf {

namespace {

constexpr double shortest = 0.05;  // seconds
constexpr double per_octave = 5;
constexpr double fading = 0.999;  // share that earlier observations keep with each further one

}  // namespace

/// Bucket b counts decode times from edges()[b] to edges()[b + 1] seconds.
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

void decode_times::observe(std::size_t c, duration took, std::uint32_t tokens) noexcept {
  observe(of_[c], took, tokens);
  observe(any_, took, tokens);
}

void decode_times::observe(history& of, duration took, std::uint32_t tokens) noexcept {
  for (auto& n : of.seen) n *= fading;
  of.total = of.total * fading + 1;
  of.seconds = of.seconds * fading + to_seconds(took);
  of.seen[bucket_of(to_seconds(took))] += 1;
  if (tokens > 0) {
    const double n = tokens;
    of.answers = of.answers * fading + 1;
    of.tokens = of.tokens * fading + n;
    of.tokens_squared = of.tokens_squared * fading + n * n;
  }
  if (++of.undrawn >= redraw_every || (of.total >= enough && of.beyond[0] == 0)) draw(of);
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

const decode_times::history* decode_times::known(std::size_t c) const noexcept {
  for (const auto* h : {&of_[c], &any_}) {
    if (h->total >= enough && h->beyond[0] > 0) return h;
  }
  return nullptr;
}

double decode_times::still_there(std::size_t c, duration elapsed, duration later,
                                 duration otherwise) const noexcept {
  const auto* mine = known(c);
  if (mine == nullptr) return elapsed + later < otherwise ? 1 : 0;
  const auto now = static_cast<std::size_t>(elapsed.count() / point_ns);
  const auto then = static_cast<std::size_t>((elapsed + later).count() / point_ns);
  // Longer than (almost) anything seen: it may go on for as long again.
  if (now >= points || mine->beyond[now] < 1e-3) {
    return then == 0 ? 1 : static_cast<double>(now) / static_cast<double>(then);
  }
  return then < points ? mine->beyond[then] / mine->beyond[now] : 0;
}

double decode_times::mean_seconds(std::size_t c, duration otherwise) const noexcept {
  const auto* mine = known(c);
  return mine == nullptr ? to_seconds(otherwise) : mine->seconds / mine->total;
}

double decode_times::likely_tokens(std::size_t c, double otherwise) const noexcept {
  for (const auto* h : {&of_[c], &any_}) {
    if (h->answers < enough) continue;
    const double mean = h->tokens / h->answers;
    return mean + std::sqrt(std::max(h->tokens_squared / h->answers - mean * mean, 0.0));
  }
  return otherwise;
}

void decode_survival::add(crowd& to, const key& k, const decoding& d) {
  auto& b = to.at(k);
  ++b.requests;
  b.context += d.context_tokens;
  b.memory += d.memory_tokens;
}

void decode_survival::remove(crowd& from, const key& k, const decoding& d) {
  auto* b = from.find(k);
  if (b == nullptr) return;
  if (--b->requests == 0) return from.erase(k);
  b->context -= d.context_tokens;
  b->memory -= d.memory_tokens;
}

void decode_survival::add(time_point prefill_end, const decoding& d) {
  const key k{number_of(prefill_end), d.answer};
  ++under_way_;
  add(all_, k, d);
  if (by_slot_.size() <= d.slot) by_slot_.resize(std::size_t{d.slot} + 1);
  add(by_slot_[d.slot], k, d);
}

void decode_survival::remove(time_point prefill_end, const decoding& d) {
  const key k{number_of(prefill_end), d.answer};
  --under_way_;
  remove(all_, k, d);
  if (d.slot < by_slot_.size()) remove(by_slot_[d.slot], k, d);
}

void decode_survival::observe(time_point began, std::size_t answer, time_point now,
                              std::uint32_t tokens) noexcept {
  ++ended_;
  times_.observe(answer, std::max(now - began, duration{}), tokens);
}

std::uint64_t decode_survival::likely_tokens(std::size_t answer, std::uint32_t max_tokens) const noexcept {
  // Most requests ask for far more than they get: until something is known, an ordinary answer is expected.
  constexpr double ordinary = 256;
  return static_cast<std::uint64_t>(std::min<double>(times_.likely_tokens(answer, ordinary), max_tokens));
}

decode_survival::load decode_survival::sum(const crowd& of, time_point when, time_point now) const {
  load sum;
  const auto last = number_of(when);
  const bool biased = ended_ >= 16 && ended_ < under_way_;
  for (const auto& [k, b] : of) {
    const auto& [number, c] = k;
    if (number > last) break;
    const time_point ended{duration{number * width + width / 2}};
    const auto elapsed = std::max<duration>(now - ended, duration{});
    const auto later = std::max<duration>(when - std::max(now, ended), duration{});
    const double p = biased ? 1 : times_.still_there(c, elapsed, later, span_);
    const auto n = static_cast<double>(b.requests), memory = static_cast<double>(b.memory);
    sum.requests += p * n;
    sum.context_tokens += p * static_cast<double>(b.context);
    sum.memory_tokens += p * memory;
    sum.memory_variance += p * (1 - p) * memory * memory / n;
  }
  return sum;
}

}  // namespace mooncaf
