#include "runtime/model/sampler.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "gpu/host/vocab_ops.hpp"

namespace mooncaf {

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
/// Logit of tokens that settings keep out. It is above that of tokens that a grammar excludes, so such a
/// token still comes where the grammar allows no other.
constexpr float kept_out = -1e30f;
constexpr float greedy_below = 1e-5f;  // temperatures under this are greedy, as in vLLM

/// Adds up the entries of each token, so that one is left.
void merge_biases(std::vector<std::pair<std::int32_t, float>>& biases) {
  std::ranges::stable_sort(biases, {}, &std::pair<std::int32_t, float>::first);
  std::size_t kept = 0;
  for (const auto& entry : biases) {
    if (kept != 0 && biases[kept - 1].first == entry.first) biases[kept - 1].second += entry.second;
    else biases[kept++] = entry;
  }
  biases.resize(kept);
}

/// The same token's edits as one, in order of ids; none has penalties yet.
void merge_edits(std::vector<logit_edit>& edits) {
  std::ranges::sort(edits, {}, &logit_edit::id);
  std::size_t kept = 0;
  for (const auto& e : edits) {
    if (kept == 0 || edits[kept - 1].id != e.id) {
      edits[kept++] = e;
      continue;
    }
    auto& all = edits[kept - 1];
    all.most = std::min(all.most, e.most);
    all.bias += e.bias;
  }
  edits.resize(kept);
}

}  // namespace

// Ids outside the vocabulary are dropped here, and biases of one token added up, so that `next` need not
// look.
sampler::sampler(const sampling_params& params, std::span<const std::int32_t> prompt,
                 std::span<const std::int32_t> eos_ids, std::size_t vocab_size,
                 std::span<const std::int32_t> generated, std::unique_ptr<token_constraint> constraint)
    : params_(params),
      masked_ids_(params.stop_token_ids),
      vocab_size_(vocab_size),
      constraint_(std::move(constraint)) {
  masked_ids_.insert(masked_ids_.end(), eos_ids.begin(), eos_ids.end());
  const auto outside = [vocab_size](std::int32_t id) {
    return id < 0 || static_cast<std::size_t>(id) >= vocab_size;
  };
  std::erase_if(masked_ids_, outside);
  std::erase_if(params_.logit_bias, [&](const auto& entry) { return outside(entry.first); });
  merge_biases(params_.logit_bias);
  std::erase_if(params_.bad_words, [&](const auto& word) { return word.empty() || outside(word.back()); });
  if (constraint_ && params_.ignore_eos) {
    for (const auto id : eos_ids)
      if (!outside(id)) eos_ids_.push_back(id);
  }
  if (!params_.allowed_token_ids.empty()) {
    allowed_.resize((vocab_size + 63) / 64);
    const auto allow = [&](std::int32_t id) {
      if (!outside(id)) allowed_[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (id % 64);
    };
    for (const auto id : params_.allowed_token_ids) allow(id);
    for (const auto id : eos_ids) allow(id);
  }
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
  if (constraint_) constraint_->accept(id);
  if (!params_.bad_words.empty()) {
    constexpr std::size_t longest = 256;
    tail_.push_back(id);
    if (tail_.size() > 2 * longest) tail_.erase(tail_.begin(), tail_.end() - longest);
  }
  if (!seen_.empty() && id >= 0 && static_cast<std::size_t>(id) < vocab_size_) ++slot_of(id).output_count;
}

/// Calls out(id) for single tokens that do not come as long as anything else may.
template <class Out>
void sampler::each_kept_out(const Out& out) const {
  if (position_ < params_.min_tokens)
    for (const auto id : masked_ids_) out(id);
  for (const auto id : eos_ids_) out(id);
  for (const auto& word : params_.bad_words) {
    const auto before = std::span{word}.first(word.size() - 1);
    if (before.size() <= tail_.size() && std::ranges::equal(before, std::span{tail_}.last(before.size())))
      out(word.back());
  }
}

void sampler::process(std::span<float> logits) const {
  if (constraint_) lower_others(logits, constraint_->allowed(), minus_infinity);
  each_kept_out([&](std::int32_t id) {
    auto& logit = logits[static_cast<std::size_t>(id)];
    logit = std::min(logit, kept_out);  // a token that the grammar excludes stays below
  });
  if (!allowed_.empty()) lower_others(logits, allowed_, kept_out);
  for (const auto& [id, bias] : params_.logit_bias) logits[static_cast<std::size_t>(id)] += bias;
  for (const auto& entry : seen_) {
    if (entry.id == -1) continue;
    auto& logit = logits[static_cast<std::size_t>(entry.id)];
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    logit -= params_.frequency_penalty * static_cast<float>(entry.output_count);
    if (entry.output_count > 0) logit -= params_.presence_penalty;
  }
}

draw_limits sampler::limits() const noexcept {
  return {params_.temperature, params_.min_p, params_.top_k, params_.top_p};
}

std::int32_t sampler::choose(std::span<float> logits) const {
  process(logits);
  if (params_.temperature < greedy_below) return argmax(logits);
  return draw_token(logits, limits(), uniform_draw(params_.seed, position_));
}

namespace {

/// @param best  in order
sampled_token with_logprobs(std::int32_t id, float logit, double normaliser,
                            std::span<const candidate> best) {
  const auto logprob = [normaliser](float value) {
    return static_cast<float>(static_cast<double>(value) - normaliser);
  };
  sampled_token token{id, logprob(logit), {}};
  token.top.reserve(best.size());
  for (const auto& c : best) token.top.emplace_back(c.id, logprob(c.value));
  return token;
}

}  // namespace

sampled_token describe_token(std::span<const float> logits, std::int32_t id, std::size_t count) {
  thread_local std::vector<candidate> best;  // sized by its largest use, so one per token would cost more
  const auto mass = mass_of(logits);
  select_best(logits, std::min(count, logits.size()), best);
  std::sort(best.begin(), best.end());
  return with_logprobs(id, logits[static_cast<std::size_t>(id)], log_sum_exp(mass.peak, mass.weights), best);
}

/// The edits of `process` to single tokens.
void sampler::list_edits() {
  edits_.clear();
  const auto out = [this](std::int32_t id) { edits_.push_back({.id = id, .most = kept_out}); };
  each_kept_out(out);
  for (const auto& [id, bias] : params_.logit_bias) edits_.push_back({.id = id, .bias = bias});
  merge_edits(edits_);
  // A long prompt has thousands of tokens, each once: sorting their entries would cost more than it saves.
  const auto few = edits_.size();
  for (const auto& entry : seen_) {
    if (entry.id == -1) continue;
    const auto at = std::ranges::lower_bound(std::span{edits_}.first(few), entry.id, {}, &logit_edit::id);
    auto index = static_cast<std::size_t>(at - std::span{edits_}.begin());
    if (index == few || edits_[index].id != entry.id) {
      index = edits_.size();
      edits_.push_back({.id = entry.id});
    }
    edits_[index].repetition = params_.repetition_penalty;
    edits_[index].frequency = params_.frequency_penalty * static_cast<float>(entry.output_count);
    edits_[index].presence = entry.output_count > 0 ? params_.presence_penalty : 0;
  }
}

token_choice* sampler::choice() {
  if (constraint_ || !allowed_.empty() || vocab_size_ > largest_vocabulary ||
      params_.logprobs > static_cast<std::int32_t>(most_alternatives))
    return nullptr;
  list_edits();
  top_.resize(static_cast<std::size_t>(std::max(params_.logprobs, 0)));
  choice_ = {};
  choice_.greedy = params_.temperature < greedy_below;
  choice_.limits = limits();
  choice_.u = uniform_draw(params_.seed, position_);
  choice_.edits = edits_;
  choice_.describe = params_.logprobs >= 0;
  choice_.top = top_;
  return &choice_;
}

sampled_token sampler::described(const chosen_token& chosen) const {
  if (!choice_.describe) return {chosen.id, 0, {}};
  auto best = top_;
  std::erase_if(best, [](const candidate& c) { return c.id < 0; });
  std::sort(best.begin(), best.end());
  return with_logprobs(chosen.id, chosen.logit, log_sum_exp(chosen.peak, chosen.weights), best);
}

sampled_token sampler::next(std::span<float> logits) {
  logits = logits.first(std::min(logits.size(), vocab_size_));
  if (params_.logprobs < 0) return {choose(logits), 0, {}};
  thread_local std::vector<float>
      raw;  // sized by the vocabulary: one per request would cost more than the request
  raw.assign(logits.begin(), logits.end());
  return describe_token(raw, choose(logits), static_cast<std::size_t>(params_.logprobs));
}

}  // namespace mooncaf
