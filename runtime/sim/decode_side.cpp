#include "runtime/sim/decode_side.hpp"

#include <optional>

namespace mooncaf::sim {

namespace {

decode_model told(const simulation_options& o) {
  auto samples = decode_samples(o.decode_profile());
  for (auto& s : samples) s.seconds *= o.decode_calibration;
  return decode_model{samples};
}

}  // namespace

decode_side::decode_side(world& w, fleet& machines, attempts& requests)
    : w_(w), machines_(machines), requests_(requests), believed_(w.layout.decode(), told(w.options)) {
  const auto& o = w.options;
  all_.reserve(w.layout.decode());
  for (std::uint32_t i = 0; i < w.layout.decode(); ++i)
    all_.emplace_back(w.decode_costs, decode_options_of(o), tier_of(o.decode_profile()), o.jitter);
}

void decode_side::expect(std::uint32_t instance, const std::optional<next_turn>& turn) {
  if (turn) w_.time.add(turn->at, event_kind::decode_turn, instance, turn->stamp);
}

void decode_side::arrived(std::uint32_t slot, bool beside_prefill) {
  const auto& r = w_.requests[slot];
  // KV is dropped if its sender or receiver died; its loss is noticed later.
  if (r.stranded || !machines_.computes(w_.layout.decode_machine(r.decode))) return;
  auto& d = all_[r.decode];
  const auto tbt_slo = from_seconds(w_.options.tbt_slo_s);
  decode_entry entry;
  entry.id = r.id;
  entry.priority = r.priority;
  entry.arrival = time_point{duration{r.arrival}};
  entry.deadline = w_.time.clock() + tbt_slo;
  entry.context_tokens = r.prompt_tokens;
  entry.max_tokens = requests_.max_tokens_of(r);
  std::optional<rejection> refused;
  if (r.check_at_decode) {
    refused = w_.decisions.run(
        journal::check_join{r.id, w_.time.clock(), d.question(entry, tbt_slo), believed_[r.decode].state()});
  }
  if (!refused && !d.push(entry, r.decode_tokens)) {
    refused =
        rejection{{ec::out_of_space, "longer than a decode instance's memory"}, {}, reject_stage::at_decode};
  }
  if (refused) return requests_.refuse_placed(slot, *refused);
  const auto next = d.wake(w_.time.now());
  // An idle instance begins at once, with this request alone.
  if (next && next->at == w_.time.now()) return turn(r.decode, next->stamp, beside_prefill);
  expect(r.decode, next);
}

void decode_side::turn(std::uint32_t instance, std::uint32_t stamp, bool beside_prefill) {
  auto& d = all_[instance];
  if (!d.is_current(stamp)) return;
  finished_.clear();
  const double slowdown = machines_.slower(w_.layout.decode_machine(instance)) *
                          (beside_prefill ? w_.decode_costs.decode_beside_prefill() : 1);
  const auto before = d.latest().number;
  const auto next = d.turn(w_.time.now(), slowdown, w_.noise, w_.requests, w_.out.gap, finished_);
  if (const auto& step = d.latest(); step.number > before)
    believed_[instance].observe(step.batch, step.context_tokens, step.took);
  const auto& o = w_.options;
  for (const auto slot : finished_) {
    const auto& r = w_.requests[slot];
    const double wait = to_sec(r.joined - r.first_token);
    w_.out.handover.add(wait);
    w_.out.output_tokens += r.decode_tokens;
    requests_.finish(slot, d.tbt(r, wait, o.tbt, requests_.gaps_before(slot), o.tbt_is_fine_s()));
  }
  expect(instance, next);
}

void decode_side::change_pace(std::uint32_t instance) {
  if (all_[instance].running() > 0) expect(instance, all_[instance].cut(w_.time.now()));
}

void decode_side::neighbour_changed(std::uint32_t instance) {
  if (w_.decode_costs.decode_beside_prefill() != 1 && instance < all_.size()) change_pace(instance);
}

}  // namespace mooncaf::sim
