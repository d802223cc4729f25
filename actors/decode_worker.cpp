#include "actors/decode_worker.hpp"

#include <caf/send.hpp>
#include <utility>

#include "actors/executor.hpp"
#include "actors/stray_errors.hpp"

namespace mooncaf {

namespace {

decode_core_options options_of(const context_ptr& context, const worker_links& links) {
  const auto& o = context->opts;
  decode_core_options out;
  out.journal = links.journal;
  out.block_tokens = context->layout.block_tokens;
  out.max_attempts = o.decode.max_queue + o.decode.max_batch;
  out.batch = {.max_batch = o.decode.max_batch, .aging = o.scheduler.ttft_slo};
  if (links.loads && context->device_blocks) out.device_blocks = context->device_blocks->stats().blocks;
  // The worker holds the context for longer than its core.
  out.reaches = [c = context.get()](node_id peer) {
    return c->plane->preferred_path(peer) != transfer_path::none;
  };
  out.fences_of = [c = context.get()](node_id peer) { return c->plane->fences_of(peer); };
  return out;
}

}  // namespace

decode_worker::decode_worker(caf::actor_config& config, const context_ptr& context, const worker_links& links,
                             std::shared_ptr<engine> machine, std::shared_ptr<landing_board> board)
    : worker_actor(config, context, links, std::move(machine), options_of(context, links), links.steps),
      board_(std::move(board)),
      loads_(context, links.loads) {}

decode_worker_actor::behavior_type decode_worker::make_behavior() {
  outlive_stray_errors(*this);
  guard_.install();
  delayed_send(this, tick_interval, tick_atom_v);
  return {
      [this](job_atom, const generate_job& job) { take(job); },
      [this](done_atom, const prefill_done& message) { tell(&decode_core::prefill_finished, message); },
      [this](cancel_atom, const attempt_id& id) { tell(&decode_core::cancel, id); },
      [this](roll_atom, const roll_call& call) { return tell(&decode_core::answer_roll, call); },
      [this](peer_down_atom, node_id peer) { tell(&decode_core::peer_lost, peer); },
      [this](status_atom) { return status(); },
      [this](leave_atom) {
        tell(&decode_core::leave, error{ec::unavailable, "the node leaves"});
      },
      [this](landed_atom, const attempt_id& id, bool complete) {
        tell(&decode_core::landed, id.owner(), complete);
      },
      [this](tick_atom) { tick(); },
  };
}

void decode_worker::on_exit() {
  for (const auto& [owner, request] : requests_) board_->close(owner);
  guard_.forget_all();
  loads_.close();
  close();
}

// ---- the prompt ----

void decode_worker::carry_out(decode_action::pin& order) {
  const auto owner = order.owner;
  request(links_.shard, request_limit, pin_atom_v, owner, std::move(order.what.keys))
      .then([this, owner, turn = order.what.turn](
                const pinned_slots& held) { tell(&decode_core::pinned, owner, turn, held); },
            [this, owner](const caf::error& e) { tell(&decode_core::refused, owner, from_caf(e)); });
}

void decode_worker::carry_out(const decode_action::receive& order) {
  const auto& job = live_at(order.owner).job;
  kv_target target;
  target.id = job.id;
  target.node = context_->id;
  target.region = context_->region.id;
  target.have_blocks = order.have_blocks;
  for (const auto slot : order.slots) target.offsets.push_back(context_->slot_offset(slot));
  const auto landed = [self = decode_worker_actor{this}, id = job.id](bool complete) {
    caf::anon_send(self, landed_atom_v, id, complete);
  };
  board_->open(order.owner, landed, loads_.on_piece(order.owner));
  send(links_.shard, fence_atom_v, order.owner);
  send(caf::actor_cast<prefill_worker_actor>(job.prefill), target_atom_v, std::move(target));
}

void decode_worker::carry_out(decode_action::commit& order) {
  send(links_.shard, commit_atom_v, order.owner, std::move(order.items));
}

void decode_worker::carry_out(const decode_action::make_room& order) {
  auto& request = live_at(order.owner);
  request.locate(*context_, order.slots);
  if (!loads_.make_room(request, order.have_blocks)) core_.no_room(order.owner);
}

void decode_worker::carry_out(const decode_action::load& order) {
  const auto arrival = loads_.under_way(order.owner);
  if (!arrival) return core_.loaded(order.owner, now());
  request(links_.loads, caf::infinite, run_atom_v, make_task([arrival] { arrival->finish(); }))
      .then([this, owner = order.owner, arrival](const task_ptr&) {
        look_after_device(arrival->failure());
        tell(&decode_core::loaded, owner);
      });
}

// ---- steps ----

step_item decode_worker::make_item(const decode_part& part) {
  const auto& request = requests_.at(part.owner);
  request->locate(*context_, core_.slots_of(part.owner));
  request->sequence = part.sequence;
  step_item item;
  item.id = request->job.id;
  item.tokens = part.sequence->next();
  item.start = part.sequence->position();
  item.blocks = request->blocks;
  item.keys = part.sequence->keys();
  item.hold = request;
  item.sample = request->sample;
  item.adapter = adapter_of(*context_, request->job);
  item.may_stay = true;
  item.arrival = loads_.take(part.owner);
  return item;
}

void decode_worker::step_done(compute_step& step) {
  std::vector<decode_outcome> outcomes;
  for (auto& item : step.items()) {
    decode_outcome out{item.id.owner(), {}, {}, item.first_block, std::move(item.checksums)};
    if (item.token) {
      out.token = to_message(*item.token);
      out.finish = live_at(out.owner).finish_with(*context_, item.token->id);
    }
    outcomes.push_back(std::move(out));
  }
  tell(&decode_core::step_ended, std::move(outcomes), step.elapsed(), step.outcome());
}

void decode_worker::carry_out(decode_action::send_tokens& order) {
  const auto& gateway = live_at(order.tokens.runs.front().id.owner()).job.gateway;
  send(caf::actor_cast<gateway_actor>(gateway), tokens_atom_v, std::move(order.tokens));
}

// ---- ends ----

void decode_worker::carry_out(const decode_action::release& order) {
  const auto let_go = [this, owner = order.owner] { send(links_.shard, release_atom_v, owner); };
  const auto arrival = loads_.let_go(order.owner);
  if (!arrival) return let_go();
  // Copies under way read its slots.
  request(links_.loads, caf::infinite, run_atom_v, make_task([arrival] { arrival->stop(); }))
      .then([let_go](const task_ptr&) { let_go(); }, [let_go](const caf::error&) { let_go(); });
}

void decode_worker::carry_out(const decode_action::stop_prefill& order) {
  const auto answered = [this, id = order.id](bool stopped) {
    tell(&decode_core::prefill_stopped, id, stopped);
  };
  const auto& prefill = live_at(order.id.owner()).job.prefill;
  guard_.request(caf::actor_cast<prefill_worker_actor>(prefill), request_limit, cancel_atom_v, order.id)
      .then([answered] { answered(true); }, [answered](const error&) { answered(false); });
}

void decode_worker::carry_out(const decode_action::fence& order) {
  request(links_.messenger, caf::infinite, fence_atom_v, order.peer, order.fences)
      .then([this, owner = order.owner] { tell(&decode_core::fenced, owner); }, [](const caf::error&) {});
}

}  // namespace mooncaf
