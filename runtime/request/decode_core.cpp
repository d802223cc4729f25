#include "runtime/request/decode_core.hpp"

#include <algorithm>
#include <string>

namespace mooncaf {

using namespace decode_action;

decode_core::decode_core(node_id self, decode_core_options options, decode_model steps)
    : options_(std::move(options)),
      attempts_(self, options_.block_tokens, options_.max_attempts),
      batch_(options_.batch),
      steps_(steps),
      decisions_(options_.journal) {}

// ---- the prompt ----

void decode_core::take(const work_order& job, time_point now) {
  auto& a = answers_[job.id.owner()];
  a.gateway = job.gateway_node;
  a.entry.id = request_id{job.id.owner()};
  a.entry.priority = job.priority;
  a.entry.arrival = now - duration{job.age_ns};
  a.entry.context_tokens = static_cast<std::uint32_t>(job.tokens.size());
  a.entry.max_tokens = job.sampling.max_tokens;
  a.tbt_slo = duration{job.tbt_slo_ns};
  // An answer that the client has tokens of is not cut off.
  a.checked = job.placement.check_at_decode && job.tokens.size() == job.prompt_tokens;
  a.produced = static_cast<std::uint32_t>(job.tokens.size() - job.prompt_tokens);
  a.sequence = std::make_shared<decode_sequence>(job, options_.block_tokens);
  attempts_.take(job, options_.reaches(job.placement.prefill_node));
  settle(now);
}

void decode_core::turn_away(const attempt_id& id, error why) {
  attempt_failed message;
  message.id = id;
  message.cause = std::move(why);
  message.retriable = false;
  actions_.emplace_back(std::move(message));
  actions_.emplace_back(forget{id.owner()});
}

void decode_core::pinned(std::uint64_t owner, std::uint32_t turn, const pinned_slots& held, time_point now) {
  attempts_.pinned(owner, turn, held);
  settle(now);
}

void decode_core::reserved(std::uint64_t owner, std::span<const slot_index> slots, time_point now) {
  const auto* a = attempts_.find(owner);
  if (a == nullptr) return;
  if (!a->growing) {
    attempts_.reserved(owner, slots, options_.fences_of(a->prefill));
  } else {
    attempts_.grown(owner, slots);
  }
  settle(now);
}

void decode_core::refused(std::uint64_t owner, const error& why, time_point now) {
  const auto* a = attempts_.find(owner);
  if (a == nullptr) return;
  if (a->growing) not_grown(owner, why);
  else attempts_.refused(owner, why);
  settle(now);
}

void decode_core::prefill_finished(const prefill_done& message, time_point now) {
  attempts_.prefill_finished(message, now);
  settle(now);
}

void decode_core::landed(std::uint64_t owner, bool complete, time_point now) {
  attempts_.landed(owner, complete);
  settle(now);
}

void decode_core::settle(time_point now) {
  pass_on(now);
  step(now);
  pass_on(now);
}

void decode_core::pass_on(time_point now) {
  for (auto todo = attempts_.take_actions(); !todo.empty(); todo = attempts_.take_actions()) {
    for (auto& action : todo) std::visit([&](auto& order) { pass(order, now); }, action);
  }
}

void decode_core::pass(receive& order, time_point) {
  take_room(order.owner, order.have_blocks);
  actions_.emplace_back(order);
  ask_ahead(order.owner);
}

void decode_core::pass(withdraw& order, time_point) {
  batch_.cancel(request_id{order.owner});
  actions_.emplace_back(order);
}

void decode_core::pass(forget& order, time_point) {
  const auto found = answers_.find(order.owner);
  if (found != answers_.end() && found->second.running) {
    const auto& a = found->second;
    decisions_.run(journal::answer_ended{request_id{order.owner}, a.produced, a.began - a.joined,
                                         a.latest - a.began, a.longest});
  }
  answers_.erase(order.owner);
  actions_.emplace_back(order);
}

// ---- onto the device ----

void decode_core::take_room(std::uint64_t owner, std::uint32_t have_blocks) {
  auto& a = answers_.at(owner);
  if (a.on_device || !fits_on_device(a)) return;
  a.on_device = true;
  const auto slots = slots_of(owner);
  actions_.emplace_back(make_room{owner, have_blocks, {slots.begin(), slots.end()}});
}

/// Prompts are not brought to the device at the cost of running answers: blocks that the answers need would
/// leave the device, and come back with each step.
bool decode_core::fits_on_device(const answer& newcomer) const {
  if (options_.device_blocks == 0) return false;
  const auto blocks_for = [&](std::uint64_t tokens) {
    return (tokens + options_.block_tokens - 1) / options_.block_tokens;
  };
  auto blocks = blocks_for(newcomer.entry.context_tokens);
  for (const auto& [owner, a] : answers_) {
    if (a.running) blocks += a.sequence->position() / options_.block_tokens + 1;
    else if (a.on_device) blocks += blocks_for(a.entry.context_tokens);
  }
  return blocks <= options_.device_blocks;
}

void decode_core::no_room(std::uint64_t owner) {
  if (const auto a = answers_.find(owner); a != answers_.end()) a->second.on_device = false;
}

void decode_core::pass(attempt_action::join& order, time_point now) {
  const auto* a = attempts_.find(order.owner);
  if (a == nullptr || a->over) return;
  take_room(order.owner, 0);
  if (!answers_.at(order.owner).on_device) return join(order.owner, now);
  actions_.emplace_back(decode_action::load{order.owner});
}

void decode_core::loaded(std::uint64_t owner, time_point now) {
  const auto* a = attempts_.find(owner);
  if (a != nullptr && !a->over) join(owner, now);
  settle(now);
}

// ---- steps ----

void decode_core::join(std::uint64_t owner, time_point now) {
  auto& a = answers_.at(owner);
  const auto first = attempts_.find(owner)->done->first.id;
  a.entry.deadline = now + a.tbt_slo;
  if (a.checked) {
    if (const auto refused = decisions_.run(
            journal::check_join{request_id{owner}, now, batch_.question(a.entry, a.tbt_slo), steps_.state()}))
      return attempts_.refuse(owner, refused->cause, refused->retry_after);
  }
  a.sequence->begin(first);
  a.joined = now;
  ++a.produced;
  actions_.emplace_back(begin{owner, first});
  batch_.push(a.entry);
  ask_ahead(owner);
}

void decode_core::step(time_point now) {
  if (computing_) return;
  for (const auto id : batch_.admit(now)) {
    auto& a = answers_.at(id.value);
    a.running = true;
    a.began = a.latest = now;
  }
  compute order;
  context_tokens_ = 0;
  for (const auto id : batch_.running()) {
    auto& a = answers_.at(id.value);
    if (!has_room(id.value, *a.sequence)) continue;
    a.on_device = false;
    attempts_.step_begun(id.value);
    context_tokens_ += a.sequence->position() + 1;
    order.parts.push_back({id.value, a.sequence});
  }
  if (order.parts.empty()) return;
  computing_ = true;
  actions_.emplace_back(std::move(order));
}

/// Whether the next token has a place. The slot behind is asked for half a block ahead, so that the batch
/// hardly ever waits for one.
bool decode_core::has_room(std::uint64_t owner, const decode_sequence& sequence) {
  const auto block_tokens = options_.block_tokens;
  const auto blocks = attempts_.find(owner)->claim.slots().size();
  const auto wanted = (sequence.position() + block_tokens / 2) / block_tokens + 1;
  if (blocks < wanted) attempts_.grow(owner);
  return sequence.position() < blocks * block_tokens;
}

/// Where a prompt fills its blocks, the slot behind is there by the time that the first step wants it.
void decode_core::ask_ahead(std::uint64_t owner) {
  if (answers_.at(owner).sequence->position() == slots_of(owner).size() * options_.block_tokens)
    attempts_.grow(owner);
}

void decode_core::not_grown(std::uint64_t owner, const error& why) {
  if (!attempts_.not_grown(owner)) return;
  // Before its first step it asks again.
  if (!answers_.at(owner).running) return;
  // A slot that was asked for ahead may be had by the time that it is needed, or may never be needed.
  const auto room = attempts_.find(owner)->claim.slots().size() * options_.block_tokens;
  if (answers_.at(owner).sequence->position() < room) return;
  // Its place is worth more to the other answers than a wait without an end; the gateway places it again.
  attempts_.fail(owner, why, true);
}

void decode_core::step_ended(std::vector<decode_outcome> outcomes, duration took, const error& failure,
                             time_point now) {
  computing_ = false;
  const bool failed = failure.code != ec::none;
  if (!failed) {
    ++latest_.steps;
    latest_.step_ns = took.count();
    latest_.busy_ns += took.count();
    latest_.step_batch = static_cast<std::uint32_t>(outcomes.size());
    latest_.step_context_tokens = context_tokens_;
    steps_.observe(latest_.step_batch, context_tokens_, took);
  }
  tokens_by_gateway chosen;
  std::vector<std::uint64_t> finished;
  for (const auto& outcome : outcomes) {
    if (!attempts_.step_ended(outcome.owner)) continue;
    if (failed) {
      attempts_.fail(outcome.owner, failure, false);
      continue;
    }
    auto& a = answers_.at(outcome.owner);
    chosen[a.gateway].runs.push_back(extend(outcome.owner, a, outcome, now));
    if (outcome.finish != finish_reason::none) finished.push_back(outcome.owner);
  }
  for (auto& [gateway, tokens] : chosen) actions_.emplace_back(send_tokens{gateway, std::move(tokens)});
  for (const auto owner : finished) attempts_.end(owner);
  settle(now);
}

token_run decode_core::extend(std::uint64_t owner, answer& of, const decode_outcome& outcome,
                              time_point now) {
  of.longest = std::max(of.longest, now - std::exchange(of.latest, now));
  auto& sequence = *of.sequence;
  auto& claim = attempts_.find(owner)->claim;
  const auto root = sequence.root();
  if (sequence.append(outcome.token.id)) claim.extend(sequence.keys().back(), root);
  if (auto full = claim.name(outcome.first_block, outcome.checksums); !full.empty())
    actions_.emplace_back(commit{owner, std::move(full)});
  token_run run;
  run.id = attempts_.find(owner)->id;
  run.position = of.produced++;
  run.tokens.push_back(outcome.token);
  run.finish = outcome.finish;
  return run;
}

// ---- ends ----

void decode_core::cancel(const attempt_id& id, time_point now) {
  attempts_.cancel(id, now);
  settle(now);
}

void decode_core::peer_lost(node_id peer, time_point now) {
  attempts_.peer_lost(peer);
  settle(now);
}

roll_answer decode_core::answer_roll(const roll_call& call, time_point now) {
  auto found = attempts_.answer_roll(call, now);
  settle(now);
  return found;
}

void decode_core::prefill_stopped(const attempt_id& id, bool stopped, time_point now) {
  attempts_.prefill_stopped(id, stopped);
  settle(now);
}

void decode_core::fenced(std::uint64_t owner, time_point now) {
  attempts_.fenced(owner);
  settle(now);
}

std::vector<std::uint64_t> decode_core::sweep(time_point now) {
  decisions_.flush();
  auto owners = attempts_.sweep(now);
  settle(now);
  return owners;
}

void decode_core::device_lost(error why, time_point now) {
  attempts_.device_lost(std::move(why));
  settle(now);
}

void decode_core::leave(error why, time_point now) {
  attempts_.leave(std::move(why));
  settle(now);
}

std::span<const slot_index> decode_core::slots_of(std::uint64_t owner) {
  return attempts_.find(owner)->claim.slots();
}

worker_load decode_core::load() const {
  auto out = latest_;
  for (const auto& [owner, a] : answers_) {
    if (!a.running) {
      ++out.waiting;
      continue;
    }
    ++out.running;
    out.context_tokens += a.sequence->position();
  }
  return out;
}

}  // namespace mooncaf
