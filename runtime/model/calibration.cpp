#include "runtime/model/calibration.hpp"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/base/units.hpp"

namespace mooncaf {

namespace {

/// Passes of a slow device end here: the rest is learnt from requests.
constexpr auto time_limit = std::chrono::seconds(2);
/// Longer passes cost what several of these cost.
constexpr std::uint32_t longest_pass = 512;
/// An estimator needs that many to tell a pass's own cost from a token's.
constexpr std::size_t least_samples = 4;

/// Blocks of its own for the passes: nothing that is served is touched.
class scratch_blocks {
 public:
  scratch_blocks(const kv_layout& layout, std::size_t tokens)
      : memory_(layout.blocks_for(tokens) * layout.block_bytes()) {
    for (std::size_t at = 0; at < memory_.size(); at += layout.block_bytes())
      blocks_.push_back(memory_.data() + at);
  }
  std::span<std::byte* const> blocks() const noexcept { return blocks_; }

 private:
  std::vector<std::byte> memory_;
  std::vector<std::byte*> blocks_;
};

/// Passes as a worker has them: it asks a thread that computes and sleeps until the answer wakes it, so that
/// the wake-ups are part of what a pass takes.
class timed_passes {
 public:
  explicit timed_passes(model_runner& runner) : runner_(runner) {}
  ~timed_passes() {
    {
      const std::lock_guard lock{mutex_};
      over_ = true;
    }
    changed_.notify_all();
  }

  result<duration> take(std::span<const batch_item> items, std::span<float> logits) {
    const auto began = clock_type::now();
    std::unique_lock lock{mutex_};
    items_ = items, logits_ = logits, asked_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !asked_; });
    if (!outcome_) return fail(outcome_.error());
    return clock_type::now() - began;
  }

 private:
  void compute() {
    std::unique_lock lock{mutex_};
    for (;;) {
      changed_.wait(lock, [&] { return asked_ || over_; });
      if (over_) return;
      lock.unlock();
      auto outcome = runner_.forward(items_, logits_);
      lock.lock();
      outcome_ = std::move(outcome);
      asked_ = false;
      changed_.notify_all();
    }
  }

  model_runner& runner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::span<const batch_item> items_;
  std::span<float> logits_;
  bool asked_ = false, over_ = false;
  result<void> outcome_;
  std::jthread thread_{[this] { compute(); }};  // last: it uses the others
};

}  // namespace

result<std::vector<timing_sample>> calibrate_prefill(model_runner& runner, std::uint32_t budget_tokens) {
  const auto& config = runner.model_in_use().config();
  const auto context = std::min<std::uint32_t>(config.context_length, 4 * budget_tokens);
  const auto longest = std::min({context, budget_tokens, longest_pass});
  const auto first = std::min(longest, 32u);
  const scratch_blocks scratch{runner.options().layout, context};
  const std::vector<std::int32_t> tokens(longest, 1);
  std::vector<float> logits(config.vocab_size);
  std::vector<timing_sample> samples;
  timed_passes passes{runner};
  // The first pass touches every weight for the first time and is not representative.
  const auto began = clock_type::now();
  for (const std::uint32_t count : {first, first, 64u, 128u, 256u, longest}) {
    if (count > longest) continue;
    if (samples.size() >= 2 + least_samples && clock_type::now() - began > time_limit) break;
    for (const std::uint32_t cached : {0u, context - longest}) {
      const batch_item item{std::span{tokens}.first(count), cached, scratch.blocks(), true};
      const auto took = passes.take({&item, 1}, logits);
      if (!took) return fail(took.error());
      samples.push_back({count, cached, took->count()});
    }
  }
  samples.erase(samples.begin(), samples.begin() + 2);
  return samples;
}

result<std::vector<timing_sample>> calibrate_decode(model_runner& runner, std::uint32_t max_batch) {
  const auto& config = runner.model_in_use().config();
  const auto context = std::min<std::uint32_t>(config.context_length, 2048);
  const scratch_blocks scratch{runner.options().layout, context};
  const std::int32_t token = 1;
  std::vector<float> logits(static_cast<std::size_t>(config.vocab_size) * max_batch);
  std::vector<timing_sample> samples;
  timed_passes passes{runner};
  const auto began = clock_type::now();
  for (const std::uint32_t batch : {1u, 1u, 2u, 4u, 8u, max_batch}) {
    if (batch > max_batch) continue;
    if (samples.size() >= 2 + least_samples && clock_type::now() - began > time_limit) break;
    for (const std::uint32_t position : {context / 8, context - 1}) {
      // All sequences share the blocks and differ in the row that they write, as far as there are rows: right
      // for timing, and nothing else.
      std::vector<batch_item> items;
      for (std::uint32_t i = 0; i < batch; ++i) {
        items.push_back({{&token, 1}, position - i % (position + 1), scratch.blocks(), true});
      }
      const auto took = passes.take(items, std::span{logits}.first(std::size_t{batch} * config.vocab_size));
      if (!took) return fail(took.error());
      samples.push_back({batch, static_cast<std::int64_t>(batch) * (position + 1), took->count()});
    }
  }
  samples.erase(samples.begin(), samples.begin() + 2);
  return samples;
}

}  // namespace mooncaf
