// A prefill worker of a virtual process: the real core, around steps whose time is drawn and streams that go
// block by block.

#include <algorithm>

#include "tests/campaign/machine.hpp"

namespace mooncaf::campaign {

namespace {

prefill_core_options options_of(const world& w, dice& luck) {
  if (w.steady) return w.steady->prefill_options;
  constexpr prefetch_mode modes[] = {prefetch_mode::best_effort, prefetch_mode::wait_complete,
                                     prefetch_mode::timeout};
  prefill_core_options out;
  out.layers = layers;
  if (luck.chance(30)) out.stages = 2 + static_cast<std::uint32_t>(luck.below(3));
  out.layerwise = luck.chance(70);
  out.max_attempts = 16;
  out.shared_tokens = luck.chance(70) ? block_tokens : 1 << 20;
  out.batch = {.chunk_tokens = 8, .max_batch_tokens = 12, .block_tokens = block_tokens, .max_requests = 3};
  out.prefetch.mode = modes[luck.below(std::size(modes))];
  out.prefetch.base = luck.between(0ms, 3ms);
  out.prefetch.per_1024_tokens = 200ms;
  out.prefetch.threshold_tokens = block_tokens;
  out.disk_parts = luck.chance(70) ? 4 : 1;
  out.link = [](node_id, std::uint32_t blocks, time_point) { return 100us * blocks; };
  return out;
}

}  // namespace

prefill_twin::prefill_twin(machine& here) : prefill_twin(here, options_of(here.w, here.w.luck)) {}

prefill_twin::prefill_twin(machine& here, const prefill_core_options& options)
    : here_(here),
      stages_(options.stages),
      core_(node_of(here.self), options, prefill_model{here.w.samples(worker_role::prefill)}) {}

void prefill_twin::act() {
  for (auto actions = core_.take_actions(); !actions.empty(); actions = core_.take_actions()) {
    for (auto& action : actions) std::visit([this](auto& what) { carry_out(what); }, action);
  }
}

void prefill_twin::take(const work_order& job) {
  if (!core_.wants(job.id)) return;
  auto r = std::make_shared<live>();
  r->job = job;
  requests_.emplace(job.id.owner(), std::move(r));
  core_.take(job, here_.now());
  act();
}

void prefill_twin::target(const kv_target& target) {
  core_.target(target, here_.now());
  act();
}

void prefill_twin::cancel(const attempt_id& id, std::function<void(bool stopped)> answer) {
  if (const auto i = requests_.find(id.owner()); i != requests_.end()) i->second->waiting.push_back(answer);
  if (core_.cancel(id, here_.now())) answer(true);
  act();
}

roll_answer prefill_twin::answer_roll(const roll_call& call) {
  auto answer = core_.answer_roll(call);
  act();
  return answer;
}

void prefill_twin::leave() {
  core_.leave(error{ec::unavailable, "the node leaves"});
  act();
}

void prefill_twin::peer_lost(process peer) {
  core_.peer_lost(node_of(peer));
  act();
}

std::vector<std::uint64_t> prefill_twin::sweep() {
  auto owners = core_.sweep(here_.now());
  act();
  return owners;
}

// ---- blocks
// -------------------------------------------------------------------------------------------------------------

void prefill_twin::carry_out(prefill_action::look& order) {
  here_.cache->look(std::move(order.keys), [this, owner = order.owner](const prefix_view& held) {
    core_.looked(owner, held, here_.now());
    act();
  });
}

void prefill_twin::carry_out(prefill_action::pin& order) {
  here_.cache->pin(
      order.owner, order.what,
      [this, owner = order.owner, turn = order.what.turn](const pinned_slots& held) {
        core_.pinned(owner, turn, held);
        act();
      },
      [this, owner = order.owner, turn = order.what.turn](const error& why) {
        core_.not_pinned(owner, turn, why);
        act();
      });
}

void prefill_twin::carry_out(const prefill_action::reserve& order) {
  here_.cache->reserve(
      order.owner, order.count,
      [this, owner = order.owner](const std::vector<slot_index>& slots) {
        core_.reserved(owner, slots, here_.now());
        act();
      },
      [this, owner = order.owner](const error& why) {
        core_.refused(owner, why);
        act();
      });
}

void prefill_twin::carry_out(prefill_action::fetch& order) {
  const auto owner = order.owner;
  std::shared_ptr<courier::layer_watch> watch;
  if (order.by_layers) {
    const auto l = std::make_shared<layers_load>(layers_load{0, false, here_.now()});
    requests_.at(owner)->load = l;
    const auto landed = [this, owner, l](std::uint32_t leading) {
      l->leading = leading;
      l->moved = here_.now();
      core_.layers_in(owner, leading, here_.now());
      act();
    };
    watch = std::make_shared<courier::layer_watch>(courier::layer_watch{landed, [l] { l->given_up = true; }});
  }
  const auto ended = [this, owner](const remote_blocks& got) {
    core_.fetched(owner, got, here_.now());
    act();
  };
  if (order.what.source != node_of(here_.self)) return here_.mail.fetch(order.what, ended, watch);
  const auto loaded = [watch, ended, wanted = order.what.slots.size()](const remote_blocks& got) {
    if (got.blocks.size() < wanted) watch->gave_up();
    ended(got);
  };
  here_.cache->load(
      order.what, [watch](bool all) { watch->landed(all ? layers : 1); }, loaded);
}

void prefill_twin::carry_out(const prefill_action::remind& order) {
  here_.w.net.in(here_.self, order.after, [this, owner = order.owner] {
    core_.waited(owner, here_.now());
    act();
  });
}

void prefill_twin::carry_out(const prefill_action::stop_fetch& order) {
  if (const auto& l = requests_.at(order.id.owner())->load) l->given_up = true;
  here_.mail.stop(order.id);
}

void prefill_twin::carry_out(prefill_action::commit& order) {
  here_.cache->commit(order.owner, std::move(order.items));
}

void prefill_twin::carry_out(const prefill_action::release& order) { here_.cache->release(order.owner); }

// ---- steps
// --------------------------------------------------------------------------------------------------------------

void prefill_twin::carry_out(prefill_action::compute& order) {
  const auto& steady = here_.w.steady;
  const auto took = steady ? steady->prefill_step(order.parts) : here_.w.luck.between(1ms, 8ms);
  if (stages_ > 1)
    here_.w.net.in(here_.self, took / stages_, [this] {
      core_.stage_free(here_.now());
      act();
    });
  // Steps of a group leave in the order in which they came.
  ends_ = std::max(ends_ + 1us, here_.now() + took);
  here_.w.net.in(here_.self, ends_ - here_.now(),
                 [this, took, parts = std::move(order.parts)] { step(parts, took); });
}

void prefill_twin::step(const std::vector<prefill_part>& parts, duration took) {
  error failure;
  for (const auto& part : parts) {
    const auto& l = requests_.at(part.owner)->load;
    if (!part.patience || (l->leading == layers && !l->given_up)) continue;
    if (l->given_up || here_.now() - l->moved > *part.patience) {
      failure = {ec::timed_out, "layers did not come"};
    } else {
      here_.w.net.in(here_.self, 1ms, [this, parts, took] { step(parts, took + 1ms); });
      return;
    }
  }
  std::vector<prefill_outcome> outcomes;
  for (const auto& part : parts) {
    auto& r = *requests_.at(part.owner);
    write(r, part);  // wanted or not
    prefill_outcome outcome;
    outcome.owner = part.owner;
    outcome.start = part.start;
    outcome.tokens = part.tokens;
    outcome.streamed = part.streams;
    outcome.first_block = part.start / block_tokens;
    const auto& slots = core_.find(part.owner)->claim.slots();
    const auto until = part.start + part.tokens;
    for (auto i = part.start / block_tokens; i < until / block_tokens; ++i)
      outcome.checksums.push_back(here_.cache->at(slots[i]));
    if (part.streams) ready(part.owner, until);
    outcome.token = first_of(r);
    const auto output = r.job.tokens.size() - r.job.prompt_tokens + 1;
    if (output >= here_.w.answer_of(r.job)) outcome.finish = finish_reason::length;
    outcomes.push_back(std::move(outcome));
  }
  core_.step_ended(std::move(outcomes), took, failure, here_.now());
  act();
}

void prefill_twin::write(live& r, const prefill_part& part) {
  if (here_.w.steady) return;
  const auto& tokens = r.job.tokens;
  const auto& slots = core_.find(part.owner)->claim.slots();
  const auto until = part.start + part.tokens;
  for (std::uint32_t i = 0; i < blocks_for(until); ++i) {
    auto& slot = here_.cache->at(slots[i]);
    const auto begin = i * block_tokens;
    // All that lies before the part is read, and has to be what it should.
    if (begin < part.start) r.right = r.right && slot == content_of(std::span{tokens}.first(part.start), i);
    if (begin + block_tokens > part.start)
      slot = r.right ? content_of(std::span{tokens}.first(until), i) : garbage;
  }
}

void prefill_twin::carry_out(const prefill_action::choose_again& order) {
  requests_.at(order.owner)->right = true;
}

void prefill_twin::carry_out(const first_token& message) {
  const auto to = process_of(requests_.at(message.id.owner())->job.gateway_node);
  here_.w.net.send_of_attempt(here_.self, to, [this, to, message] {
    here_.at(to).gateway->core.first(message, here_.now());
    here_.at(to).gateway->act();
  });
}

token_msg prefill_twin::first_of(const live& r) {
  return as_token(r.right ? token_after(fold_all(r.job.tokens)) : -1);
}

// ---- streams
// ------------------------------------------------------------------------------------------------------------

void prefill_twin::carry_out(const prefill_action::open_stream& order) {
  requests_.at(order.owner)->out = std::make_shared<stream>();
}

void prefill_twin::carry_out(const prefill_action::aim& order) {
  requests_.at(order.owner)->out->target = order.target;
  flow(order.owner);
}

void prefill_twin::carry_out(const prefill_action::send& order) { ready(order.owner, order.until); }

void prefill_twin::carry_out(prefill_action::finish_stream& order) {
  auto& r = *requests_.at(order.owner);
  r.out->finished = true;
  r.out->message = std::move(order.message);
  flow(order.owner);
}

void prefill_twin::carry_out(const prefill_action::stop_stream& order) {
  auto& s = *requests_.at(order.owner)->out;
  s.stopped = true;
  const auto cancel = s.under_way;
  for (const auto id : cancel) here_.mail.cancel(id);
  settle(order.owner, s);
}

void prefill_twin::ready(std::uint64_t owner, std::uint32_t tokens) {
  auto& s = *requests_.at(owner)->out;
  s.ready = std::max(s.ready, tokens);
  flow(owner);
}

void prefill_twin::flow(std::uint64_t owner) {
  const auto& r = *requests_.at(owner);
  const auto s = r.out;
  if (!s->target || s->failed || s->stopped) return settle(owner, *s);
  const bool whole = s->ready == r.job.tokens.size();
  const auto until = whole ? blocks_for(s->ready) : s->ready / block_tokens;
  const auto& slots = core_.find(owner)->claim.slots();
  for (; s->sent < until; ++s->sent) {
    if (s->sent < s->target->have_blocks) continue;
    const auto to = process_of(s->target->node);
    const auto slot = static_cast<slot_index>(s->target->offsets[s->sent - s->target->have_blocks]);
    const auto content = here_.cache->at(slots[s->sent]);
    ++s->transfers;
    auto number = std::make_shared<std::uint64_t>();
    *number = here_.mail.write(
        to,
        [&m = here_.at(to), slot, content, owner] {
          m.cache->at(slot) = content;
          m.w.net.in(m.self, m.w.hop(), [&m, owner] { m.decode->landed(owner); });
        },
        [this, owner, s, number](bool landed, bool fenced) {
          std::erase(s->under_way, *number);
          if (!landed) s->failed = true;
          s->fenced = s->fenced && fenced;
          settle(owner, *s);
        });
    s->under_way.push_back(*number);
  }
  settle(owner, *s);
}

void prefill_twin::settle(std::uint64_t owner, stream& s) {
  if (s.finished && s.target && !s.stopped && !s.failed && !std::exchange(s.told, true)) {
    s.message.transfers = s.transfers;
    const auto to = process_of(s.target->node);
    here_.w.net.send_of_attempt(here_.self, to,
                                [&m = here_.at(to), message = s.message] { m.decode->done(message); });
  }
  const bool nothing_to_come = s.failed || s.stopped || (s.finished && s.target);
  if (!nothing_to_come || !s.under_way.empty() || std::exchange(s.ended, true)) return;
  const bool delivered = !s.failed && !s.stopped;
  here_.w.net.in(here_.self, here_.w.hop(), [this, owner, delivered, fenced = s.fenced] {
    core_.sent(owner, delivered, fenced);
    act();
  });
}

// ---- ends
// ---------------------------------------------------------------------------------------------------------------

void prefill_twin::carry_out(prefill_action::hand_over& order) {
  here_.w.net.send(here_.self, here_.self,
                   [&m = here_, message = std::move(order.message)] { m.decode->done(message); });
}

void prefill_twin::carry_out(const prefill_action::stop_decode& order) {
  const auto& job = requests_.at(order.owner)->job;
  const auto decode = process_of(job.placement.decode);
  here_.w.net.send_of_attempt(here_.self, decode,
                              [&m = here_.at(decode), id = job.id] { m.decode->cancel(id); });
}

void prefill_twin::carry_out(attempt_failed& message) {
  const auto to = process_of(requests_.at(message.id.owner())->job.gateway_node);
  here_.w.net.send_of_attempt(here_.self, to, [this, to, message] {
    here_.at(to).gateway->core.attempt_over(message, here_.now());
    here_.at(to).gateway->act();
  });
}

void prefill_twin::carry_out(const prefill_action::forget& order) {
  const auto gone = requests_.extract(order.owner);
  for (auto& answer : gone.mapped()->waiting) answer(order.fenced);
}

}  // namespace mooncaf::campaign
