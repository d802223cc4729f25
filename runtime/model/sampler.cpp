#include "runtime/model/sampler.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace mooncaf {

std::string_view to_string(finish_reason reason) noexcept {
  switch (reason) {
    case finish_reason::none:
      return "";
    case finish_reason::stop:
      return "stop";
    case finish_reason::length:
      return "length";
  }
  return "";
}

finish_reason finish_after(const sampling_params& params, std::span<const std::int32_t> eos_ids,
                           std::uint32_t output_count, std::int32_t id) noexcept {
  const auto among = [id](std::span<const std::int32_t> ids) {
    return std::ranges::find(ids, id) != ids.end();
  };
  if (output_count >= params.min_tokens) {
    if (!params.ignore_eos && among(eos_ids)) return finish_reason::stop;
    if (among(params.stop_token_ids)) return finish_reason::stop;
  }
  return output_count >= params.max_tokens ? finish_reason::length : finish_reason::none;
}

double uniform_draw(std::uint64_t seed, std::uint64_t position) noexcept {
  // splitmix64 of the seed starts a stream of its own; position picks from it.
  const auto mix = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
  };
  const auto stream = mix(seed + 0x9E3779B97F4A7C15ull);
  return static_cast<double>(mix(stream + (position + 1) * 0x9E3779B97F4A7C15ull) >> 11) * 0x1p-53;
}

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr float greedy_below = 1e-5f;  // temperatures under this are greedy, as in vLLM
// A token this many nats below the best one has less than 1e-26 of its probability.
constexpr float negligible_nats = 60;
constexpr std::size_t block = 256;  // logits summed as one step of the draw

struct candidate {
  float value;
  std::int32_t id;
  /// Likelier first, lower id first among equals.
  friend bool operator<(const candidate& a, const candidate& b) noexcept {
    return a.value != b.value ? a.value > b.value : a.id < b.id;
  }
};

/// Scratch of the thread: sized by the vocabulary, so one per request would cost more than the request.
struct scratch_space {
  std::vector<float> raw, weights;
  std::vector<double> block_sums;
  std::vector<candidate> candidates;
};
scratch_space& scratch() {
  thread_local scratch_space space;
  return space;
}

// The loops below are written for the vectoriser: fixed lanes, no branches. Lanes also fix the order of every
// sum, so a draw comes out the same on every host. No fused multiply-add for the same reason (see
// CMakeLists.txt).

/// e^x for x in [-negligible_nats, 0]; relative error below 3e-7.
/// 2^f on [-0.5, 0.5] is the Taylor polynomial of degree 6 of e^(f ln 2).
inline float exp_negative(float x) noexcept {
  constexpr float round = 12582912.0f;  // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
  const float scaled = x * 1.44269504f;
  const float shifted = scaled + round;
  const float f = (scaled - (shifted - round)) * 0.693147181f;
  float p = 1.0f / 720;
  p = p * f + 1.0f / 120;
  p = p * f + 1.0f / 24;
  p = p * f + 1.0f / 6;
  p = p * f + 0.5f;
  p = p * f + 1.0f;
  p = p * f + 1.0f;
  const auto exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + exponent);
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

/// Lowest id of the largest value; 0 if all are NaN or minus infinity.
std::int32_t argmax(std::span<const float> v) noexcept {
  const float best = largest(v);
  const auto at = std::find(v.begin(), v.end(), best);
  return at == v.end() ? 0 : static_cast<std::int32_t>(at - v.begin());
}

/// weights[i] = e^(v[i] - top), or 0 where that is below e^-nats. A NaN becomes 0.
void exponentiate(std::span<const float> v, float top, float nats, std::span<float> weights) noexcept {
  for (std::size_t i = 0; i < v.size(); ++i) {
    const float d = v[i] - top;
    const bool keep = d >= -nats;
    const float e = exp_negative(keep ? d : 0.0f);
    weights[i] = keep ? e : 0.0f;
  }
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

/// The `k` best entries of `v`, unordered; fewer if fewer are above minus infinity.
/// A threshold that rises with every full buffer lets nearly all entries fail one comparison.
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
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (!(v[i] > threshold)) continue;
    out.push_back({v[i], static_cast<std::int32_t>(i)});
    if (out.size() == full) shrink();
  }
  shrink();
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

/// Zeroes all but the smallest set of likeliest tokens that holds the share `p` of the weight.
void apply_top_p(std::span<float> weights, double p) {
  auto& space = scratch();
  const double total = sum_blocks(weights, space.block_sums);
  // Tokens lighter than this weigh less than (1 - p) · total together, so none of them is in the set.
  const auto light = static_cast<float>((1 - p) * total / static_cast<double>(weights.size()));
  auto& kept = space.candidates;
  kept.clear();
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (weights[i] >= light && weights[i] > 0) kept.push_back({weights[i], static_cast<std::int32_t>(i)});
  if (kept.empty()) return;

  // Halves the range that holds the border: linear time where sorting would not be.
  double needed = p * total;
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
  auto last = low;
  for (double mass = static_cast<double>(last->value); mass < needed && last + 1 != high;)
    mass += static_cast<double>((++last)->value);
  keep_until(weights, *last);
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

/// log Σ e^v, of the finite entries.
double log_sum_exp(std::span<const float> v) {
  auto& space = scratch();
  const float top = largest(v);
  if (!std::isfinite(top)) return top;
  space.weights.resize(v.size());
  exponentiate(v, top, negligible_nats, space.weights);
  return static_cast<double>(top) + std::log(sum_blocks(space.weights, space.block_sums));
}

}  // namespace

sampler::sampler(const sampling_params& params, std::span<const std::int32_t> prompt,
                 std::span<const std::int32_t> eos_ids, std::size_t vocab_size,
                 std::span<const std::int32_t> generated)
    : params_(params), masked_ids_(params.stop_token_ids), vocab_size_(vocab_size) {
  masked_ids_.insert(masked_ids_.end(), eos_ids.begin(), eos_ids.end());
  const auto outside = [vocab_size](std::int32_t id) {
    return id < 0 || static_cast<std::size_t>(id) >= vocab_size;
  };
  std::erase_if(masked_ids_, outside);
  std::erase_if(params_.logit_bias, [&](const auto& entry) { return outside(entry.first); });
  if (has_penalties()) {
    const bool prompt_counts = params_.repetition_penalty != 1.0f;
    const std::size_t expected =
        (prompt_counts ? prompt.size() : 0) + std::min<std::size_t>(params_.max_tokens, 1024);
    seen_.resize(std::bit_ceil(2 * std::min(expected, vocab_size) + 16));
    if (prompt_counts)
      for (const auto id : prompt)
        if (!outside(id)) slot_of(id).in_prompt = true;
  }
  for (const auto id : generated) accept(id);
}

bool sampler::has_penalties() const noexcept {
  return params_.repetition_penalty != 1.0f || params_.presence_penalty != 0.0f ||
         params_.frequency_penalty != 0.0f;
}

sampler::seen_token& sampler::slot_of(std::int32_t id) {
  if (2 * (seen_count_ + 1) > seen_.size()) grow_seen();
  const auto mask = seen_.size() - 1;
  auto at = static_cast<std::size_t>(static_cast<std::uint32_t>(id) * 0x9E3779B1u) & mask;
  while (seen_[at].id != id && seen_[at].id != -1) at = (at + 1) & mask;
  if (seen_[at].id == -1) {
    seen_[at].id = id;
    ++seen_count_;
  }
  return seen_[at];
}

void sampler::grow_seen() {
  auto old = std::exchange(seen_, std::vector<seen_token>(seen_.size() * 2));
  seen_count_ = 0;
  for (const auto& entry : old)
    if (entry.id != -1) slot_of(entry.id) = entry;
}

void sampler::accept(std::int32_t id) {
  ++position_;
  if (!seen_.empty() && id >= 0 && static_cast<std::size_t>(id) < vocab_size_) ++slot_of(id).output_count;
}

void sampler::process(std::span<float> logits) const {
  if (position_ < params_.min_tokens)
    for (const auto id : masked_ids_) logits[static_cast<std::size_t>(id)] = minus_infinity;
  for (const auto& [id, bias] : params_.logit_bias) logits[static_cast<std::size_t>(id)] += bias;
  for (const auto& entry : seen_) {
    if (entry.id == -1) continue;
    auto& logit = logits[static_cast<std::size_t>(entry.id)];
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    logit -= params_.frequency_penalty * static_cast<float>(entry.output_count);
    if (entry.output_count > 0) logit -= params_.presence_penalty;
  }
}

std::int32_t sampler::draw(std::span<float> logits) const {
  if (params_.temperature < greedy_below) return argmax(logits);
  const float per_degree = 1 / params_.temperature;
  for (auto& logit : logits) logit *= per_degree;
  const float top = largest(logits);
  if (!std::isfinite(top)) return argmax(logits);
  auto& weights = scratch().weights;
  weights.resize(logits.size());
  const float nats =
      params_.min_p > 0 ? std::min(negligible_nats, -std::log(params_.min_p)) : negligible_nats;
  exponentiate(logits, top, nats, weights);
  if (params_.top_k > 0 && static_cast<std::size_t>(params_.top_k) < logits.size())
    apply_top_k(logits, weights, static_cast<std::size_t>(params_.top_k));
  if (params_.top_p < 1.0f) apply_top_p(weights, static_cast<double>(params_.top_p));
  return pick(weights, uniform_draw(params_.seed, position_));
}

sampled_token sampler::next(std::span<float> logits) {
  logits = logits.first(std::min(logits.size(), vocab_size_));
  sampled_token token;
  if (params_.logprobs < 0) {
    process(logits);
    token.id = draw(logits);
    return token;
  }
  auto& space = scratch();
  space.raw.assign(logits.begin(), logits.end());
  const double normaliser = log_sum_exp(space.raw);
  const auto logprob = [normaliser](float logit) {
    return static_cast<float>(static_cast<double>(logit) - normaliser);
  };
  select_best(space.raw, std::min(static_cast<std::size_t>(params_.logprobs), space.raw.size()),
              space.candidates);
  std::sort(space.candidates.begin(), space.candidates.end());
  token.top.reserve(space.candidates.size());
  for (const auto& c : space.candidates) token.top.emplace_back(c.id, logprob(c.value));
  process(logits);
  token.id = draw(logits);
  token.logprob = logprob(space.raw[static_cast<std::size_t>(token.id)]);
  return token;
}

}  // namespace mooncaf
