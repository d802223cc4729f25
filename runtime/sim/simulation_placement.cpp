#include <algorithm>

#include "runtime/sim/simulation.hpp"

// From a request's arrival to its place; and copies of what many requests need.

namespace mooncaf::sim {

void simulation::arrive() {
  copy_hot_blocks();
  const auto slot = requests_.open(number_++);
  auto& r = requests_[slot];
  out_.peak_live = std::max<std::uint64_t>(out_.peak_live, requests_.live());
  r.arrival = now_;
  r.session = source_->session_given();
  r.prompt_tokens = upcoming_.input_tokens;
  r.output_tokens = upcoming_.output_tokens;
  if (options_.high_share > 0 || options_.low_share > 0) {
    const double draw = priority_random_.uniform();
    r.priority = draw < options_.high_share ? 0 : draw < options_.high_share + options_.low_share ? 2 : 1;
  }
  r.keys.swap(upcoming_keys_);
  ++counts(r).arrived;
  ask(slot);
}

void simulation::ask(std::uint32_t slot) {
  const auto& r = requests_[slot];
  schedule_request question;
  question.id = r.id;
  question.keys = r.keys;
  question.prompt_tokens = r.prompt_tokens;
  question.max_tokens = max_tokens_of(r);
  question.priority = r.priority;
  question.arrival = time_point{duration{r.arrival}};
  question.resumed = r.delivered > 0;
  queue_.submit(question, clock(), decided_);
  act_on(decided_);
}

void simulation::act_on(std::vector<decision>& decided) {
  for (auto& d : decided) {
    const auto slot = request_table::slot_of(d.id);
    if (d.outcome) {
      place(slot, *d.outcome);
    } else if (d.outcome.error().cause.code == ec::unavailable) {
      unplaced(slot, d.outcome.error());
    } else {
      refuse(requests_[slot], d.outcome.error());
      close(slot);
    }
  }
  decided.clear();
}

void simulation::place(std::uint32_t slot, const placement& where) {
  auto& r = requests_[slot];
  r.placed = true;
  r.prefill = static_cast<std::uint32_t>(where.prefill.value - 1);
  r.decode = static_cast<std::uint32_t>(where.decode.value - 1 - options_.prefill);
  load(slot, where);
}

void simulation::refuse(request_state_record& r, const rejection& why) {
  auto& c = counts(r);
  ++missed_;
  switch (why.stage) {
    case reject_stage::placement:
    case reject_stage::queue:
      ++c.rejected_placement;
      break;
    case reject_stage::prefill:
      ++c.rejected_prefill;
      break;
    case reject_stage::decode:
      ++c.rejected_decode;
      break;
    case reject_stage::memory:
      ++c.rejected_memory;
      break;
    case reject_stage::at_decode:
      ++(why.cause.code == ec::out_of_space ? c.rejected_memory : c.rejected_at_decode);
      out_.wasted_prefill_s += r.prefill_seconds;
      break;
  }
}

/// As a conductor does twice a second; here when a request comes, since nothing becomes hot otherwise.
void simulation::copy_hot_blocks() {
  constexpr ticks interval = from_sec(0.5);
  if (options_.hot_copy_share == 0 || now_ - copies_planned_ < interval) return;
  copies_planned_ = now_;
  for (auto& copy : conductor_.copy_hot_blocks(clock())) {
    const auto source = static_cast<std::uint32_t>(copy.source.value - 1);
    const auto target = static_cast<std::uint32_t>(copy.target.value - 1);
    const double bytes = static_cast<double>(options_.hardware.block_bytes() * copy.blocks.size());
    const auto there = transfer(source, target, bytes, now_);
    out_.hot_copies += copy.blocks.size();
    out_.bytes_fetched += bytes;
    copies_.emplace(copies_made_, copy_under_way{std::move(copy), now_});
    events_.push(there, event_kind::copy_arrived, copies_made_++);
  }
}

void simulation::copy_arrived(std::uint32_t number) {
  const auto [copy, begun] = std::move(copies_.extract(number).mapped());
  const auto &from = conditions_[copy.source.value - 1], &to = conditions_[copy.target.value - 1];
  if (!to.computes() || from.died >= begun || to.died >= begun) return;
  caches_[copy.target.value - 1].copy(copy.blocks, static_cast<std::uint64_t>(now_));
}

}  // namespace mooncaf::sim
