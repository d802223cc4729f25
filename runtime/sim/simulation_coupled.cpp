#include "runtime/sim/simulation.hpp"

// The coupled baseline: instances that do both.

namespace mooncaf::sim {

void simulation::enter_coupled(std::uint32_t slot) {
  auto& r = requests_[slot];
  auto& c = coupled_[r.prefill];
  decode_entry entry;
  entry.id = r.id;
  entry.priority = r.priority;
  entry.arrival = time_point{duration{r.arrival}};
  entry.context_tokens = r.prompt_tokens;
  entry.max_tokens = max_tokens_of(r);
  if (!c.push(entry, r.output_tokens)) {
    refuse(r, {{ec::out_of_space, "longer than an instance's memory"}, {}, reject_stage::at_decode});
    caches_[r.prefill].unpin(r.pins);
    conductor_.failed(r.id, clock());
    return close(slot);
  }
  if (const auto turn = c.wake(now_))
    events_.push(turn->at, event_kind::coupled_turn, r.prefill, turn->stamp);
}

void simulation::coupled_turn(std::uint32_t instance, std::uint32_t stamp) {
  auto& c = coupled_[instance];
  if (!c.is_current(stamp)) return;
  news_.first_tokens.clear();
  news_.finished.clear();
  c.turn(now_, requests_, out_.gap, news_);
  for (const auto slot : news_.finished) {
    const auto& r = requests_[slot];
    out_.output_tokens += r.decode_tokens;
    finish(slot, c.tbt(r, options_.tbt, gaps_before(slot), options_.tbt_is_fine_s()));
  }
  for (const auto slot : news_.first_tokens) {
    if (requests_[slot].output_tokens <= 1) c.leave(requests_[slot]);
    first_token(slot);
  }
  if (const auto next = c.next(now_, conditions_[instance].slower, random_, requests_)) {
    events_.push(next->at, event_kind::coupled_turn, instance, next->stamp);
  }
  if (!on_the_way_[instance].empty() && idle(instance)) stop_loading(instance);
  report(static_cast<std::uint32_t>(decode_id(instance).value), c.load());
}

}  // namespace mooncaf::sim
