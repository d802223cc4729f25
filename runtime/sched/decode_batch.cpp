#include "runtime/sched/decode_batch.hpp"

#include <algorithm>
#include <string>

#include "runtime/sched/admission.hpp"

namespace mooncaf {

bool decode_batch::push(const decode_entry& entry) {
  if (options_.max_context_tokens > 0 && longest(entry) > options_.max_context_tokens) return false;
  if (std::ranges::find(running_, entry.id) != running_.end()) return false;
  if (std::ranges::find(waiting_, entry.id, &decode_entry::id) != waiting_.end()) return false;
  waiting_.push_back(entry);
  return true;
}

bool decode_batch::before(const decode_entry& a, const decode_entry& b, time_point now) const {
  const auto class_a = aged_class(a.priority, a.arrival, now, options_.aging);
  const auto class_b = aged_class(b.priority, b.arrival, now, options_.aging);
  if (class_a != class_b) return class_a < class_b;
  if (a.deadline != b.deadline) return a.deadline < b.deadline;
  if (a.arrival != b.arrival) return a.arrival < b.arrival;
  return a.id < b.id;
}

std::vector<request_id> decode_batch::admit(time_point now) {
  std::vector<request_id> moved;
  while (!waiting_.empty() && running_.size() < options_.max_batch) {
    const auto next =
        std::ranges::min_element(waiting_, [&](const auto& a, const auto& b) { return before(a, b, now); });
    const auto wanted = longest(*next);
    if (options_.max_context_tokens > 0 && reserved_tokens_ + wanted > options_.max_context_tokens) break;
    reserved_tokens_ += wanted;
    running_.push_back(next->id);
    running_entries_.push_back(*next);
    moved.push_back(next->id);
    waiting_.erase(next);
  }
  return moved;
}

void decode_batch::cancel(request_id id) {
  if (const auto i = std::ranges::find(running_, id); i != running_.end()) {
    const auto entry = running_entries_.begin() + (i - running_.begin());
    reserved_tokens_ -= longest(*entry);
    running_entries_.erase(entry);
    running_.erase(i);
    return;
  }
  std::erase_if(waiting_, [&](const auto& e) { return e.id == id; });
}

decode_question decode_batch::question(const decode_entry& entry, duration tbt_slo) const {
  decode_question q;
  for (const auto* list : {&running_entries_, &waiting_}) {
    for (const auto& e : *list) q.context_tokens += e.context_tokens;
  }
  q.batch = std::min<std::uint64_t>(running_.size() + waiting_.size(), options_.max_batch - 1);
  q.prompt_tokens = entry.context_tokens;
  q.waiting = static_cast<std::uint32_t>(waiting_.size());
  q.memory_full = options_.max_context_tokens > 0 && !waiting_.empty() &&
                  reserved_tokens_ + longest(waiting_.front()) > options_.max_context_tokens;
  q.priority = entry.priority;
  q.tbt_slo = tbt_slo;
  return q;
}

std::optional<rejection> check_decode(const decode_question& q, const decode_model& model) {
  // One may wait for memory: it joins as soon as another leaves. With more the wait cannot be foretold.
  if (q.memory_full) {
    return rejection{{ec::out_of_space,
                      "decode's memory is full and " + std::to_string(q.waiting) + " requests wait for it"},
                     std::chrono::seconds(1),
                     reject_stage::at_decode};
  }
  return admit_at_decode(model, q.batch, q.context_tokens, q.prompt_tokens, q.tbt_slo, q.priority);
}

}  // namespace mooncaf
