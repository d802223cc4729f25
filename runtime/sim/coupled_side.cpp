#include "runtime/sim/coupled_side.hpp"

namespace mooncaf::sim {

coupled_side::coupled_side(world& w, fleet& machines, node_memories& memories, attempts& requests)
    : w_(w), machines_(machines), memories_(memories), requests_(requests) {
  if (!w.layout.coupled()) return;
  all_.reserve(w.layout.prefill());
  for (std::uint32_t i = 0; i < w.layout.prefill(); ++i) {
    auto& node = all_.emplace_back(w.prefill_costs, w.options, memories.of(i).tree());
    if (node.tier()) memories.attach(i, *node.tier());
  }
}

void coupled_side::expect(std::uint32_t node, const std::optional<next_turn>& turn) {
  if (turn) w_.time.add(turn->at, event_kind::coupled_turn, node, turn->stamp);
}

void coupled_side::push(std::uint32_t slot) {
  auto& r = w_.requests[slot];
  auto& c = all_[r.prefill];
  decode_entry entry;
  entry.id = r.id;
  entry.priority = r.priority;
  entry.arrival = time_point{duration{r.arrival}};
  entry.context_tokens = r.prompt_tokens;
  entry.max_tokens = requests_.max_tokens_of(r);
  if (!c.push(entry, r.output_tokens)) {
    memories_.of(r.prefill).unpin(r.pins);
    memories_.let_go(r);
    return requests_.refuse_placed(
        slot, {{ec::out_of_space, "longer than an instance's memory"}, {}, reject_stage::at_decode});
  }
  expect(r.prefill, c.wake(w_.time.now()));
}

const std::vector<std::uint32_t>& coupled_side::turn(std::uint32_t node) {
  auto& c = all_[node];
  news_.first_tokens.clear();
  news_.finished.clear();
  c.turn(w_.time.now(), w_.requests, w_.out.gap, news_);
  const auto& o = w_.options;
  for (const auto slot : news_.finished) {
    const auto& r = w_.requests[slot];
    w_.out.output_tokens += r.decode_tokens;
    requests_.finish(slot, c.tbt(r, o.tbt, requests_.gaps_before(slot), o.tbt_is_fine_s()));
  }
  return news_.first_tokens;
}

bool coupled_side::decode(std::uint32_t slot) {
  return all_[w_.requests[slot].prefill].decode(slot, w_.requests);
}

void coupled_side::leave(const request_state_record& r) { all_[r.prefill].leave(r); }

void coupled_side::go_on(std::uint32_t node) {
  memories_.tend_device(node);
  expect(node, all_[node].next(w_.time.now(), machines_.slower(node), w_.noise, w_.requests));
}

void coupled_side::change_pace(std::uint32_t node) {
  if (all_[node].running() > 0) expect(node, all_[node].wake(w_.time.now()));
}

}  // namespace mooncaf::sim
