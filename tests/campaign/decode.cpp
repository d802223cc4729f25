// A decode worker of a virtual process: steps around the real intake, one per request.

#include "runtime/sched/block_hash.hpp"
#include "tests/campaign/machine.hpp"

namespace mooncaf::campaign {

namespace {

constexpr duration cancel_limit = 30s;

}  // namespace

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

roll_answer decode_twin::answer_roll(const roll_call& call) {
  auto answer = intake_.answer_roll(call, here_.now());
  act();
  return answer;
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
  here_.cache->pin(
      order.owner, order.what,
      [this, owner = order.owner, turn = order.what.turn](const auto& held) {
        intake_.pinned(owner, turn, held);
        act();
      },
      [this, owner = order.owner](const error& why) {
        intake_.refused(owner, why);
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
  here_.w.net.send_of_attempt(here_.self, to, [&m = here_.at(to), target] { m.prefill->target(target); });
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
  here_.w.net.send_of_attempt(here_.self, to, [this, to, message] {
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
  here_.w.net.send_of_attempt(here_.self, to, [this, to, run] {
    here_.at(to).gateway->core.tokens(run, here_.now());
    here_.at(to).gateway->act();
  });
  if (run.finish != finish_kind::none) return intake_.end(owner);
  step(owner);
}

}  // namespace mooncaf::campaign
