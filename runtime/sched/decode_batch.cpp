#include "runtime/sched/decode_batch.hpp"

#include <algorithm>
#include <tuple>

namespace mooncaf {

bool decode_batch::push(const decode_entry& entry) {
  if (std::ranges::find(running_, entry.id) != running_.end()) return false;
  if (std::ranges::find(waiting_, entry.id, &decode_entry::id) != waiting_.end()) return false;
  waiting_.push_back(entry);
  return true;
}

std::vector<request_id> decode_batch::admit(time_point now) {
  std::vector<request_id> moved;
  if (waiting_.empty() || running_.size() >= options_.max_batch) return moved;
  const auto rank = [&](const decode_entry& e) {
    return std::make_tuple(e.priority - (now - e.arrival) / options_.aging, e.arrival, e.id);
  };
  std::ranges::stable_sort(waiting_, [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  const auto count = std::min<std::size_t>(waiting_.size(), options_.max_batch - running_.size());
  for (std::size_t i = 0; i < count; ++i) moved.push_back(waiting_[i].id);
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
  running_.insert(running_.end(), moved.begin(), moved.end());
  return moved;
}

void decode_batch::cancel(request_id id) {
  std::erase(running_, id);
  std::erase_if(waiting_, [&](const auto& e) { return e.id == id; });
}

}  // namespace mooncaf
