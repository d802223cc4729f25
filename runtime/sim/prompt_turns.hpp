#pragma once
// Prompts that come to a modelled instance at once and begin alike, as the worker there treats them.

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/sched/prefix_turns.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// On a coupled node blocks can be found once all of their prompt is computed, not chunk by chunk as in a worker. It
/// computes many prompts at once, so that they would wait for long: nobody does there.
class prompt_turns {
 public:
  /// @param w  outlives the turns.
  explicit prompt_turns(const world& w)
      : w_(w), all_(w.layout.prefill(), prefix_turns::of_blocks(w.options.hardware.block_tokens)) {}

  /// A request has its place. @returns whether it waits; `take_ready` names it then.
  bool comes(std::uint32_t slot, const placement& where) {
    const auto& r = w_.requests[slot];
    if (w_.layout.coupled()) return false;
    const auto keys = w_.reusable_keys(r);
    const auto due = time_point{duration{r.due}};
    const bool waits = all_[r.prefill].comes(r.id.value, {{keys.begin(), keys.end()}, r.priority, due});
    if (waits) waiting_[r.id.value] = where;
    return waits;
  }
  /// So many leading blocks of its prompt are in the instance's memory.
  void there(const request_state_record& r, std::uint32_t blocks) {
    all_[r.prefill].there(r.id.value, blocks);
    collect(r.prefill);
  }
  /// It waits for blocks, or no longer.
  void loads(const request_state_record& r, bool now) {
    all_[r.prefill].loads(r.id.value, now);
    collect(r.prefill);
  }
  /// Its prompt is computed, or given up.
  void ends(const request_state_record& r) {
    waiting_.erase(r.id.value);
    all_[r.prefill].ends(r.id.value);
    collect(r.prefill);
  }
  struct turn {
    std::uint32_t slot = 0;
    placement where;
  };
  /// Requests whose wait is over, each once.
  std::vector<turn> take_ready() {
    std::vector<turn> out;
    if (ready_.empty()) return out;
    for (const auto owner : std::exchange(ready_, {})) {
      auto found = waiting_.extract(owner);
      if (!found.empty())
        out.push_back({request_table::slot_of(request_id{owner}), std::move(found.mapped())});
    }
    return out;
  }

 private:
  void collect(std::uint32_t instance) {
    for (const auto owner : all_[instance].take_ready()) ready_.push_back(owner);
  }

  const world& w_;
  std::vector<prefix_turns> all_;  // by prefill instance
  std::unordered_map<std::uint64_t, placement> waiting_;
  std::vector<std::uint64_t> ready_;
};

}  // namespace mooncaf::sim
