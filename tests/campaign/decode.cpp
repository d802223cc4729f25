// A decode worker of a virtual process: the real core, around steps that fold tokens into slots.

#include "tests/campaign/machine.hpp"

namespace mooncaf::campaign {

namespace {

constexpr duration cancel_limit = 30s;

decode_core_options options_of(machine& here) {
  auto& luck = here.w.luck;
  decode_core_options out;
  out.block_tokens = block_tokens;
  out.max_attempts = 16;
  out.device_blocks = luck.chance(50) ? 16 : 0;
  out.batch.max_batch = 4;
  if (here.w.steady) {
    out.batch = here.w.steady->decode_batch;
    out.max_attempts = here.w.steady->prefill_options.max_attempts;
  }
  out.reaches = [&here](node_id peer) { return here.mail.reaches(process_of(peer)); };
  out.fences_of = [&here](node_id peer) { return here.mail.fences_of(process_of(peer)); };
  return out;
}

}  // namespace

decode_twin::decode_twin(machine& here)
    : here_(here),
      core_(node_of(here.self), options_of(here),
            here.w.steady ? decode_model{here.w.samples(worker_role::decode)} : decode_model{}) {}

void decode_twin::act() {
  for (auto actions = core_.take_actions(); !actions.empty(); actions = core_.take_actions()) {
    for (auto& action : actions) std::visit([this](auto& what) { carry_out(what); }, action);
  }
}

void decode_twin::take(const work_order& job) {
  if (!core_.wants(job.id)) return;
  requests_[job.id.owner()].job = job;
  core_.take(job, here_.now());
  act();
}

void decode_twin::done(const prefill_done& message) {
  core_.prefill_finished(message, here_.now());
  act();
}

void decode_twin::cancel(const attempt_id& id) {
  core_.cancel(id, here_.now());
  act();
}

roll_answer decode_twin::answer_roll(const roll_call& call) {
  auto answer = core_.answer_roll(call, here_.now());
  act();
  return answer;
}

void decode_twin::leave() {
  core_.leave(error{ec::unavailable, "the node leaves"}, here_.now());
  act();
}

void decode_twin::peer_lost(process peer) {
  core_.peer_lost(node_of(peer), here_.now());
  act();
}

std::vector<std::uint64_t> decode_twin::sweep() {
  auto owners = core_.sweep(here_.now());
  act();
  return owners;
}

void decode_twin::carry_out(decode_action::pin& order) {
  here_.cache->pin(
      order.owner, order.what,
      [this, owner = order.owner, turn = order.what.turn](const auto& held) {
        core_.pinned(owner, turn, held, here_.now());
        act();
      },
      [this, owner = order.owner](const error& why) {
        core_.refused(owner, why, here_.now());
        act();
      });
}

void decode_twin::carry_out(const decode_action::reserve& order) {
  here_.cache->reserve(
      order.owner, order.count,
      [this, owner = order.owner](const std::vector<slot_index>& slots) {
        core_.reserved(owner, slots, here_.now());
        act();
      },
      [this, owner = order.owner](const error& why) {
        core_.refused(owner, why, here_.now());
        act();
      });
}

void decode_twin::carry_out(const decode_action::receive& order) {
  const auto& job = requests_.at(order.owner).job;
  kv_target target;
  target.id = job.id;
  target.node = node_of(here_.self);
  target.have_blocks = order.have_blocks;
  target.offsets.assign(order.slots.begin(), order.slots.end());
  board_[order.owner] = {};
  here_.cache->fence(order.owner);
  const auto to = process_of(job.placement.prefill_node);
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
  here_.w.net.in(here_.self, here_.w.hop(), [this, owner] {
    core_.landed(owner, true, here_.now());
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
    core_.prefill_stopped(id, stopped, here_.now());
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
    core_.fenced(owner, here_.now());
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

// ---- steps
// --------------------------------------------------------------------------------------------------------------

void decode_twin::carry_out(const decode_action::make_room& order) {
  if (here_.w.luck.chance(20)) core_.no_room(order.owner);
}

void decode_twin::carry_out(const decode_action::load& order) {
  here_.w.net.in(here_.self, here_.w.luck.between(0ms, 4ms), [this, owner = order.owner] {
    core_.loaded(owner, here_.now());
    act();
  });
}

void decode_twin::carry_out(const decode_action::begin& order) {
  auto& r = requests_.at(order.owner);
  const auto slots = core_.slots_of(order.owner);
  r.tokens = r.job.tokens;
  for (std::uint32_t i = 0; !here_.w.steady && i < blocks_for(r.tokens.size()); ++i)
    r.right = r.right && here_.cache->at(slots[i]) == content_of(r.tokens, i);
  r.tokens.push_back(order.first);
}

void decode_twin::carry_out(decode_action::compute& order) {
  const auto& steady = here_.w.steady;
  std::uint64_t context = 0;
  for (const auto& part : order.parts) context += part.sequence->position() + 1;
  const auto took =
      steady ? steady->decode_step(order.parts.size(), context) : here_.w.luck.between(2ms, 12ms);
  here_.w.net.in(here_.self, took, [this, took, parts = std::move(order.parts)] {
    std::vector<decode_outcome> outcomes;
    for (const auto& part : parts) outcomes.push_back(extend(part.owner));
    core_.step_ended(std::move(outcomes), took, {}, here_.now());
    act();
  });
}

decode_outcome decode_twin::extend(std::uint64_t owner) {
  auto& r = requests_.at(owner);
  const auto before = r.tokens.size() - 1;
  const auto i = static_cast<std::uint32_t>(before / block_tokens);
  auto& slot = here_.cache->at(core_.slots_of(owner)[i]);
  if (before % block_tokens != 0 && !here_.w.steady)
    r.right = r.right && slot == fold_all(std::span{r.tokens}.first(before));
  const auto content = here_.w.steady ? 0 : fold_all(r.tokens);
  slot = r.right ? content : garbage;
  decode_outcome out;
  out.owner = owner;
  out.first_block = i;
  if (r.tokens.size() % block_tokens == 0) out.checksums.push_back(slot);
  out.token = as_token(r.right ? token_after(content) : -1);
  r.tokens.push_back(out.token.id);
  if (r.tokens.size() - r.job.prompt_tokens >= here_.w.answer_of(r.job)) out.finish = finish_reason::length;
  return out;
}

void decode_twin::carry_out(decode_action::send_tokens& order) {
  const auto to = process_of(order.gateway);
  here_.w.net.send_of_attempt(here_.self, to, [this, to, batch = std::move(order.tokens)] {
    for (const auto& run : batch.runs) here_.at(to).gateway->core.tokens(run, here_.now());
    here_.at(to).gateway->act();
  });
}

}  // namespace mooncaf::campaign
