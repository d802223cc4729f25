#include "gpu/host/vocab_ops.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace mooncaf {

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr std::size_t block = 256;  // logits summed as one step of the draw

/// Scratch of the thread: sized by the vocabulary, so one per request would cost more than the request.
struct scratch_space {
  std::vector<float> weights;
  std::vector<double> block_sums, bins[2];
  std::vector<candidate> candidates;
};
scratch_space& scratch() {
  thread_local scratch_space space;
  return space;
}

/// Largest value; minus infinity if there is none. NaN is skipped.
float largest(std::span<const float> v) noexcept {
  constexpr std::size_t lanes = 16;
  float best[lanes];
  std::fill(best, best + lanes, minus_infinity);
  std::size_t i = 0;
  for (; i + lanes <= v.size(); i += lanes)
    for (std::size_t j = 0; j < lanes; ++j) best[j] = v[i + j] > best[j] ? v[i + j] : best[j];
  for (; i < v.size(); ++i) best[0] = v[i] > best[0] ? v[i] : best[0];
  return *std::max_element(best, best + lanes);
}

/// weights[i] = e^(v[i] - top), or 0 where that is below e^-nats. A NaN becomes 0.
void exponentiate(std::span<const float> v, float top, float nats, std::span<float> weights) noexcept {
  for (std::size_t i = 0; i < v.size(); ++i) weights[i] = entry_weight(v[i] - top, nats);
}

/// Sum of one block in double, in eight interleaved lanes.
double sum_block(std::span<const float> v) noexcept {
  double lanes[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= v.size(); i += 8)
    for (std::size_t j = 0; j < 8; ++j) lanes[j] += static_cast<double>(v[i + j]);
  for (std::size_t j = 0; i < v.size(); ++i, ++j) lanes[j] += static_cast<double>(v[i]);
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/// Fills `sums` with the sum of every block and returns the total.
double sum_blocks(std::span<const float> v, std::vector<double>& sums) {
  sums.clear();
  double total = 0;
  for (std::size_t i = 0; i < v.size(); i += block) {
    sums.push_back(sum_block(v.subspan(i, std::min(block, v.size() - i))));
    total += sums.back();
  }
  return total;
}

/// Keeps `last` and all that come before it in candidate order; the rest gets weight 0.
void keep_until(std::span<float> weights, candidate last) noexcept {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float w = weights[i];
    const bool keep = w > last.value || (w == last.value && static_cast<std::int32_t>(i) <= last.id);
    weights[i] = keep ? w : 0.0f;
  }
}

/// Zeroes all but the `k` likeliest. `logits` decide, since different logits can share a weight.
void apply_top_k(std::span<const float> logits, std::span<float> weights, std::size_t k) {
  auto& best = scratch().candidates;
  select_best(logits, k, best);
  if (best.size() < k) return;
  const auto last = *std::max_element(best.begin(), best.end());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const bool keep =
        logits[i] > last.value || (logits[i] == last.value && static_cast<std::int32_t>(i) <= last.id);
    weights[i] = keep ? weights[i] : 0.0f;
  }
}

/// Weights are at most 1, so their bit patterns are below this many bins of an eighth of an octave each.
constexpr std::size_t weight_bins = (std::bit_cast<std::uint32_t>(1.0f) >> 20) + 1;
std::size_t bin_of(float weight) noexcept { return std::bit_cast<std::uint32_t>(weight) >> 20; }

/// Among `kept`, the last candidate of the smallest set of likeliest ones that weighs `needed`. Reorders
/// `kept`. Halves the range that holds the border: linear time where sorting would not be.
candidate border_of(std::vector<candidate>& kept, double needed) {
  auto low = kept.begin(), high = kept.end();
  while (high - low > 64) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high);
    double upper_half = 0;
    for (auto it = low; it != middle; ++it) upper_half += static_cast<double>(it->value);
    if (upper_half >= needed) {
      high = middle;
    } else {
      needed -= upper_half;
      low = middle;
    }
  }
  std::sort(low, high);
  for (double mass = static_cast<double>(low->value); mass < needed && low + 1 != high;)
    mass += static_cast<double>((++low)->value);
  return *low;
}

/// Zeroes all but the smallest set of likeliest tokens that holds the share `p` of the weight. A histogram
/// over the weights' own bit patterns finds the bin where the share is reached, so that only its tokens need
/// an order.
void apply_top_p(std::span<float> weights, double p) {
  auto& space = scratch();
  // Two histograms in turns: neighbours often share a bin, and adding to one twice in a row waits for memory.
  auto& even = space.bins[0];
  auto& odd = space.bins[1];
  even.assign(weight_bins, 0);
  odd.assign(weight_bins, 0);
  std::size_t i = 0;
  for (; i + 2 <= weights.size(); i += 2) {
    if (weights[i] + weights[i + 1] == 0) continue;  // nearly all, after top-k
    even[bin_of(weights[i])] += static_cast<double>(weights[i]);
    odd[bin_of(weights[i + 1])] += static_cast<double>(weights[i + 1]);
  }
  if (i < weights.size()) even[bin_of(weights[i])] += static_cast<double>(weights[i]);

  double total = 0;
  for (std::size_t bin = weight_bins; bin-- > 0;) total += even[bin] += odd[bin];
  double needed = p * total;
  std::size_t bin = weight_bins - 1;
  for (; bin > 0 && even[bin] < needed; --bin) needed -= even[bin];

  auto& kept = space.candidates;
  kept.clear();
  for (std::size_t id = 0; id < weights.size(); ++id)
    if (bin_of(weights[id]) == bin) kept.push_back({weights[id], static_cast<std::int32_t>(id)});
  // Rounding may ask for a little more than there is: then everything stays.
  if (!kept.empty()) keep_until(weights, border_of(kept, needed));
}

/// The token at share `u` of the total weight, walking ids upwards.
std::int32_t pick(std::span<const float> weights, double u) {
  auto& sums = scratch().block_sums;
  double target = u * sum_blocks(weights, sums);
  std::size_t at = 0;
  while (at + 1 < sums.size() && target >= sums[at]) target -= sums[at++];
  std::int32_t chosen = -1;
  const auto end = std::min(weights.size(), (at + 1) * block);
  for (std::size_t i = at * block; i < end; ++i) {
    if (weights[i] <= 0) continue;
    chosen = static_cast<std::int32_t>(i);
    target -= static_cast<double>(weights[i]);
    if (target < 0) return chosen;
  }
  // Rounding left the target at the very end, perhaps of an empty block: the last token with any weight.
  if (chosen >= 0) return chosen;
  for (std::size_t i = weights.size(); i-- > 0;)
    if (weights[i] > 0) return static_cast<std::int32_t>(i);
  return 0;
}

}  // namespace

void lower_others(std::span<float> logits, std::span<const std::uint64_t> kept, float most) noexcept {
  constexpr std::size_t lanes = 32;
  constexpr auto bits = [] {
    std::array<std::uint32_t, lanes> all{};
    for (std::size_t j = 0; j < lanes; ++j) all[j] = 1u << j;
    return all;
  }();
  for (std::size_t begin = 0; begin < logits.size(); begin += lanes) {
    const auto word = begin / 64 < kept.size() ? kept[begin / 64] : 0;
    const auto half = static_cast<std::uint32_t>(word >> (begin % 64));
    if (half == ~std::uint32_t{0}) continue;
    float* part = logits.data() + begin;
    const auto lower = [&](std::size_t count) {
      for (std::size_t j = 0; j < count; ++j) {
        const float low = part[j] < most ? part[j] : most;
        part[j] = (half & bits[j]) != 0 ? part[j] : low;
      }
    };
    if (begin + lanes <= logits.size()) lower(lanes);
    else lower(logits.size() - begin);
  }
}

std::int32_t argmax(std::span<const float> v) noexcept {
  const float best = largest(v);
  const auto at = std::find(v.begin(), v.end(), best);
  return at == v.end() ? 0 : static_cast<std::int32_t>(at - v.begin());
}

// A threshold that rises with every full buffer lets nearly all entries fail one comparison.
void select_best(std::span<const float> v, std::size_t k, std::vector<candidate>& out) {
  out.clear();
  if (k == 0) return;
  float threshold = minus_infinity;
  const std::size_t full = 2 * k + 64;
  const auto shrink = [&] {
    if (out.size() <= k) return;
    const auto kth = out.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(out.begin(), kth, out.end());
    threshold = kth->value;
    out.resize(k);
  };
  const auto scan = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (!(v[i] > threshold)) continue;
      out.push_back({v[i], static_cast<std::int32_t>(i)});
      if (out.size() == full) shrink();
    }
  };
  constexpr std::size_t lanes = 64;
  std::size_t i = 0;
  for (; i + lanes <= v.size(); i += lanes) {
    int above = 0;
    for (std::size_t j = 0; j < lanes; ++j) above |= v[i + j] > threshold ? 1 : 0;
    if (above != 0) scan(i, i + lanes);
  }
  scan(i, v.size());
  shrink();
}

logit_mass mass_of(std::span<const float> v) {
  auto& space = scratch();
  const float top = largest(v);
  if (!std::isfinite(top)) return {top, 0};
  space.weights.resize(v.size());
  exponentiate(v, top, all_nats, space.weights);
  return {top, sum_blocks(space.weights, space.block_sums)};
}

double log_sum_exp(float peak, double weights) noexcept {
  return static_cast<double>(peak) + (std::isfinite(peak) ? std::log(weights) : 0);
}

float nats_kept(float min_p) noexcept { return min_p > 0 ? std::min(all_nats, -std::log(min_p)) : all_nats; }

std::int32_t draw_token(std::span<float> logits, const draw_limits& limits, double u) {
  const float per_degree = 1 / limits.temperature;
  for (auto& logit : logits) logit *= per_degree;
  const float top = largest(logits);
  if (!std::isfinite(top)) return argmax(logits);
  auto& weights = scratch().weights;
  weights.resize(logits.size());
  exponentiate(logits, top, nats_kept(limits.min_p), weights);
  if (limits.top_k > 0 && static_cast<std::size_t>(limits.top_k) < logits.size())
    apply_top_k(logits, weights, static_cast<std::size_t>(limits.top_k));
  if (limits.top_p < 1.0f) apply_top_p(weights, static_cast<double>(limits.top_p));
  return pick(weights, u);
}

chosen_token choose_token(std::span<float> logits, const token_choice& how) {
  chosen_token out;
  thread_local std::vector<float> raw;
  if (how.describe) {
    raw.assign(logits.begin(), logits.end());
    const auto mass = mass_of(logits);
    out.peak = mass.peak;
    out.weights = mass.weights;
    auto& best = scratch().candidates;
    select_best(logits, how.top.size(), best);
    std::ranges::fill(std::ranges::copy(best, how.top.begin()).out, how.top.end(), candidate{0, -1});
  }
  for (const auto& edit : how.edits) {
    auto& logit = logits[static_cast<std::size_t>(edit.id)];
    logit = edited(logit, edit);
  }
  out.id = how.greedy ? argmax(logits) : draw_token(logits, how.limits, how.u);
  if (how.describe) out.logit = raw[static_cast<std::size_t>(out.id)];
  return out;
}

}  // namespace mooncaf
