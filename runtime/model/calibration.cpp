#include "runtime/model/calibration.hpp"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "gpu/device_failure.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

namespace {

/// Passes of a slow device end here: the rest is learnt from requests.
constexpr auto time_limit = std::chrono::seconds(2);
constexpr int rounds = 3;
/// A longer pass costs as much as several of these.
constexpr std::uint32_t longest_pass = 512;
/// An estimator needs that many to tell a pass's own cost from a token's.
constexpr std::size_t least_samples = 4;

/// Blocks for the passes: nothing that is served is touched.
class scratch_blocks {
 public:
  /// @param memory  to be used; empty: its own.
  scratch_blocks(const kv_layout& layout, std::size_t tokens, std::span<std::byte> memory)
      : memory_(memory.empty() ? layout.pieces().bytes_for(layout.blocks_for(tokens)) : 0) {
    auto* const base = memory.empty() ? memory_.data() : memory.data();
    for (std::uint32_t b = 0; b < layout.blocks_for(tokens); ++b)
      blocks_.push_back(base + layout.pieces().offset(b));
  }
  std::span<std::byte* const> blocks() const noexcept { return blocks_; }

 private:
  std::vector<std::byte> memory_;
  std::vector<std::byte*> blocks_;
};

/// Of a context, the tokens whose KV fits the memory.
std::uint32_t that_fits(std::uint32_t tokens, const kv_layout& layout, std::span<std::byte> memory) {
  if (memory.empty()) return tokens;
  const auto room = memory.size() / layout.block_bytes() * layout.block_tokens;
  return static_cast<std::uint32_t>(std::min<std::size_t>(tokens, room));
}

/// Passes as a worker runs them: a thread of its own computes and the worker sleeps until it is woken, so
/// that the measured times contain the wake-ups.
class timed_passes {
 public:
  explicit timed_passes(forward_pass& runner) : runner_(runner) {}
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
      auto outcome = pass();
      lock.lock();
      outcome_ = std::move(outcome);
      asked_ = false;
      changed_.notify_all();
    }
  }

  /// Catches what the pass throws, as the thread has no caller to catch it.
  result<void> pass() {
    try {
      return runner_.forward(items_, logits_);
    } catch (const device_failure& f) {
      return fail(ec::unavailable, std::string{"device: "} + f.what());
    }
  }

  forward_pass& runner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::span<const batch_item> items_;
  std::span<float> logits_;
  bool asked_ = false, over_ = false;
  result<void> outcome_;
  std::jthread thread_{[this] { compute(); }};  // last: it uses the others
};

}  // namespace

result<std::vector<timing_sample>> best_of_rounds(const std::vector<pass_shape>& shapes,
                                                  const std::function<result<duration>(std::size_t)>& pass,
                                                  const std::function<time_point()>& now) {
  std::vector<timing_sample> samples;
  const auto until = now() + time_limit;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (samples.size() >= least_samples && now() > until) return samples;
      const auto took = pass(i);
      if (!took) return fail(took.error());
      if (round == 0) samples.push_back({shapes[i][0], shapes[i][1], took->count()});
      else samples[i][2] = std::min(samples[i][2], static_cast<std::int64_t>(took->count()));
    }
  }
  return samples;
}

result<std::vector<timing_sample>> calibrate_prefill(forward_pass& runner, std::uint32_t context_tokens,
                                                     std::uint32_t budget_tokens, std::span<std::byte> memory,
                                                     std::vector<timing_sample> known) {
  const auto context = that_fits(std::min(context_tokens, 4 * budget_tokens), runner.layout(), memory);
  const auto longest = std::min({context, budget_tokens, longest_pass});
  const scratch_blocks scratch{runner.layout(), context, memory};
  const std::vector<std::int32_t> tokens(longest, 1);
  std::vector<float> logits(runner.vocab_size());
  timed_passes passes{runner};
  std::vector<pass_shape> shapes;
  for (const std::uint32_t count : {std::min(longest, 32u), 64u, 128u, 256u, longest}) {
    if (count > longest) continue;
    for (const std::uint32_t cached : {0u, context - longest}) shapes.push_back({count, cached});
  }
  const auto pass = [&](std::size_t i) {
    const batch_item item{std::span{tokens}.first(static_cast<std::size_t>(shapes[i][0])),
                          static_cast<std::uint32_t>(shapes[i][1]),
                          scratch.blocks(),
                          true,
                          {},
                          0,
                          1};
    return passes.take({&item, 1}, logits);
  };
  // The first pass touches every weight for the first time and is not representative.
  for (const std::size_t first : {0, 1}) {
    if (const auto took = pass(first); !took) return fail(took.error());
  }
  if (!known.empty()) return known;
  return best_of_rounds(shapes, pass, clock_type::now);
}

// Batches and contexts vary apart, so that an estimator can tell the price of a sequence from that of its
// context.
result<std::vector<timing_sample>> calibrate_decode(forward_pass& runner, std::uint32_t context_tokens,
                                                    std::uint32_t max_batch, std::span<std::byte> memory,
                                                    std::vector<timing_sample> known) {
  const auto context = that_fits(std::min<std::uint32_t>(context_tokens, 2048), runner.layout(), memory);
  const scratch_blocks scratch{runner.layout(), context, memory};
  const std::int32_t token = 1;
  std::vector<float> logits(static_cast<std::size_t>(runner.vocab_size()) * max_batch);
  timed_passes passes{runner};
  std::vector<pass_shape> shapes;
  for (const std::uint32_t batch : {1u, 2u, 4u, 8u, max_batch}) {
    if (batch > max_batch) continue;
    for (const std::uint32_t position : {context / 8, context - 1})
      shapes.push_back({batch, std::int64_t{batch} * (position + 1)});
  }
  const auto pass = [&](std::size_t i) {
    const auto batch = static_cast<std::uint32_t>(shapes[i][0]);
    const auto position = static_cast<std::uint32_t>(shapes[i][1] / batch - 1);
    // All sequences share the blocks and differ in the row that they write, as far as there are rows: right
    // for timing, and nothing else.
    std::vector<batch_item> items;
    for (std::uint32_t k = 0; k < batch; ++k) {
      items.push_back(
          {{&token, 1}, position - k % (position + 1), scratch.blocks(), true, {}, 0, k + std::uint64_t{1}});
    }
    return passes.take(items, std::span{logits}.first(std::size_t{batch} * runner.vocab_size()));
  };
  for (const std::size_t first : {0, 1}) {
    if (const auto took = pass(first); !took) return fail(took.error());
  }
  if (!known.empty()) return known;
  return best_of_rounds(shapes, pass, clock_type::now);
}

}  // namespace mooncaf
