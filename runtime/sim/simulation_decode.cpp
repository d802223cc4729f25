#include <algorithm>
#include <optional>

#include "runtime/sim/simulation.hpp"

// From the decode batch to the end of a request.

namespace mooncaf::sim {

void simulation::kv_arrived(std::uint32_t slot) {
  auto& r = requests_[slot];
  auto& d = decodes_[r.decode];
  if (r.stranded || !conditions_[decode_machine(r.decode)].computes()) return;  // until that is noticed
  decode_entry entry;
  entry.id = r.id;
  entry.priority = r.priority;
  entry.arrival = time_point{duration{r.arrival}};
  entry.deadline = time_point{duration{r.first_token}} + from_seconds(options_.tbt_slo_s);
  entry.context_tokens = r.prompt_tokens;
  entry.max_tokens = max_tokens_of(r);
  std::optional<rejection> refused;
  if (checks_at_decode(options_.admission)) {
    refused = d.check(entry, decode_estimate_, from_seconds(options_.tbt_slo_s));
  }
  if (!refused && !d.push(entry, r.decode_tokens)) {
    refused =
        rejection{{ec::out_of_space, "longer than a decode instance's memory"}, {}, reject_stage::at_decode};
  }
  if (refused) {
    refuse(r, *refused);
    conductor_.failed(r.id, clock());
    return close(slot);
  }
  if (const auto turn = d.wake(now_)) events_.push(turn->at, event_kind::decode_turn, r.decode, turn->stamp);
}

void simulation::decode_turn(std::uint32_t instance, std::uint32_t stamp) {
  auto& d = decodes_[instance];
  if (!d.is_current(stamp)) return;
  finished_.clear();
  const bool slowed = instance < prefills_.size() && prefills_[instance].computing();
  const double slowdown =
      conditions_[decode_machine(instance)].slower * (slowed ? decode_costs_.decode_beside_prefill() : 1);
  const auto next = d.turn(now_, slowdown, random_, requests_, out_.gap, finished_);
  for (const auto slot : finished_) {
    const auto& r = requests_[slot];
    const double wait = to_sec(r.joined - r.first_token);
    out_.handover.add(wait);
    out_.output_tokens += r.decode_tokens;
    finish(slot, d.tbt(r, wait, options_.tbt, gaps_before(slot), options_.tbt_is_fine_s()));
  }
  if (next) events_.push(next->at, event_kind::decode_turn, instance, next->stamp);
  const auto load = d.load();
  if (next) decode_estimate_.observe(load.step.batch, load.step.context_tokens, load.step.took);
  report(static_cast<std::uint32_t>(decode_id(instance).value), load);
}

void simulation::finish(std::uint32_t slot, double tbt) {
  auto& r = requests_[slot];
  auto& c = counts(r);
  ++c.completed;
  const auto first_token = r.delivered > 0 ? past_.at(slot).first_token : r.first_token;
  const bool late = to_sec(first_token - r.arrival) > options_.ttft_slo_s;
  const bool slow = tbt > options_.tbt_slo_s;
  c.ttft_missed += late;
  c.tbt_missed += slow;
  c.slo_met += !late && !slow;
  if (late || slow) out_.missed_prefill_s += r.prefill_seconds;
  missed_ += slow && !late;  // a late one was counted at its first token
  if (r.output_tokens + r.delivered > 1) out_.tbt.add(tbt);
  conductor_.finished(r.id, clock(), r.output_tokens);
  close(slot);
}

void simulation::close(std::uint32_t slot) {
  const auto session = requests_[slot].session;
  requests_.close(slot);
  if (!past_.empty()) past_.erase(slot);
  if (!source_->follows_answers()) return;
  source_->answered(session, to_sec(now_));
  expect_arrival();
}

void simulation::report(std::uint32_t worker, const instance_load& load) {
  auto& last = reported_[worker - 1];
  if (now_ - last < from_sec(options_.report_interval_s)) return;
  last = now_;
  conductor_.report(worker_id{worker}, load, clock());
}

}  // namespace mooncaf::sim
