#include "runtime/compute/compute_step.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

namespace mooncaf {

compute_step::compute_step(std::shared_ptr<engine> machine, std::vector<step_item> items)
    : machine_(std::move(machine)), items_(std::move(items)) {}

/// Masks are made in a thread beside the pass: both take milliseconds, and the sampler needs a mask only
/// after the pass.
void compute_step::run() {
  const auto began = clock_type::now();
  std::vector<batch_item> batch;
  batch.reserve(items_.size());
  std::size_t rows = 0;
  auto& runner = *machine_->runner;
  for (auto& item : items_) {
    batch.push_back({item.tokens, item.start, item.blocks, item.sample != nullptr, scorer(item), item.reused,
                     item.id.owner(), item.keys, pooler(item), item.adapter});
    auto& last = batch.back();
    if (item.sample && runner.chooses()) last.choose = item.sample->choice();
    if (last.choose != nullptr) {
      last.chosen = &item.chosen;
      last.want_logits = false;
    }
    item.checksums.resize(filled_blocks(item));
    if (runner.checks()) last.checksums = item.checksums;
    item.written_from = item.start;
    last.may_stay = item.may_stay;
    last.arrival = item.arrival.get();
    if (item.stream && item.stream->reads_device()) last.reader = item.stream.get();
    last.written_from = &item.written_from;
    rows += last.want_logits ? 1 : 0;
  }
  const std::size_t vocab = runner.vocab_size();
  auto memory = machine_->logits.lend(rows * vocab);
  const auto logits = memory.all();
  auto masks = make_masks();
  outcome_ = forward(batch, logits);
  if (masks.valid()) masks.wait();
  if (!outcome_) {
    for (auto& item : items_) item.checksums.clear();
  } else {
    std::size_t row = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      auto& item = items_[i];
      if (batch[i].want_logits) item.token = item.sample->next(logits.subspan(row++ * vocab, vocab));
      else if (item.sample) item.token = item.sample->described(item.chosen);
      finish_item(item);
    }
  }
  elapsed_ = clock_type::now() - began;
}

result<void> compute_step::forward(std::span<const batch_item> batch, std::span<float> logits) {
  // A lone cancelled sequence ends its pass early; in a batch the others go on.
  const std::atomic<bool>* cancel = items_.size() == 1 ? items_.front().cancelled.get() : nullptr;
  layer_done_fn leave;
  if (std::ranges::any_of(items_, [](const step_item& i) { return i.stream != nullptr; }))
    leave = [this](std::uint32_t layer) {
      for (auto& item : items_) {
        if (!item.stream) continue;
        // The part of the prefix that the device alone had came to memory with it.
        if (item.written_from < item.start)
          item.stream->layer_ready(layer, item.written_from, item.start - item.written_from);
        item.stream->layer_ready(layer, item.start, item.tokens.size());
      }
    };
  try {
    return machine_->runner->forward(batch, logits, leave, cancel, waiter());
  } catch (const device_failure& f) {
    failure_ = f;
    return fail(ec::unavailable, std::string{"device: "} + f.what());
  }
}

/// How many blocks the item's tokens complete.
std::size_t compute_step::filled_blocks(const step_item& item) const {
  const auto block_tokens = machine_->runner->layout().block_tokens;
  return (item.start + item.tokens.size()) / block_tokens - item.start / block_tokens;
}

/// Null if every prefix is there.
before_layer_fn compute_step::waiter() {
  if (std::ranges::none_of(items_, [](const step_item& i) { return i.load != nullptr; })) return {};
  return [this](std::uint32_t layer) -> result<void> {
    for (auto& item : items_) {
      if (item.load && !item.load->wait(layer, item.patience))
        return fail(ec::timed_out, "layer " + std::to_string(layer) + " of the prefix did not come");
    }
    return {};
  };
}

std::future<void> compute_step::make_masks() {
  std::vector<sampler*> missing;
  for (auto& item : items_) {
    if (item.sample && item.sample->has_mask_to_make()) missing.push_back(item.sample.get());
  }
  if (missing.empty()) return {};
  const auto work = [missing = std::move(missing)] {
    for (auto* sample : missing) sample->prepare();
  };
  try {
    return std::async(std::launch::async, work);
  } catch (const std::system_error&) {
    return {};  // no thread is to be had: they are made when they are needed
  }
}

/// Null if no log-probabilities of tokens of the prompt are wanted.
row_logits_fn compute_step::scorer(step_item& item) {
  if (item.targets.empty()) return {};
  return [&item](std::uint32_t row, std::span<float> logits) {
    if (row < item.targets.size()) item.scores.push_back(describe_token(logits, item.targets[row], item.top));
  };
}

/// Null if no hidden states are wanted.
row_hidden_fn compute_step::pooler(step_item& item) {
  if (item.pooling == pooling_kind::none) return {};
  return [&item](std::uint32_t, std::span<const float> values) {
    const bool adds = item.pooling == pooling_kind::mean && !item.pooled.empty();
    item.pooled.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      item.pooled[i] = (adds ? item.pooled[i] : 0.0) + static_cast<double>(values[i]);
  };
}

void compute_step::finish_item(step_item& item) {
  if (item.token) item.sample->accept(item.token->id);
  check_blocks(item);
}

/// Checksums of the blocks that the step wrote to memory, as far as the device has not made them.
void compute_step::check_blocks(step_item& item) {
  const auto& runner = *machine_->runner;
  const auto& layout = runner.layout();
  const auto end = item.start + static_cast<std::uint32_t>(item.tokens.size());
  item.first_block = item.written_from / layout.block_tokens;
  if (item.written_from == end) return item.checksums.clear();
  if (runner.checks() && item.written_from == item.start) return;
  item.checksums.resize(end / layout.block_tokens - item.first_block);
  for (std::size_t i = 0; i < item.checksums.size(); ++i)
    item.checksums[i] = checksum64(item.blocks[item.first_block + i], layout.pieces());
}

}  // namespace mooncaf
