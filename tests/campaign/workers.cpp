// Workers of a virtual process: a twin of actors/prefill_worker.cpp, and steps around the real decode intake.

#include <algorithm>

#include "runtime/sched/block_hash.hpp"
#include "tests/campaign/machine.hpp"

namespace mooncaf::campaign {

namespace {

constexpr duration early_limit = 30s;
constexpr duration cancel_limit = 30s;
constexpr std::uint64_t garbage = 0xBAD;

std::uint32_t blocks_for(std::size_t tokens) {
  return static_cast<std::uint32_t>((tokens + block_tokens - 1) / block_tokens);
}

/// What block `i` holds when all of `tokens` are in.
std::uint64_t content_of(std::span<const std::int32_t> tokens, std::uint32_t i) {
  return fold_all(tokens.first(std::min<std::size_t>(tokens.size(), (i + 1) * block_tokens)));
}

token_msg as_token(std::int32_t id) {
  token_msg out;
  out.id = id;
  return out;
}

}  // namespace

// ---- prefill
// -----------------------------------------------------------------------------------------------------------

void prefill_twin::take(const work_order& job) {
  const auto owner = job.id.owner();
  if (requests_.contains(owner) || cancelled_early_.contains(owner)) return;
  auto r = std::make_shared<live>();
  r->job = job;
  const auto reusable = static_cast<std::uint32_t>((job.tokens.size() - 1) / block_tokens);
  r->claim = block_claim{job.id, chain_of(job), reusable, blocks_for(job.tokens.size())};
  requests_.emplace(owner, r);
  auto what = r->claim.pin(all_blocks);
  const auto turn = what.turn;
  here_.cache->pin(owner, std::move(what), [this, r, turn](const pinned_slots& held) {
    const auto missing = r->claim.pinned(turn, held);
    if (r->over) return end(r);
    here_.cache->reserve(
        r->claim.owner(), *missing,
        [this, r](const std::vector<slot_index>& slots) {
          if (r->over) return end(r);
          r->claim.reserved(slots);
          fetch(r);
        },
        [this, r](const error& why) {
          if (r->over) return end(r);
          fail(r, why);
        });
  });
}

void prefill_twin::fetch(const live_ptr& r) {
  const auto& where = r->job.placement;
  const auto reusable = static_cast<std::uint32_t>((r->job.tokens.size() - 1) / block_tokens);
  const auto there =
      where.source && process_of(where.source) != here_.self ? std::min(where.source_blocks, reusable) : 0;
  r->computed = r->claim.have();
  if (there <= r->claim.have()) return compute(r);
  here_.mail.fetch(r->claim.fetch(where.source, there), [this, r](const remote_blocks& got) {
    r->claim.fetched();
    if (r->over) return end(r);
    auto items = r->claim.adopt(got);
    r->computed += static_cast<std::uint32_t>(items.size());
    if (!items.empty()) here_.cache->commit(r->claim.owner(), std::move(items));
    compute(r);
  });
}

void prefill_twin::compute(const live_ptr& r) {
  if (r->computed == r->claim.have() || r->sent == 0) {
    const auto decode = process_of(r->job.placement.decode);
    r->streams = decode != here_.self;
    if (auto early = early_targets_.extract(r->claim.owner())) r->target = early.mapped().first;
    stream(r);
  }
  r->busy = true;
  here_.w.net.in(here_.self, here_.w.luck.between(1ms, 8ms), [this, r] {
    r->busy = false;
    // The pass has written its block, wanted or not.
    for (std::uint32_t i = 0; i < r->computed; ++i)
      r->right = r->right && here_.cache->at(r->claim.slots()[i]) == content_of(r->job.tokens, i);
    const auto content = r->right ? content_of(r->job.tokens, r->computed) : garbage;
    here_.cache->at(r->claim.slots()[r->computed]) = content;
    if (r->over) return end(r);
    if ((r->computed + 1) * block_tokens <= r->job.tokens.size())
      here_.cache->commit(r->claim.owner(), r->claim.name(r->computed, {&content, 1}));
    ++r->computed;
    computed(r);
  });
}

void prefill_twin::computed(const live_ptr& r) {
  stream(r);
  if (r->computed < r->claim.slots().size()) return compute(r);
  prompt_done(r);
}

void prefill_twin::prompt_done(const live_ptr& r) {
  const auto& job = r->job;
  const auto to = process_of(job.gateway_node), decode = process_of(job.placement.decode);
  const auto output = static_cast<std::uint32_t>(job.tokens.size() - job.prompt_tokens) + 1;
  first_token message;
  message.id = job.id;
  message.token = as_token(r->right ? token_after(fold_all(job.tokens)) : -1);
  if (output >= job.sampling.max_tokens) message.finish = finish_kind::length;
  here_.w.net.send(here_.self, to, [this, to, message] {
    here_.at(to).gateway->core.first(message, here_.now());
    here_.at(to).gateway->act();
  });
  if (message.finish != finish_kind::none) {
    here_.w.net.send(here_.self, decode, [&m = here_.at(decode), id = job.id] { m.decode->cancel(id); });
    return end(r);
  }
  if (!r->streams) {
    prefill_done handover;
    handover.id = job.id;
    handover.first = message.token;
    handover.slots = r->claim.slots();
    handover.checksums = r->claim.checksums();
    here_.w.net.send(here_.self, decode, [&m = here_.at(decode), handover] { m.decode->done(handover); });
    requests_.erase(r->claim.owner());  // the owner and its blocks are decode's now
    return;
  }
  r->finished = true;
  settle(r);
}

void prefill_twin::target(const kv_target& target) {
  const auto i = requests_.find(target.id.owner());
  if (i == requests_.end() || !i->second->streams) {
    early_targets_[target.id.owner()] = {target, here_.now()};
    return;
  }
  const auto r = i->second;
  if (r->target || stream_ended(*r)) return;
  r->target = target;
  stream(r);
  settle(r);
}

void prefill_twin::stream(const live_ptr& r) {
  if (!r->streams || !r->target || r->failed || r->stopped) return;
  for (; r->sent < r->computed; ++r->sent) {
    if (r->sent < r->target->have_blocks) continue;
    const auto to = process_of(r->target->node);
    const auto slot = static_cast<slot_index>(r->target->offsets[r->sent - r->target->have_blocks]);
    const auto content = here_.cache->at(r->claim.slots()[r->sent]);
    ++r->transfers;
    auto number = std::make_shared<std::uint64_t>();
    *number = here_.mail.write(
        to,
        [&m = here_.at(to), slot, content, owner = r->claim.owner()] {
          m.cache->at(slot) = content;
          m.w.net.in(m.self, 10us, [&m, owner] { m.decode->landed(owner); });
        },
        [this, r, number](bool landed, bool fenced) {
          std::erase(r->under_way, *number);
          if (!landed) r->failed = true;
          r->fenced = r->fenced && fenced;
          settle(r);
        });
    r->under_way.push_back(*number);
  }
}

bool prefill_twin::stream_ended(const live& r) const {
  const bool nothing_to_come = r.failed || r.stopped || (r.finished && r.target);
  return nothing_to_come && r.under_way.empty();
}

void prefill_twin::settle(const live_ptr& r) {
  if (r->finished && r->target && !r->told && !r->stopped && !r->failed) {
    r->told = true;
    prefill_done handover;
    handover.id = r->job.id;
    handover.first = as_token(r->right ? token_after(fold_all(r->job.tokens)) : -1);
    handover.checksums = r->claim.checksums();
    handover.transfers = r->transfers;
    const auto to = process_of(r->job.placement.decode);
    here_.w.net.send(here_.self, to, [&m = here_.at(to), handover] { m.decode->done(handover); });
  }
  if (!stream_ended(*r) || !requests_.contains(r->claim.owner())) return;
  const bool delivered = !r->failed && !r->stopped;
  here_.w.net.in(here_.self, 10us, [this, r, delivered] {
    if (!requests_.contains(r->claim.owner())) return;
    if (r->over || delivered) return end(r);
    fail(r, {ec::io_error, "the KV could not be delivered to the decode worker"});
  });
}

void prefill_twin::stop_stream(const live_ptr& r) {
  if (!r->streams || stream_ended(*r)) return;
  r->stopped = true;
  const auto cancel = r->under_way;
  for (const auto id : cancel) here_.mail.cancel(id);
}

void prefill_twin::cancel(const attempt_id& id, std::function<void(bool)> answer) {
  early_targets_.erase(id.owner());
  const auto i = requests_.find(id.owner());
  if (i == requests_.end()) {
    cancelled_early_[id.owner()] = here_.now();
    return answer(true);
  }
  const auto r = i->second;
  r->waiting.push_back(std::move(answer));
  end(r);
}

void prefill_twin::fail(const live_ptr& r, error cause) {
  attempt_failed message;
  message.id = r->job.id;
  message.cause = std::move(cause);
  const auto to = process_of(r->job.gateway_node);
  here_.w.net.send(here_.self, to, [this, to, message] {
    here_.at(to).gateway->core.attempt_over(message, here_.now());
    here_.at(to).gateway->act();
  });
  end(r);
}

void prefill_twin::end(const live_ptr& r) {
  const auto owner = r->claim.owner();
  if (!std::exchange(r->over, true)) stop_stream(r);
  if (r->busy || r->claim.loading() || (r->streams && !stream_ended(*r))) return;
  if (!requests_.erase(owner)) return;
  early_targets_.erase(owner);
  here_.cache->release(owner);
  for (auto& answer : r->waiting) answer(!r->streams || r->fenced);
}

void prefill_twin::peer_lost(process peer) {
  std::vector<live_ptr> orphans, cut_off;
  for (const auto& [owner, r] : requests_) {
    if (process_of(r->job.gateway_node) == peer) {
      orphans.push_back(r);
    } else if (process_of(r->job.placement.decode) == peer && !r->over) {
      cut_off.push_back(r);
    }
  }
  for (const auto& r : orphans) end(r);
  for (const auto& r : cut_off) {
    if (!r->over) fail(r, {ec::peer_lost, "the node that is to decode cannot be reached"});
  }
}

std::vector<std::uint64_t> prefill_twin::sweep() {
  const auto old = [&](time_point since) { return here_.now() - since > early_limit; };
  std::erase_if(early_targets_,
                [&](const auto& e) { return old(e.second.second) && !requests_.contains(e.first); });
  std::erase_if(cancelled_early_, [&](const auto& e) { return old(e.second); });
  std::vector<std::uint64_t> owners;
  for (const auto& [owner, r] : requests_) owners.push_back(owner);
  return owners;
}

// ---- decode
// -------------------------------------------------------------------------------------------------------------

decode_twin::decode_twin(machine& here) : here_(here), intake_(node_of(here.self), block_tokens, 16) {}

void decode_twin::act() {
  for (auto actions = intake_.take_actions(); !actions.empty(); actions = intake_.take_actions()) {
    for (auto& action : actions) std::visit([this](auto& what) { carry_out(what); }, action);
  }
}

void decode_twin::take(const work_order& job) {
  if (!intake_.wants(job.id)) return;
  requests_[job.id.owner()].job = job;
  intake_.take(job, here_.mail.reaches(process_of(job.placement.prefill)));
  act();
}

void decode_twin::done(const prefill_done& message) {
  intake_.prefill_finished(message, here_.now());
  act();
}

void decode_twin::cancel(const attempt_id& id) {
  intake_.cancel(id, here_.now());
  act();
}

void decode_twin::peer_lost(process peer) {
  intake_.peer_lost(node_of(peer));
  act();
}

std::vector<std::uint64_t> decode_twin::sweep() {
  auto owners = intake_.sweep(here_.now());
  act();
  return owners;
}

void decode_twin::carry_out(decode_action::pin& order) {
  here_.cache->pin(order.owner, order.what,
                   [this, owner = order.owner, turn = order.what.turn](const auto& held) {
                     intake_.pinned(owner, turn, held);
                     act();
                   });
}

void decode_twin::carry_out(const decode_action::reserve& order) {
  const auto owner = order.owner;
  here_.cache->reserve(
      owner, order.count,
      [this, owner](const std::vector<slot_index>& slots) {
        const auto* a = intake_.find(owner);
        if (a == nullptr) return;
        if (!a->growing) {
          intake_.reserved(owner, slots, here_.mail.fences_of(process_of(a->prefill)));
        } else if (intake_.grown(owner, slots)) {
          step(owner);
        }
        act();
      },
      [this, owner](const error& why) {
        const auto* a = intake_.find(owner);
        if (a == nullptr) return;
        if (!a->growing) {
          intake_.refused(owner, why);
        } else if (intake_.not_grown(owner)) {
          const auto filled = requests_.at(owner).tokens.size() - 1;
          if (filled >= intake_.find(owner)->claim.slots().size() * block_tokens)
            intake_.fail(owner, why, true);
        }
        act();
      });
}

void decode_twin::carry_out(const decode_action::receive& order) {
  const auto* a = intake_.find(order.owner);
  kv_target target;
  target.id = a->id;
  target.node = node_of(here_.self);
  target.have_blocks = a->claim.have();
  for (auto i = a->claim.have(); i < a->claim.slots().size(); ++i)
    target.offsets.push_back(a->claim.slots()[i]);
  board_[order.owner] = {};
  here_.cache->fence(order.owner);
  const auto to = process_of(a->prefill);
  here_.w.net.send(here_.self, to, [&m = here_.at(to), target] { m.prefill->target(target); });
}

void decode_twin::carry_out(const decode_action::expect& order) {
  const auto i = board_.find(order.owner);
  if (i == board_.end()) return;
  i->second.expected = order.transfers;
  check_landed(order.owner);
}

void decode_twin::landed(std::uint64_t owner) {
  const auto i = board_.find(owner);
  if (i == board_.end()) return;
  ++i->second.landed;
  check_landed(owner);
}

void decode_twin::check_landed(std::uint64_t owner) {
  const auto& l = board_.at(owner);
  if (!l.expected || l.landed < *l.expected) return;
  board_.erase(owner);
  here_.w.net.in(here_.self, 10us, [this, owner] {
    intake_.landed(owner, true);
    act();
  });
}

void decode_twin::carry_out(const decode_action::confirm& order) { here_.cache->confirm(order.owner); }
void decode_twin::carry_out(const decode_action::release& order) { here_.cache->release(order.owner); }
void decode_twin::carry_out(decode_action::commit& order) {
  here_.cache->commit(order.owner, std::move(order.items));
}

void decode_twin::carry_out(const decode_action::stop_prefill& order) {
  const auto to = process_of(requests_.at(order.id.owner()).job.placement.prefill);
  const auto answered = [this, id = order.id](bool stopped) {
    intake_.prefill_stopped(id, stopped);
    act();
  };
  here_.ask(
      to, cancel_limit,
      [this, to, id = order.id, answered](std::function<void(network::action)> reply) {
        here_.at(to).prefill->cancel(
            id, [answered, reply](bool stopped) { reply([answered, stopped] { answered(stopped); }); });
      },
      [answered] { answered(false); });
}

void decode_twin::carry_out(const decode_action::fence& order) {
  here_.mail.fence(process_of(order.peer), order.fences, [this, owner = order.owner] {
    intake_.fenced(owner);
    act();
  });
}

void decode_twin::carry_out(attempt_failed& message) {
  const auto to = process_of(requests_.at(message.id.owner()).job.gateway_node);
  here_.w.net.send(here_.self, to, [this, to, message] {
    here_.at(to).gateway->core.attempt_over(message, here_.now());
    here_.at(to).gateway->act();
  });
}

void decode_twin::carry_out(const decode_action::join& order) {
  auto& r = requests_.at(order.owner);
  const auto* a = intake_.find(order.owner);
  r.tokens = r.job.tokens;
  for (std::uint32_t i = 0; i < a->claim.slots().size(); ++i)
    r.right = r.right && here_.cache->at(a->claim.slots()[i]) == content_of(r.tokens, i);
  r.last_key = r.job.keys.empty() ? r.job.root : r.job.keys.back();
  r.tokens.push_back(a->done->first.id);
  step(order.owner);
}

void decode_twin::step(std::uint64_t owner) {
  auto& r = requests_.at(owner);
  const auto filled = r.tokens.size() - 1;
  const auto* a = intake_.find(owner);
  if (r.stepping || a->over) return;
  if (a->claim.slots().size() < (filled + block_tokens / 2) / block_tokens + 1) intake_.grow(owner);
  if (filled >= a->claim.slots().size() * block_tokens) return;
  r.stepping = true;
  intake_.step_begun(owner);
  here_.w.net.in(here_.self, here_.w.luck.between(2ms, 12ms), [this, owner] {
    stepped(owner);
    act();
  });
}

void decode_twin::stepped(std::uint64_t owner) {
  auto& r = requests_.at(owner);
  r.stepping = false;
  const auto i = static_cast<std::uint32_t>((r.tokens.size() - 1) / block_tokens);
  const auto* a = intake_.find(owner);
  auto& slot = here_.cache->at(a->claim.slots()[i]);
  const auto before = r.tokens.size() - 1;
  if (before % block_tokens != 0) r.right = r.right && slot == fold_all(std::span{r.tokens}.first(before));
  slot = r.right ? fold_all(r.tokens) : garbage;
  const auto content = slot;
  if (!intake_.step_ended(owner)) return;
  if (r.tokens.size() % block_tokens == 0) {
    const auto key = next_key(r.last_key, std::span{r.tokens}.last(block_tokens));
    here_.cache->commit(owner, {{a->claim.slots()[i], key, r.last_key, i, content}});
    r.last_key = key;
  }
  intake_.take_fresh(*intake_.find(owner));
  token_run run;
  run.id = r.job.id;
  run.position = static_cast<std::uint32_t>(r.tokens.size() - r.job.prompt_tokens);
  const auto token = r.right ? token_after(fold_all(r.tokens)) : -1;
  run.tokens.push_back(as_token(token));
  r.tokens.push_back(token);
  if (r.tokens.size() - r.job.prompt_tokens >= r.job.sampling.max_tokens) run.finish = finish_kind::length;
  const auto to = process_of(r.job.gateway_node);
  here_.w.net.send(here_.self, to, [this, to, run] {
    here_.at(to).gateway->core.tokens(run, here_.now());
    here_.at(to).gateway->act();
  });
  if (run.finish != finish_kind::none) return intake_.end(owner);
  step(owner);
}

}  // namespace mooncaf::campaign
