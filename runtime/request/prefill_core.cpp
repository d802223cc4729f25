#include "runtime/request/prefill_core.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <unordered_set>

namespace mooncaf {

namespace {

constexpr auto early_limit = std::chrono::seconds(30);  ///< limit for a target whose job never comes

using namespace prefill_action;

/// Leading blocks that need not be computed. The last token always is, since its logits make the first token
/// of the answer; with outputs of the prompt wanted, all tokens are.
std::uint32_t reusable_blocks(const work_order& job, std::uint32_t block_tokens) {
  if (job.sampling.prompt_logprobs >= 0 || job.sampling.pooling == pooling_kind::mean) return 0;
  return static_cast<std::uint32_t>((job.tokens.size() - 1) / block_tokens);
}

}  // namespace

prefill_core::prefill_core(node_id self, prefill_core_options options, prefill_model computing)
    : self_(self),
      options_(std::move(options)),
      computing_model_(computing),
      decisions_(options_.journal),
      prefetch_(options_.prefetch),
      queue_(options_.batch),
      turns_(prefix_turns::of_blocks(options_.batch.block_tokens, options_.shared_tokens)) {}

prefill_core::attempt* prefill_core::find(std::uint64_t owner) {
  const auto i = attempts_.find(owner);
  return i == attempts_.end() ? nullptr : &i->second;
}

bool prefill_core::wants(const attempt_id& id) const {
  return !attempts_.contains(id.owner()) && !cancelled_early_.contains(id.owner());
}

void prefill_core::take(const work_order& job, time_point now) {
  const auto owner = job.id.owner();
  const auto block_tokens = options_.batch.block_tokens;
  auto& a = attempts_[owner];
  a.id = job.id;
  a.gateway = job.gateway_node;
  a.placement = job.placement;
  a.prompt_tokens = static_cast<std::uint32_t>(job.tokens.size());
  if (job.sampling.prompt_logprobs >= 0) a.scored_tokens = job.prompt_tokens;
  a.pooling = job.sampling.pooling;
  a.reusable = reusable_blocks(job, block_tokens);
  // An answer of one token needs no KV elsewhere.
  a.remote = job.sampling.max_tokens > 1 && job.placement.decode_node != self_;
  a.priority = job.priority;
  a.arrived = now;
  a.asked = now - duration{job.age_ns};
  a.deadline = now + duration{job.ttft_slo_ns};
  a.claim =
      block_claim{job.id, chain_of(job), a.reusable, (a.prompt_tokens + block_tokens - 1) / block_tokens};
  if (lost_) return fail(owner, *lost_, true);
  if (attempts_.size() > options_.max_attempts) {
    return fail(
        owner,
        {ec::overloaded, "prefill queue is full (" + std::to_string(options_.max_attempts) + " requests)"},
        true);
  }
  if (!turns_.comes(owner, {a.claim.reusable_keys(), a.priority, a.deadline})) begin_look(a);
}

void prefill_core::turn_away(const attempt_id& id, error why) {
  attempt_failed message;
  message.id = id;
  message.cause = std::move(why);
  message.retriable = false;
  actions_.emplace_back(std::move(message));
  actions_.emplace_back(forget{id.owner(), true});
}

// ---- steps ----

void prefill_core::enqueue(attempt& a, time_point now) {
  a.stats.cached_tokens = a.computed;
  a.stats.computed_tokens = a.prompt_tokens - a.computed;
  // Whoever computes behind layers from disk does not know yet whether its blocks stay where they are.
  // Of a prefix that is not verified nothing leaves.
  if (a.remote && !a.streams && !(a.early && a.from_disk))
    open_stream(a, a.early ? tokens_of(a.claim.have()) : a.computed - a.on_device);
  if (!a.early) turns_.loads(a.claim.owner(), false);
  a.at = phase::queued;
  queue(a);
  step(now);
}

void prefill_core::queue(const attempt& a) {
  prefill_entry entry;
  entry.id = request_id{a.claim.owner()};
  entry.prompt_tokens = a.prompt_tokens;
  entry.start = a.computed;
  entry.priority = a.priority;
  entry.arrival = a.asked;
  entry.deadline = a.deadline;
  queue_.push(entry);
}

void prefill_core::open_stream(attempt& a, std::uint32_t sure) {
  const auto owner = a.claim.owner();
  a.streams = true;
  actions_.emplace_back(prefill_action::open_stream{owner});
  if (auto early = early_targets_.extract(owner)) {
    a.aimed = true;
    actions_.emplace_back(aim{owner, std::move(early.mapped().first)});
  }
  if (options_.layerwise && sure > 0) actions_.emplace_back(send{owner, 0, sure});
}

// A step that waits for layers is alone in a group: when they do not come, its prompts are queued anew.
void prefill_core::step(time_point now) {
  if (entered_ || steps_ == options_.stages || (steps_ > 0 && step_waits_)) return;
  const auto chunks = queue_.next(now);
  if (chunks.empty()) return use_idle_device(now);
  entered_ = true;
  ++steps_;
  step_waits_ = false;
  compute order;
  for (const auto& chunk : chunks) {
    auto& a = attempts_.at(chunk.id.value);
    if (a.stats.queue_ns == 0) a.stats.queue_ns = (now - a.arrived).count();
    order.parts.push_back(part_of(a, chunk));
  }
  actions_.emplace_back(std::move(order));
}

prefill_part prefill_core::part_of(attempt& a, const prefill_chunk& chunk) {
  ++a.in_steps;
  prefill_part part;
  part.owner = a.claim.owner();
  part.start = chunk.start;
  part.tokens = chunk.tokens;
  if (chunk.start == a.stats.cached_tokens) part.reused = chunk.start;
  part.last = chunk.start + chunk.tokens == a.prompt_tokens;
  // A prefix that still comes in is not verified: other requests may not find it by its keys.
  part.named_blocks = a.early ? a.claim.have() : static_cast<std::uint32_t>(a.claim.checksums().size());
  part.streams = a.streams && options_.layerwise && !a.early;
  part.stays = !a.remote && !a.early;
  if (a.scored_tokens > chunk.start + 1)
    part.scored = std::min(chunk.tokens, a.scored_tokens - chunk.start - 1);
  part.pools = a.pooling == pooling_kind::mean || (part.last && a.pooling != pooling_kind::none);
  if (part.pools) part.pooled = a.pooled;
  // Sums go from part to part, so the next one waits for this one.
  if (a.pooling == pooling_kind::mean && !part.last) queue_.cancel(chunk.id);
  if (a.early && a.claim.loading()) {
    part.patience = a.arrival.patience();
    step_waits_ = true;
  }
  return part;
}

void prefill_core::stage_free(time_point now) {
  entered_ = false;
  step(now);
}

duration prefill_core::stage_time(duration took, time_point now) const {
  if (options_.stages == 1) return took;
  // Steps that follow each other through the stages end a stage's time apart.
  return beside_ ? std::min(took, now - last_end_) : took / options_.stages;
}

void prefill_core::step_ended(std::vector<prefill_outcome> outcomes, duration took, const error& failure,
                              time_point now) {
  --steps_;
  if (options_.stages == 1) entered_ = false;
  const auto of_stage = stage_time(took, now);
  beside_ = steps_ > 0;
  last_end_ = now;
  busy_ += of_stage;
  // A batch does not tell the time of each of its requests; and a pass that waited for layers tells nothing
  // of computing.
  if (failure.code == ec::none && outcomes.size() == 1 && !step_waits_)
    computing_model_.observe(outcomes[0].tokens, outcomes[0].start, of_stage);
  std::uint64_t tokens = 0;
  for (const auto& o : outcomes) tokens += o.tokens;
  for (auto& o : outcomes) {
    const auto share = from_seconds(part_of_step(to_seconds(of_stage), o.tokens, tokens));
    part_ended(std::move(o), share, failure, now);
  }
  step(now);
}

void prefill_core::part_ended(prefill_outcome&& outcome, duration took, const error& failure,
                              time_point now) {
  auto& a = attempts_.at(outcome.owner);  // an attempt in a step is not forgotten
  --a.in_steps;
  if (a.over) return end(outcome.owner);
  if (failure.code != ec::none) {
    if (!a.early && !step_waits_) return fail(outcome.owner, failure, false);
    if (!a.early) {
      // Another's prefix did not come in time.
      queue_.cancel(request_id{outcome.owner});
      return queue(a);
    }
    a.again = true;
    stop_loading(a);
  }
  if (a.again) return compute_again(a, now);
  if (a.early) {
    a.held.emplace_back(std::move(outcome), took);
  } else {
    use(a, std::move(outcome), took);
  }
}

void prefill_core::use(attempt& a, prefill_outcome&& outcome, duration took) {
  const auto owner = a.claim.owner();
  a.stats.compute_ns += took.count();
  a.computed = outcome.start + outcome.tokens;
  if (a.streams && options_.layerwise && !outcome.streamed)
    actions_.emplace_back(send{owner, outcome.start, a.computed});
  std::ranges::move(outcome.scores, std::back_inserter(a.first.prompt));
  a.pooled = std::move(outcome.pooled);
  if (!outcome.checksums.empty()) {
    actions_.emplace_back(commit{owner, a.claim.name(outcome.first_block, outcome.checksums), false});
  }
  publish(a);
  if (a.computed == a.prompt_tokens) return answer(a, outcome.token, outcome.finish);
  if (a.pooling == pooling_kind::mean) queue(a);
}

void prefill_core::answer(attempt& a, const token_msg& token, finish_reason finish) {
  const auto owner = a.claim.owner();
  auto told = std::move(a.first);
  told.id = a.id;
  told.token = token;
  told.finish = finish;
  told.stats = a.stats;
  decisions_.run(journal::prompt_computed{request_id{owner}, a.stats.dram_tokens, a.stats.ssd_tokens,
                                          a.stats.remote_tokens, a.stats.computed_tokens,
                                          duration{a.stats.queue_ns}, duration{a.stats.compute_ns}});
  const auto rows = a.pooling == pooling_kind::mean ? static_cast<double>(a.prompt_tokens) : 1.0;
  for (const auto sum : a.pooled)
    told.pooled.push_back(std::bit_cast<std::uint32_t>(static_cast<float>(sum / rows)));
  actions_.emplace_back(std::move(told));
  if (finish != finish_reason::none) {
    actions_.emplace_back(stop_decode{owner});
    return end(owner);
  }
  prefill_done message;
  message.id = a.id;
  message.first = token;
  message.checksums = a.claim.checksums();
  message.computed_tokens = a.stats.computed_tokens;
  if (!a.streams) {
    message.slots = a.claim.slots();
    actions_.emplace_back(hand_over{owner, std::move(message)});
    actions_.emplace_back(forget{owner, true});
    turns_.ends(owner);
    attempts_.erase(owner);  // the owner and its blocks are decode's now
    return;
  }
  a.at = phase::sending;
  if (!options_.layerwise) actions_.emplace_back(send{owner, 0, a.prompt_tokens});
  actions_.emplace_back(finish_stream{owner, std::move(message)});
}

// ---- streams ----

void prefill_core::target(const kv_target& where, time_point now) {
  const auto owner = where.id.owner();
  auto* a = find(owner);
  if (a == nullptr || !a->streams) {
    // The job is on its way, or still looks for its prefix.
    early_targets_[owner] = {where, now};
  } else if (!std::exchange(a->aimed, true)) {
    actions_.emplace_back(aim{owner, where});
  }
}

void prefill_core::sent(std::uint64_t owner, bool delivered, bool fenced) {
  auto* a = find(owner);
  if (a == nullptr) return;
  a->sent = true;
  a->fenced = fenced;
  if (a->over || delivered) return end(owner);
  fail(owner, {ec::io_error, "the KV could not be delivered to the decode worker"}, true);
}

// ---- ends ----

bool prefill_core::cancel(const attempt_id& id, time_point now) {
  const auto owner = id.owner();
  early_targets_.erase(owner);
  if (!attempts_.contains(owner)) {
    // The job may still be on its way: it must not start once its slots have been given away.
    cancelled_early_[owner] = now;
    return true;
  }
  end(owner);
  return false;
}

roll_answer prefill_core::answer_roll(const roll_call& call) {
  std::unordered_set<std::uint64_t> live;
  roll_answer out;
  for (const auto& id : call.live) {
    live.insert(id.owner());
    const auto* a = find(id.owner());
    if (a == nullptr) {
      out.unknown.push_back(id);
    } else if (a->at == phase::sending && !a->aimed) {
      out.waiting.push_back(id);
    }
  }
  std::vector<std::uint64_t> orphans;
  for (const auto& [owner, a] : attempts_) {
    if (a.gateway == call.gateway && !live.contains(owner)) orphans.push_back(owner);
  }
  for (const auto owner : orphans) end(owner);
  return out;
}

void prefill_core::peer_lost(node_id peer) {
  std::vector<std::uint64_t> orphans, cut_off;
  for (const auto& [owner, a] : attempts_) {
    if (a.gateway == peer) {
      orphans.push_back(owner);
    } else if (a.placement.decode_node == peer && !a.over) {
      cut_off.push_back(owner);
    }
  }
  for (const auto owner : orphans) end(owner);
  for (const auto owner : cut_off)
    fail(owner, {ec::peer_lost, "the node that is to decode cannot be reached"}, true);
}

void prefill_core::fail(std::uint64_t owner, error cause, bool retriable) {
  const auto* found = find(owner);
  if (found == nullptr || found->over) return;
  const auto& a = *found;
  attempt_failed message;
  message.id = a.id;
  message.cause = std::move(cause);
  message.retriable = retriable;
  message.lost_device = lost_ && a.in_steps > 0 && !leaving_;
  message.wasted_prefill_tokens = a.computed - std::min(a.computed, a.stats.cached_tokens);
  actions_.emplace_back(std::move(message));
  end(owner);
}

void prefill_core::device_lost(error why) {
  lost_ = std::move(why);
  std::vector<std::uint64_t> owners;
  for (const auto& [owner, a] : attempts_) {
    if (a.at != phase::sending && !a.over) owners.push_back(owner);
  }
  for (const auto owner : owners) fail(owner, *lost_, true);
}

void prefill_core::leave(error why) {
  if (lost_) return;
  leaving_ = true;
  device_lost(std::move(why));
}

void prefill_core::end(std::uint64_t owner) {
  auto& a = attempts_.at(owner);
  if (!std::exchange(a.over, true)) {
    queue_.cancel(request_id{owner});
    actions_.emplace_back(withdraw{owner});
    stop_loading(a);
    if (a.streams && !a.sent) actions_.emplace_back(stop_stream{owner});
    turns_.ends(owner);
    look_in_turn();
  }
  // The blocks stay ours while a step, a fetch or a slice touches them; the end of each comes back here.
  if (a.in_steps > 0 || a.claim.loading() || (a.streams && !a.sent)) return;
  early_targets_.erase(owner);
  actions_.emplace_back(release{owner});
  actions_.emplace_back(forget{owner, !a.streams || a.fenced});
  attempts_.erase(owner);
}

worker_load prefill_core::load() const {
  worker_load out;
  out.running = steps_ > 0 ? 1 : 0;
  out.waiting = static_cast<std::uint32_t>(attempts_.size());
  out.waiting_tokens = queue_.waiting_tokens();
  out.busy_ns = busy_.count();
  return out;
}

std::vector<std::uint64_t> prefill_core::sweep(time_point now) {
  decisions_.flush();
  std::erase_if(early_targets_, [&](const auto& e) {
    return now - e.second.second > early_limit && !attempts_.contains(e.first);
  });
  std::erase_if(cancelled_early_, [&](const auto& e) { return now - e.second > early_limit; });
  std::vector<std::uint64_t> owners;
  owners.reserve(attempts_.size());
  for (const auto& [owner, a] : attempts_) owners.push_back(owner);
  return owners;
}

}  // namespace mooncaf
