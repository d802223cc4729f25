#include "runtime/sim/hit_ratio.hpp"

#include "runtime/sim/trace_keys.hpp"

namespace mooncaf::sim {

void hit_ratio_pool::request(const workload_record& r) {
  ++now_;
  bool whole = true;
  for (const auto id : r.hash_ids) {
    const bool here = pool_.find(key_of(id)) != prefix_tree::none;
    hits_ += here;
    whole = whole && here;
    prefix_hits_ += whole;
  }
  blocks_ += r.hash_ids.size();
  block_key parent{};
  for (std::uint32_t depth = 0; depth < r.hash_ids.size(); ++depth) {
    const auto key = key_of(r.hash_ids[depth]);
    if (pool_.find(key) == prefix_tree::none && capacity_ > 0) {
      while (pool_.size() >= capacity_) {
        const auto victim = pool_.victim();
        if (victim == prefix_tree::none) return;
        pool_.erase(victim);
      }
    }
    pool_.insert(key, parent, depth, now_);
    parent = key;
  }
}

}  // namespace mooncaf::sim
