#include "actors/prefill_worker.hpp"

#include <utility>

#include "actors/prefill_options.hpp"
#include "actors/stray_errors.hpp"

namespace mooncaf {

/// The machine is told whom to tell when the first stage of a group is free.
prefill_worker::prefill_worker(caf::actor_config& config, const context_ptr& context,
                               const worker_links& links, std::shared_ptr<engine> machine)
    : worker_actor(config, context, links, machine,
                   prefill_options_of(context, machine->runner->stages(), links.journal), links.passes) {
  machine->runner->when_free([self = caf::weak_actor_ptr{ctrl()}] {
    if (const auto worker = self.lock())
      caf::anon_send(caf::actor_cast<prefill_worker_actor>(worker), free_atom_v);
  });
}

prefill_worker_actor::behavior_type prefill_worker::make_behavior() {
  outlive_stray_errors(*this);
  delayed_send(this, tick_interval, tick_atom_v);
  return {
      [this](job_atom, const generate_job& job) { take(job); },
      [this](target_atom, const kv_target& target) { tell(&prefill_core::target, target); },
      [this](cancel_atom, const attempt_id& id) { return cancel(id); },
      [this](roll_atom, const roll_call& call) { return tell(&prefill_core::answer_roll, call); },
      [this](peer_down_atom, node_id peer) { tell(&prefill_core::peer_lost, peer); },
      [this](status_atom) { return status(); },
      [this](leave_atom) {
        tell(&prefill_core::leave, error{ec::unavailable, "the node leaves"});
      },
      [this](layers_atom, const attempt_id& id) {
        if (const auto* request = find(id.owner()); request && request->load)
          tell(&prefill_core::layers_in, id.owner(), request->load->leading());
      },
      [this](free_atom) { tell(&prefill_core::stage_free); },
      [this](stop_atom, const attempt_id& id) { tell(&prefill_core::waited, id.owner()); },
      [this](sent_atom, const attempt_id& id, bool delivered) {
        if (const auto* request = find(id.owner()))
          tell(&prefill_core::sent, id.owner(), delivered, request->stream->fenced());
      },
      [this](tick_atom) { tick(); },
  };
}

void prefill_worker::on_exit() {
  for (auto& [owner, request] : requests_) request->abandon();
  close();
}

caf::result<void> prefill_worker::cancel(const attempt_id& id) {
  auto promise = make_response_promise();
  if (auto* request = find(id.owner())) request->waiting.push_back(promise);
  if (tell(&prefill_core::cancel, id)) promise.deliver(caf::unit);
  return promise;
}

// ---- blocks ----

void prefill_worker::carry_out(prefill_action::look& order) {
  const auto owner = order.owner;
  request(links_.shard, request_limit, look_atom_v, std::move(order.keys))
      .then([this, owner](const prefix_view& here) { tell(&prefill_core::looked, owner, here); },
            [this, owner](const caf::error& e) { tell(&prefill_core::refused, owner, from_caf(e)); });
}

void prefill_worker::carry_out(prefill_action::pin& order) {
  const auto owner = order.owner;
  live_at(owner).blocks.clear();  // it gets others
  request(links_.shard, request_limit, pin_atom_v, owner, std::move(order.what.keys), order.what.from_ssd)
      .then([this, owner,
             turn = order.what.turn](const pinned_slots& p) { tell(&prefill_core::pinned, owner, turn, p); },
            [this, owner, turn = order.what.turn](const caf::error& e) {
              tell(&prefill_core::not_pinned, owner, turn, from_caf(e));
            });
}

void prefill_worker::carry_out(prefill_action::fetch& order) {
  const auto owner = order.owner;
  const auto ended = [this, owner](const remote_blocks& got) { tell(&prefill_core::fetched, owner, got); };
  // A prefix that cannot be had is a miss: it is computed.
  const auto failed = [ended](const caf::error&) { ended({}); };
  const auto ask = [&](const auto& receiver, auto&&... what) {
    // The receiver bounds it. Until it answers, blocks may still arrive in these slots.
    request(receiver, caf::infinite, std::forward<decltype(what)>(what)...).then(ended, failed);
  };
  if (!order.by_layers) return ask(links_.messenger, fetch_atom_v, std::move(order.what));
  const auto progress = [self = prefill_worker_actor{this}, id = order.what.id] {
    caf::anon_send(self, layers_atom_v, id);
  };
  const auto load = std::make_shared<prefix_load>(context_->layout.n_layers, progress);
  live_at(owner).load = load;
  if (order.what.source == context_->id) ask(links_.shard, load_atom_v, std::move(order.what), load);
  else ask(links_.messenger, load_atom_v, std::move(order.what), load);
}

void prefill_worker::carry_out(const prefill_action::remind& order) {
  delayed_send(this, order.after, stop_atom_v, live_at(order.owner).job.id);
}

void prefill_worker::carry_out(const prefill_action::stop_fetch& order) {
  live_at(order.id.owner()).give_up_load();
  send(links_.messenger, stop_atom_v, order.id);
}

void prefill_worker::carry_out(prefill_action::commit& order) {
  if (order.fetched)
    send(links_.shard, found_atom_v, static_cast<std::uint64_t>(order.items.size()), std::uint64_t{0});
  send(links_.shard, commit_atom_v, order.owner, std::move(order.items));
}

void prefill_worker::carry_out(const prefill_action::found_on_device& order) {
  send(links_.shard, found_atom_v, std::uint64_t{0}, std::uint64_t{order.blocks});
}

void prefill_worker::carry_out(const prefill_action::choose_again& order) {
  auto& request = live_at(order.owner);
  // The same job had a sampler when it came, so it has one now.
  request.sample = std::move(*make_sampler(*context_, request.job));
}

void prefill_worker::carry_out(const prefill_action::release& order) {
  if (context_->device_blocks) context_->device_blocks->let_go(order.owner);
  send(links_.shard, release_atom_v, order.owner);
}

// ---- steps ----

step_item prefill_worker::make_item(const prefill_part& part) {
  const auto& request = requests_.at(part.owner);
  request->locate(*context_, core_.find(part.owner)->claim.slots());
  auto item = request->item_of(*context_, part);
  item.hold = request;
  return item;
}

void prefill_worker::step_done(compute_step& step) {
  std::vector<prefill_outcome> outcomes;
  for (auto& item : step.items()) outcomes.push_back(live_at(item.id.owner()).outcome_of(*context_, item));
  tell(&prefill_core::step_ended, std::move(outcomes), step.elapsed(), step.outcome());
}

// ---- streams and ends ----

void prefill_worker::carry_out(const prefill_action::open_stream& order) {
  auto& request = live_at(order.owner);
  const auto ended = [self = prefill_worker_actor{this}, id = request.job.id](bool delivered) {
    caf::anon_send(self, sent_atom_v, id, delivered);
  };
  request.open_stream(*context_, core_.find(order.owner)->claim.slots(), ended);
}

void prefill_worker::carry_out(const prefill_action::send& order) {
  live_at(order.owner).stream->prefix_ready(order.until, order.from);
}

void prefill_worker::carry_out(prefill_action::finish_stream& order) {
  live_at(order.owner)
      .stream->finish([decode = decode_of(order.owner),
                       message = std::move(order.message)](std::uint32_t transfers) mutable {
        message.transfers = transfers;
        caf::anon_send(decode, done_atom_v, message);
      });
}

void prefill_worker::carry_out(prefill_action::hand_over& order) {
  send(decode_of(order.owner), done_atom_v, std::move(order.message));
}

void prefill_worker::carry_out(const prefill_action::stop_decode& order) {
  send(decode_of(order.owner), cancel_atom_v, live_at(order.owner).job.id);
}

void prefill_worker::carry_out(first_token& message) {
  const auto& job = live_at(message.id.owner()).job;
  const auto to = caf::actor_cast<gateway_actor>(job.gateway);
  if (job.keep.empty()) return send(to, first_atom_v, std::move(message));
  const auto tell_it = [this, to, message, marks = job.keep](const kept_blocks& kept) {
    send(to, first_atom_v, noting_kept(message, marks, kept, context_->layout.block_tokens));
  };
  request(links_.shard, request_limit, keep_atom_v, job.keeper, job.keys, job.keep)
      .then(tell_it, [tell_it](const caf::error&) { tell_it({}); });
}

void prefill_worker::carry_out(const prefill_action::forget& order) {
  requests_.extract(order.owner).mapped()->stopped(order.fenced);
}

decode_worker_actor prefill_worker::decode_of(std::uint64_t owner) {
  return caf::actor_cast<decode_worker_actor>(live_at(owner).job.decode);
}

}  // namespace mooncaf
