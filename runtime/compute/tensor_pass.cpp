#include "runtime/compute/tensor_pass.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "gpu/device_failure.hpp"
#include "runtime/model/model_config.hpp"

namespace mooncaf {

result<std::unique_ptr<tensor_pass>> tensor_pass::make(std::vector<std::unique_ptr<pass_stage>> ranks,
                                                       std::shared_ptr<group_exchange> exchange,
                                                       const kv_layout& layout, std::size_t vocab_size) {
  std::unique_ptr<tensor_pass> made{new tensor_pass(std::move(exchange), layout, vocab_size)};
  const auto of = static_cast<std::uint32_t>(ranks.size());
  for (std::uint32_t i = 0; i < of; ++i) {
    const auto& one = *ranks[i];
    const auto own = layout_of_share(layout, {i, of});
    if (one.part() != tensor_part{i, of, ranks.front()->part().whole_experts} ||
        one.layers() != ranks.front()->layers() || one.layout() != own)
      return fail(ec::invalid_argument, "rank " + std::to_string(i) + " of a tensor group of " +
                                            std::to_string(of) + " has KV of " + to_string(one.layout()) +
                                            "; the group has " + to_string(layout));
  }
  made->ranks_ = std::vector<rank>(of);
  for (std::uint32_t i = 0; i < of; ++i) made->ranks_[i].pass = std::move(ranks[i]);
  for (std::uint32_t i = 1; i < of; ++i)
    made->ranks_[i].thread = std::thread([group = made.get(), i] { group->serve(group->ranks_[i]); });
  return made;
}

tensor_pass::~tensor_pass() {
  {
    const std::lock_guard lock{mutex_};
    over_ = true;
  }
  changed_.notify_all();
  for (auto& r : ranks_)
    if (r.thread.joinable()) r.thread.join();
}

/// All ranks compute the same rows; what is asked of them is the first one's.
void tensor_pass::hand_out(rank& to, std::uint32_t index, const stage_work& work) const {
  const auto heads =
      tensor_part{index, static_cast<std::uint32_t>(ranks_.size())}.kv_heads(layout_.n_kv_heads);
  const auto offset = layout_.offset(0, static_cast<std::uint32_t>(heads.first), false, 0);
  to.items.assign(work.items.begin(), work.items.end());
  to.work = work;
  to.blocks.clear();
  std::size_t rows = 0;
  for (const auto& item : work.items) {
    for (auto* block : item.blocks) to.blocks.push_back(block + offset);
    rows += item.needs_logits() ? 1 : 0;
  }
  auto rest = std::span<std::byte* const>{to.blocks};
  for (auto& item : to.items) {
    item.blocks = rest.first(item.blocks.size());
    rest = rest.subspan(item.blocks.size());
    if (index == 0) continue;
    item.want_logits = item.needs_logits();
    item.choose = nullptr;
    item.chosen = nullptr;
    if (item.each_row) item.each_row = [](std::uint32_t, std::span<float>) {};
    if (item.each_hidden) item.each_hidden = [](std::uint32_t, std::span<const float>) {};
  }
  to.work.items = to.items;
  if (index == 0) return;
  if (!exchange_->far()) to.work.done = {};
  to.work.before = {};
  to.work.cancel = nullptr;
  to.to.resize(std::max(to.to.size(), work.to.size()));
  to.work.to = std::span{to.to}.first(work.to.size());
  to.logits.resize(std::max(to.logits.size(), rows * vocab_size_));
  to.work.logits = std::span{to.logits}.first(work.logits.empty() ? 0 : rows * vocab_size_);
}

void tensor_pass::serve(rank& self) {
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [&] { return self.busy || over_; });
    if (over_) return;
    lock.unlock();
    result<void> outcome;
    try {
      outcome = self.pass->run(self.work);
    } catch (const std::exception& e) {  // device_failure, bad_alloc
      outcome = fail(ec::unavailable, e.what());
      exchange_->abandon(e.what());
    }
    lock.lock();
    self.outcome = std::move(outcome);
    self.busy = false;
    changed_.notify_all();
  }
}

/// A rank elsewhere reads a prefix when it likes, so all of it is waited for before; and it is not called off.
result<void> tensor_pass::prepare(stage_work& work) {
  if (work.cancel != nullptr && work.cancel->load()) return fail(ec::cancelled, "before the pass");
  work.cancel = nullptr;
  for (auto layer = layers().first; work.before && layer < layers().end(); ++layer)
    if (auto there = work.before(layer); !there) return there;
  work.before = {};
  told_.assign(layers().count, 0);
  if (work.done)
    work.done = [this, done = std::move(work.done)](std::uint32_t layer) {
      const std::lock_guard lock{telling_};
      if (++told_[layer - layers().first] == ranks_.size()) done(layer);
    };
  return {};
}

result<void> tensor_pass::run(const stage_work& asked) {
  auto work = asked;
  if (exchange_->far())
    if (auto ready = prepare(work); !ready) return ready;
  const std::lock_guard turn{exchange_->passes};
  for (std::uint32_t i = 0; i < ranks_.size(); ++i) hand_out(ranks_[i], i, work);
  return run_all();
}

// A rank that fails sets the others free, and once all are out the exchange is good for the next pass.
result<void> tensor_pass::run_all() {
  {
    const std::lock_guard lock{mutex_};
    for (std::size_t i = 1; i < ranks_.size(); ++i) ranks_[i].busy = true;
  }
  changed_.notify_all();
  auto& first = ranks_.front();
  std::exception_ptr thrown;
  try {
    first.outcome = first.pass->run(first.work);
  } catch (...) {
    thrown = std::current_exception();
  }
  if (thrown) exchange_->abandon("the first rank of the group has failed");
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return std::ranges::none_of(ranks_, &rank::busy); });
  const result<void>* other = nullptr;
  for (std::size_t i = 1; i < ranks_.size(); ++i)
    if (!ranks_[i].outcome) other = &ranks_[i].outcome;
  if (thrown || !first.outcome || other != nullptr) exchange_->renew();
  if (thrown) std::rethrow_exception(thrown);
  if (first.outcome && other != nullptr) throw device_failure(other->error().detail);
  return first.outcome;
}

}  // namespace mooncaf
