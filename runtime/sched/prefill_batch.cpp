#include "runtime/sched/prefill_batch.hpp"

#include <algorithm>
#include <tuple>

namespace mooncaf {

bool prefill_batch::push(const prefill_entry& entry) {
  if (entry.start >= entry.prompt_tokens) return false;
  if (std::ranges::any_of(waiting_, [&](const auto& e) { return e.id == entry.id; })) return false;
  waiting_.push_back(entry);
  waiting_tokens_ += entry.prompt_tokens - entry.start;
  return true;
}

std::int64_t prefill_batch::urgency_class(const prefill_entry& entry, time_point now) const {
  return entry.priority - (now - entry.arrival) / options_.aging;
}

std::vector<prefill_chunk> prefill_batch::next(time_point now) {
  std::vector<prefill_chunk> chunks;
  if (waiting_.empty()) return chunks;
  std::ranges::stable_sort(waiting_, [&](const prefill_entry& a, const prefill_entry& b) {
    return std::make_tuple(urgency_class(a, now), a.deadline, a.arrival, a.id) <
           std::make_tuple(urgency_class(b, now), b.deadline, b.arrival, b.id);
  });
  auto budget = options_.max_batch_tokens;
  for (auto& entry : waiting_) {
    if (budget == 0) break;
    auto tokens = std::min({entry.prompt_tokens - entry.start, options_.chunk_tokens, budget});
    const bool last = entry.start + tokens == entry.prompt_tokens;
    // A chunk that ends inside a block would send rows of it instead of the whole layer.
    if (const auto over = (entry.start + tokens) % options_.block_tokens; !last && over < tokens) tokens -= over;
    chunks.push_back({entry.id, entry.start, tokens});
    entry.start += tokens;
    budget -= tokens;
    waiting_tokens_ -= tokens;
  }
  std::erase_if(waiting_, [](const auto& e) { return e.start == e.prompt_tokens; });
  return chunks;
}

void prefill_batch::cancel(request_id id) {
  const auto i = std::ranges::find(waiting_, id, &prefill_entry::id);
  if (i == waiting_.end()) return;
  waiting_tokens_ -= i->prompt_tokens - i->start;
  waiting_.erase(i);
}

}  // namespace mooncaf
