#include <algorithm>

#include "runtime/sched/retry_rules.hpp"
#include "runtime/sim/simulation.hpp"

// Machines that die, and what becomes of the requests they had. As in the live cluster:
//
//   dies ──► noticed ──► returns           what it computed and held is gone at once; until somebody notices,
//    │         │            │              requests still go there and wait
//    │         │            └ joins like a new machine, empty
//    │         └ the conductor forgets it; its requests ask for a place again, prompt and tokens so far
//    └ KV from there never arrives; a prefix that was to come from there is computed

namespace mooncaf::sim {

namespace {

constexpr ticks ticks_of(duration d) noexcept { return d.count(); }

}  // namespace

void simulation::begin_failures(std::uint32_t number) {
  const auto& d = options_.disturbances[number];
  for (auto i = d.first; i <= std::min(d.last, count_of(d.role) - 1); ++i) {
    if (d.mtbf_s > 0) expect_failure(number, machine_of(d.role, i));
    else die(number, machine_of(d.role, i));
  }
}

/// Draws of one machine by one line: what happens to others changes nothing about them.
random_source& simulation::failure_draws(std::uint32_t number, std::uint32_t machine) {
  const std::uint64_t mixed = (std::uint64_t{number} + 1) << 32 | machine;
  return failures_.try_emplace({number, machine}, random_source{options_.seed ^ mixed}).first->second;
}

void simulation::expect_failure(std::uint32_t number, std::uint32_t machine) {
  const auto& d = options_.disturbances[number];
  if (d.mtbf_s == 0) return;
  const auto at = now_ + from_sec(failure_draws(number, machine).exponential(d.mtbf_s));
  if (at >= from_sec(d.at_s + d.for_s)) return;
  events_.push(at, event_kind::machine, machine,
               number << machine_event_bits | static_cast<std::uint32_t>(machine_event::dies));
}

void simulation::machine_event_of(std::uint32_t machine, std::uint32_t stamp) {
  const auto number = stamp >> machine_event_bits;
  switch (static_cast<machine_event>(stamp & ((1u << machine_event_bits) - 1))) {
    case machine_event::dies:
      return die(number, machine);
    case machine_event::noticed:
      return noticed(machine);
    case machine_event::returns:
      return returns(number, machine);
    case machine_event::serves:
      return serves(machine);
    case machine_event::drains:
      return look_at_leaving(machine);
  }
}

void simulation::die(std::uint32_t number, std::uint32_t machine) {
  const auto& d = options_.disturbances[number];
  auto& c = conditions_[machine];
  if (!c.computes()) return expect_failure(number, machine);  // nobody is there to die
  c.state = machine_state::dead;
  c.unseen = true;
  c.line = no_line;
  c.leaves = machine_leaves::not_at_all;
  c.died = now_;
  ++c.lives;
  crash(machine);
  const double down = d.mtbf_s > 0 ? failure_draws(number, machine).exponential(d.mttr_s) : d.for_s;
  const auto back = now_ + std::max<ticks>(from_sec(down), 1);
  out_.absences.push_back({role_of(machine), instance_of(machine), to_sec(now_), to_sec(back), true});
  const auto stamp = number << machine_event_bits;
  events_.push(back, event_kind::machine, machine,
               stamp | static_cast<std::uint32_t>(machine_event::returns));
  if (d.unseen_s == 0) return noticed(machine);
  if (now_ + from_sec(d.unseen_s) < back) {
    events_.push(now_ + from_sec(d.unseen_s), event_kind::machine, machine,
                 stamp | static_cast<std::uint32_t>(machine_event::noticed));
  }
}

/// What is gone at once.
void simulation::crash(std::uint32_t machine) {
  const auto i = instance_of(machine);
  auto& links = links_[machine];
  links.worked -= std::max<ticks>(links.sends - now_, 0);
  links.sends = links.receives = links.reads = now_;
  std::vector<torn_answer> torn;
  if (role_of(machine) == machine_role::prefill) prefills_[i].crash(now_);
  else if (role_of(machine) == machine_role::decode) torn = decodes_[i].crash(now_, requests_, out_.gap);
  else torn = coupled_[i].crash(now_, requests_, out_.gap);
  if (role_of(machine) != machine_role::decode) caches_[i].clear();
  for (auto& t : torn) {
    auto& past = past_of(t.slot);
    requests_[t.slot].decoded = t.tokens;
    past.last_token = t.last;
    past.gaps.insert(past.gaps.end(), t.gaps.begin(), t.gaps.end());
  }
  if (role_of(machine) == machine_role::decode) return;
  for (std::uint32_t slot = 0; slot < requests_.capacity(); ++slot) {
    auto& r = requests_[slot];
    if (!r.live || !r.placed) continue;
    if (r.source == machine + 1) unfetch(r);
    if (!is_coupled() && r.prefill == i && r.first_token > 0 && r.kv_sent > now_) r.stranded = true;
  }
}

/// The prefix that was to come from elsewhere is computed.
void simulation::unfetch(request_state_record& r) {
  r.source = 0;
  r.fetched_to = r.local_blocks;
}

bool simulation::is_lost_with(const request_state_record& r, std::uint32_t machine) const noexcept {
  if (!r.live || !r.placed) return false;
  if (is_coupled()) return r.prefill == machine;
  return decode_machine(r.decode) == machine || (r.prefill == machine && (r.first_token == 0 || r.stranded));
}

void simulation::noticed(std::uint32_t machine) {
  auto& c = conditions_[machine];
  if (!c.unseen) return;
  c.unseen = false;
  (void)conductor_.remove_node(node_id{machine + 1});  // we know whom it had
  for (std::uint32_t slot = 0; slot < requests_.capacity(); ++slot) {
    if (is_lost_with(requests_[slot], machine)) lose(slot);
  }
}

void simulation::returns(std::uint32_t number, std::uint32_t machine) {
  noticed(machine);
  conditions_[machine].state = machine_state::live;
  join(machine);
  expect_failure(number, machine);
}

simulation::past_attempts& simulation::past_of(std::uint32_t slot) {
  const auto [at, fresh] = past_.try_emplace(slot);
  if (fresh) at->second.placing_since = requests_[slot].arrival;
  return at->second;
}

/// A machine died with it: another attempt, with the tokens that the client has behind the prompt.
void simulation::lose(std::uint32_t slot) {
  auto& r = requests_[slot];
  auto& past = past_of(slot);
  ++out_.attempts_lost;
  const bool prefill_is_there = conditions_[r.prefill].computes();
  if (prefill_is_there && !is_coupled() && r.first_token == 0) prefills_[r.prefill].cancel(r.id);
  if (prefill_is_there) caches_[r.prefill].unpin(r.pins);
  r.pins.clear();
  conductor_.failed(r.id, clock());
  out_.lost_prefill_s += r.prefill_seconds - past.prefill_seconds;
  past.prefill_seconds = r.prefill_seconds;
  if (r.first_token > 0) {
    const auto tokens = r.decoded + 1;
    if (r.delivered == 0) past.first_token = r.first_token;
    if (r.decoded == 0) past.last_token = r.first_token;
    out_.output_tokens += r.decoded;
    r.delivered += tokens;
    r.prompt_tokens += tokens;
    r.output_tokens -= tokens;
  }
  r.first_token = r.joined = r.kv_sent = r.first_step = 0;
  r.stall_before = 0;
  r.cached_tokens = r.computed = r.decode_tokens = r.decoded = 0;
  r.local_blocks = r.disk_blocks = r.fetched_to = r.source = 0;
  r.placed = r.loading = r.stranded = false;
  past.placing_since = now_;
  if (++past.losses >= retry_rules::loss_limit) return give_up(slot);
  try_later(slot);
}

/// The answer goes on: what was between its tokens counts.
void simulation::resumes(std::uint32_t slot) {
  auto& past = past_.at(slot);
  const double pause = to_sec(now_ - past.last_token);
  past.gaps.emplace_back(pause, 1);
  past.last_token = now_;
  out_.gap.add(pause);
  out_.pause.add(pause);
}

void simulation::unplaced(std::uint32_t slot, const rejection& why) {
  auto& r = requests_[slot];
  if (r.delivered > 0 || now_ - past_of(slot).placing_since <= ticks_of(retry_rules::placing_limit))
    return try_later(slot);
  refuse(r, why);
  close(slot);
}

void simulation::try_later(std::uint32_t slot) {
  const auto attempt = ++past_of(slot).attempt;
  if (attempt >= retry_rules::placing_attempt_limit) return give_up(slot);
  requests_.renew(slot);
  events_.push(now_ + ticks_of(retry_rules::back_off(attempt)), event_kind::retry, slot,
               request_table::stamp_of(requests_[slot].id));
}

void simulation::give_up(std::uint32_t slot) {
  const auto& r = requests_[slot];
  ++counts(requests_[slot]).failed;
  const bool was_late =
      r.delivered > 0 && to_sec(past_.at(slot).first_token - r.arrival) > options_.ttft_slo_s;
  missed_ += !was_late;
  close(slot);
}

/// What a scheduler is told that an answer may get to.
std::uint32_t simulation::max_tokens_of(const request_state_record& r) const noexcept {
  return options_.max_tokens - std::min(options_.max_tokens - 1, r.delivered);
}

std::span<const token_gaps::value_type> simulation::gaps_before(std::uint32_t slot) const {
  if (past_.empty()) return {};
  const auto at = past_.find(slot);
  return at == past_.end() ? std::span<const token_gaps::value_type>{} : at->second.gaps;
}

/// TBT of an answer that ends with the token prefill gave.
double simulation::tbt_of_before(std::uint32_t slot) const {
  return step_history{}.tbt(0, 0, 0, options_.tbt, gaps_before(slot));
}

}  // namespace mooncaf::sim
