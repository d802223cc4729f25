#include "runtime/sched/prefill_batch.hpp"

#include <algorithm>

namespace mooncaf {

bool prefill_batch::push(const prefill_entry& entry) {
  if (entry.start >= entry.prompt_tokens || !ids_.insert(entry.id).second) return false;
  waiting_.push_back(entry);
  waiting_tokens_ += entry.prompt_tokens - entry.start;
  return true;
}

bool prefill_batch::before(const prefill_entry& a, const prefill_entry& b, time_point now) const {
  const auto class_a = aged_class(a.priority, a.arrival, now, options_.aging);
  const auto class_b = aged_class(b.priority, b.arrival, now, options_.aging);
  if (class_a != class_b) return class_a < class_b;
  if (a.deadline != b.deadline) return a.deadline < b.deadline;
  if (a.arrival != b.arrival) return a.arrival < b.arrival;
  return a.id < b.id;
}

std::uint32_t prefill_batch::chunk_of(const prefill_entry& entry, std::uint32_t budget, bool first) const {
  const auto left = entry.prompt_tokens - entry.start;
  const auto tokens = std::min({left, options_.chunk_tokens, budget});
  if (tokens == left) return tokens;
  const auto over = (entry.start + tokens) % options_.block_tokens;
  if (over < tokens) return tokens - over;
  return first ? tokens : 0;
}

std::vector<prefill_chunk> prefill_batch::next(time_point now, std::uint32_t budget) {
  std::vector<prefill_chunk> chunks;
  // A heap, not a sort: a step takes a few of perhaps thousands.
  const auto after = [&](const prefill_entry& a, const prefill_entry& b) { return before(b, a, now); };
  std::ranges::make_heap(waiting_, after);
  auto rest = waiting_.end();
  while (budget > 0 && chunks.size() < options_.max_requests && rest != waiting_.begin()) {
    std::pop_heap(waiting_.begin(), rest, after);
    auto& entry = *--rest;
    const auto tokens = chunk_of(entry, budget, chunks.empty());
    if (tokens == 0) break;
    chunks.push_back({entry.id, entry.start, tokens});
    entry.start += tokens;
    budget -= tokens;
    waiting_tokens_ -= tokens;
  }
  std::erase_if(waiting_,
                [&](const prefill_entry& e) { return e.start == e.prompt_tokens && ids_.erase(e.id) != 0; });
  return chunks;
}

std::vector<prefill_chunk> prefill_batch::next_prompt(time_point now) {
  if (waiting_.empty()) return {};
  const auto first =
      std::ranges::min_element(waiting_, [&](const auto& a, const auto& b) { return before(a, b, now); });
  const prefill_chunk whole{first->id, first->start, first->prompt_tokens - first->start};
  cancel(whole.id);
  return {whole};
}

void prefill_batch::cancel(request_id id) {
  if (ids_.erase(id) == 0) return;
  const auto i = std::ranges::find(waiting_, id, &prefill_entry::id);
  waiting_tokens_ -= i->prompt_tokens - i->start;
  *i = waiting_.back();
  waiting_.pop_back();
}

}  // namespace mooncaf
