#include "actors/decode_worker.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <map>
#include <utility>

#include "actors/conversions.hpp"
#include "actors/executor.hpp"
#include "actors/job_sampler.hpp"
#include "actors/kv_piece.hpp"
#include "actors/stray_errors.hpp"

namespace mooncaf {

namespace {

constexpr auto tick_interval = std::chrono::milliseconds(500);
constexpr auto request_limit = std::chrono::seconds(30);

}  // namespace

decode_worker::decode_worker(caf::actor_config& config, context_ptr context, worker_links links,
                             std::shared_ptr<engine> machine, std::shared_ptr<landing_board> board)
    : decode_worker_actor::base(config),
      context_(std::move(context)),
      links_(std::move(links)),
      machine_(std::move(machine)),
      board_(std::move(board)),
      intake_(context_->id, context_->layout.block_tokens,
              context_->opts.decode.max_queue + context_->opts.decode.max_batch),
      batch_(decode_batch_options{.max_batch = context_->opts.decode.max_batch,
                                  .aging = context_->opts.scheduler.ttft_slo}) {
  if (context_->device_blocks && links_.loads) loads_ = context_->hardware->make_copy_queue();
}

decode_worker_actor::behavior_type decode_worker::make_behavior() {
  outlive_stray_errors(*this);
  guard_.install();
  delayed_send(this, tick_interval, tick_atom_v);
  return {
      [this](job_atom, const generate_job& job) {
        look_after_device();
        take(job);
        act();
      },
      [this](done_atom, const prefill_done& message) {
        intake_.prefill_finished(message, clock_type::now());
        act();
      },
      [this](cancel_atom, const attempt_id& id) {
        intake_.cancel(id, clock_type::now());
        act();
      },
      [this](roll_atom, const roll_call& call) {
        auto answer = intake_.answer_roll(call, clock_type::now());
        act();
        return answer;
      },
      [this](peer_down_atom, node_id peer) {
        intake_.peer_lost(peer);
        act();
      },
      [this](status_atom) {
        look_after_device();
        act();
        return load();
      },
      [this](landed_atom, const attempt_id& id, bool complete) {
        intake_.landed(id.owner(), complete);
        act();
      },
      [this](tick_atom) {
        auto owners = intake_.sweep(clock_type::now());
        act();
        if (!owners.empty()) send(links_.shard, renew_atom_v, std::move(owners));
        delayed_send(this, tick_interval, tick_atom_v);
      },
  };
}

void decode_worker::on_exit() {
  for (const auto& [owner, request] : requests_) board_->close(owner);
  guard_.forget_all();
  requests_.clear();
  links_ = {};
}

worker_load decode_worker::load() const {
  worker_load out;
  out.id = links_.id;
  for (const auto& [owner, request] : requests_) {
    if (request->running) {
      ++out.running;
      out.context_tokens += request->position;
    } else {
      ++out.waiting;
    }
  }
  out.steps = latest_step_.number;
  out.step_ns = latest_step_.took.count();
  out.step_batch = latest_step_.batch;
  out.step_context_tokens = latest_step_.context_tokens;
  out.failure = failure_;
  return out;
}

// ---- the prompt: what the intake wants
// ----------------------------------------------------------------------------------

void decode_worker::take(const generate_job& job) {
  if (!intake_.wants(job.id)) return;
  auto request = std::make_shared<live>();
  request->job = job;
  request->arrived = clock_type::now();
  requests_.emplace(job.id.owner(), std::move(request));
  intake_.take(job, context_->plane->preferred_path(job.placement.prefill_node) != transfer_path::none);
}

void decode_worker::act() {
  // What is carried out may make more to do.
  for (auto actions = intake_.take_actions(); !actions.empty(); actions = intake_.take_actions()) {
    for (auto& action : actions) std::visit([this](auto& what) { carry_out(what); }, action);
  }
}

void decode_worker::carry_out(decode_action::pin& order) {
  request(links_.shard, request_limit, pin_atom_v, order.owner, std::move(order.what.keys))
      .then(
          [this, owner = order.owner, turn = order.what.turn](const pinned_slots& pinned) {
            intake_.pinned(owner, turn, pinned);
            act();
          },
          [this, owner = order.owner](const caf::error& e) {
            intake_.refused(owner, from_caf(e));
            act();
          });
}

void decode_worker::carry_out(const decode_action::reserve& order) {
  const auto owner = order.owner;
  request(links_.shard, request_limit, reserve_atom_v, owner, order.count)
      .then(
          [this, owner](const std::vector<slot_index>& slots) {
            const auto* a = intake_.find(owner);
            if (a == nullptr) return;
            if (a->growing) return grown(owner, slots);
            intake_.reserved(owner, slots, context_->plane->fences_of(a->prefill));
            act();
          },
          [this, owner](const caf::error& e) {
            const auto* a = intake_.find(owner);
            if (a == nullptr) return;
            if (a->growing) return not_grown(owner, from_caf(e));
            intake_.refused(owner, from_caf(e));
            act();
          });
}

void decode_worker::carry_out(const decode_action::receive& order) {
  auto& request = *requests_.at(order.owner);
  const auto& claim = intake_.find(order.owner)->claim;
  kv_target target;
  target.id = request.job.id;
  target.node = context_->id;
  target.region = context_->region.id;
  target.have_blocks = claim.have();
  for (auto i = claim.have(); i < claim.slots().size(); ++i)
    target.offsets.push_back(context_->slot_offset(claim.slots()[i]));
  reserve_on_device(request);
  board_->open(
      order.owner,
      [self = decode_worker_actor{this}, id = request.job.id](bool complete) {
        caf::anon_send(self, landed_atom_v, id, complete);
      },
      load_as_it_lands(request, claim.have()));
  send(links_.shard, fence_atom_v, order.owner);
  send(caf::actor_cast<prefill_worker_actor>(request.job.prefill), target_atom_v, std::move(target));
}

void decode_worker::carry_out(const decode_action::confirm& order) {
  send(links_.shard, confirm_atom_v, order.owner);
}

void decode_worker::carry_out(decode_action::commit& order) {
  send(links_.shard, commit_atom_v, order.owner, std::move(order.items));
}

void decode_worker::carry_out(const decode_action::withdraw& order) {
  batch_.cancel(request_id{order.owner});
  board_->close(order.owner);
}

void decode_worker::carry_out(const decode_action::release& order) {
  if (context_->device_blocks) context_->device_blocks->let_go(order.owner);
  const auto i = requests_.find(order.owner);
  const auto arrival = i == requests_.end() ? nullptr : std::exchange(i->second->arrival, nullptr);
  if (!arrival || arrival->loaded()) return send(links_.shard, release_atom_v, order.owner);
  // Copies under way read its slots.
  const auto let_go = [this, owner = order.owner] { send(links_.shard, release_atom_v, owner); };
  request(links_.loads, caf::infinite, run_atom_v, make_task([arrival] { arrival->stop(); }))
      .then([let_go](const task_ptr&) { let_go(); }, [let_go](const caf::error&) { let_go(); });
}

void decode_worker::carry_out(const decode_action::stop_prefill& order) {
  const auto& prefill = requests_.at(order.id.owner())->job.prefill;
  const auto answered = [this, id = order.id](bool stopped) {
    intake_.prefill_stopped(id, stopped);
    act();
  };
  guard_.request(caf::actor_cast<prefill_worker_actor>(prefill), request_limit, cancel_atom_v, order.id)
      .then([answered] { answered(true); }, [answered](const error&) { answered(false); });
}

void decode_worker::carry_out(const decode_action::fence& order) {
  request(links_.messenger, caf::infinite, fence_atom_v, order.peer, order.fences)
      .then(
          [this, owner = order.owner] {
            intake_.fenced(owner);
            act();
          },
          [](const caf::error&) {});
}

void decode_worker::carry_out(attempt_failed& message) {
  const auto& gateway = requests_.at(message.id.owner())->job.gateway;
  send(caf::actor_cast<gateway_actor>(gateway), failed_atom_v, std::move(message));
}

// ---- the prompt on its way to the device
// ----------------------------------------------------------------------------------

void decode_worker::reserve_on_device(live& request) {
  if (!loads_) return;
  const auto block_tokens = context_->layout.block_tokens;
  const auto tokens = static_cast<std::uint32_t>(request.job.tokens.size());
  // Not at the cost of those who run here: what they need would leave, and come back with each step.
  std::uint64_t blocks = context_->layout.blocks_for(tokens);
  for (const auto& [owner, other] : requests_) {
    if (other->running) blocks += other->position / block_tokens + 1;
    else if (other->arrival) blocks += context_->layout.blocks_for(other->job.tokens.size());
  }
  if (blocks > context_->device_blocks->stats().blocks) return;
  locate(request);
  request.arrival =
      kv_arrival::make(context_->device_blocks, loads_,
                       {request.job.id.owner(), request.job.keys, request.blocks, tokens}, context_);
}

landing_board::piece_callback decode_worker::load_as_it_lands(const live& request,
                                                              std::uint32_t have_blocks) {
  const auto& arrival = request.arrival;
  if (!arrival || arrival->loaded()) return {};
  const auto tell = [loads = links_.loads, arrival](const kv_piece& what) {
    caf::anon_send(loads, run_atom_v, make_task([arrival, what] {
                     for (std::uint32_t layer = 0; layer < what.layers; ++layer)
                       arrival->landed(what.layer + layer, what.first, what.last);
                   }));
  };
  // What this node had already need not wait for the rest.
  if (const auto& layout = context_->layout; have_blocks > 0)
    tell({0, 0, have_blocks * layout.block_tokens, layout.n_layers});
  return tell;
}

bool decode_worker::joins_when_loaded(std::uint64_t owner, live& request) {
  if (!request.arrival) reserve_on_device(request);
  const auto arrival = request.arrival;
  if (!arrival || arrival->loaded()) return false;
  this->request(links_.loads, caf::infinite, run_atom_v, make_task([arrival] { arrival->finish(); }))
      .then([this, owner, arrival](const task_ptr&) {
        if (arrival->failure()) look_after_device(arrival->failure());
        act();
        if (requests_.contains(owner)) join(owner);
        act();
      });
  return true;
}

void decode_worker::carry_out(const decode_action::join& order) {
  if (!joins_when_loaded(order.owner, *requests_.at(order.owner))) join(order.owner);
}

void decode_worker::join(std::uint64_t owner) {
  auto& request = *requests_.at(owner);
  const auto& job = request.job;
  locate(request);
  request.position = static_cast<std::uint32_t>(job.tokens.size());
  request.keys = job.keys;
  const auto tail = job.keys.size() * context_->layout.block_tokens;
  request.unnamed.assign(job.tokens.begin() + static_cast<std::ptrdiff_t>(tail), job.tokens.end());
  auto sample = make_sampler(*context_, job);
  if (!sample) return intake_.fail(owner, sample.error(), false);
  request.sample = std::move(*sample);
  const auto first = intake_.find(owner)->done->first.id;
  request.sample->accept(first);
  request.next = first;
  const auto entry = entry_of(request);
  if (job.placement.check_at_decode && job.tokens.size() == job.prompt_tokens) {
    if (const auto refused = batch_.check(entry, links_.steps, duration{job.tbt_slo_ns}))
      return intake_.refuse(owner, refused->cause, refused->retry_after);
  }
  batch_.push(entry);
  step();
}

decode_entry decode_worker::entry_of(const live& request) const {
  const auto& job = request.job;
  decode_entry entry;
  entry.id = request_id{job.id.owner()};
  entry.priority = job.priority;
  entry.arrival = request.arrived - duration{job.age_ns};
  entry.deadline = clock_type::now() + duration{job.tbt_slo_ns};
  entry.context_tokens = request.position;
  entry.max_tokens = job.sampling.max_tokens;
  return entry;
}

// ---- steps
// --------------------------------------------------------------------------------------------------------------

void decode_worker::step() {
  if (computing_) return;
  for (const auto id : batch_.admit(clock_type::now())) requests_.at(id.value)->running = true;
  std::vector<step_item> items;
  for (const auto id : batch_.running()) {
    const auto& request = requests_.at(id.value);
    if (!has_room(*request)) continue;
    step_item item;
    item.id = request->job.id;
    item.tokens = std::span{&request->next, 1};
    item.start = request->position;
    item.blocks = request->blocks;
    item.hold = request;
    item.keys = request->keys;
    item.sample = request->sample;
    item.adapter = adapter_of(*context_, request->job);
    item.may_stay = true;
    item.arrival = std::exchange(request->arrival, nullptr);
    intake_.step_begun(id.value);
    items.push_back(std::move(item));
  }
  if (!items.empty()) {
    computing_ = true;
    auto task = std::make_shared<compute_step>(machine_, std::move(items));
    request(links_.executor, caf::infinite, run_atom_v, task_ptr{task}).then([this, task](const task_ptr&) {
      step_done(task);
    });
  }
  act();  // slots that are wanted soon
}

bool decode_worker::has_room(live& request) {
  const auto block_tokens = context_->layout.block_tokens;
  // The next slot is asked for half a block ahead, so that the batch hardly ever waits for one.
  const auto wanted = (request.position + block_tokens / 2) / block_tokens + 1;
  if (request.blocks.size() < wanted) intake_.grow(request.job.id.owner());
  return request.position < request.blocks.size() * block_tokens;
}

void decode_worker::grown(std::uint64_t owner, const std::vector<slot_index>& slots) {
  if (!intake_.grown(owner, slots)) return;
  if (!intake_.find(owner)->busy) locate(*requests_.at(owner));
  step();
}

void decode_worker::not_grown(std::uint64_t owner, const error& why) {
  if (!intake_.not_grown(owner)) return;
  // What was asked for ahead may be had by the time that it is needed, or may never be needed.
  const auto& request = *requests_.at(owner);
  if (request.position < request.blocks.size() * context_->layout.block_tokens) return;
  // Its place is worth more to the others than a wait without an end; the gateway places it again.
  intake_.fail(owner, why, true);
  act();
}

void decode_worker::locate(live& request) {
  request.blocks.clear();
  for (const auto slot : intake_.find(request.job.id.owner())->claim.slots())
    request.blocks.push_back(context_->slot(slot));
}

void decode_worker::look_after_device(const std::optional<device_failure>& own) {
  if (own && own->whole()) links_.health->failed(own->what());
  const auto why = own ? own->what() : links_.health->failure();
  if (why.empty() || !failure_.empty()) return;
  failure_ = why;
  intake_.device_lost({ec::unavailable, "device: " + why});
  links_.device_lost(why);
}

void decode_worker::step_done(const std::shared_ptr<compute_step>& task) {
  computing_ = false;
  look_after_device(task->failure());
  if (task->outcome()) {
    auto& step = latest_step_;
    step = {step.number + 1, static_cast<std::uint32_t>(task->items().size()), 0, task->elapsed()};
    for (const auto& item : task->items()) step.context_tokens += item.start + 1;
    links_.steps.observe(step.batch, step.context_tokens, step.took);
  }
  std::map<caf::actor_addr, std::pair<gateway_actor, token_batch>> out;
  for (auto& item : task->items()) {
    const auto i = requests_.find(item.id.owner());
    if (i == requests_.end()) continue;
    const auto request = i->second;
    const auto owner = i->first;
    if (!intake_.step_ended(owner)) continue;
    if (!task->outcome()) {
      intake_.fail(owner, task->outcome().error(), false);
      continue;
    }
    token_run run;
    const bool finished = item_done(request, item, run);
    auto& [gateway, batch] = out[request->job.gateway->address()];
    if (!gateway) gateway = caf::actor_cast<gateway_actor>(request->job.gateway);
    batch.runs.push_back(std::move(run));
    if (finished) intake_.end(owner);
  }
  act();
  for (auto& [address, entry] : out) send(entry.first, tokens_atom_v, std::move(entry.second));
  step();
}

bool decode_worker::item_done(const live_ptr& request, step_item& item, token_run& run) {
  const auto& job = request->job;
  request->unnamed.push_back(request->next);
  ++request->position;
  if (request->unnamed.size() == context_->layout.block_tokens) name_block(*request);
  if (!item.checksums.empty()) publish_blocks(*request, item);
  auto& attempt = *intake_.find(job.id.owner());
  if (!attempt.fresh.empty()) {
    intake_.take_fresh(attempt);
    locate(*request);
  }
  run.id = job.id;
  run.position = request->sample->position() - 1;
  run.tokens.push_back(to_message(*item.token));
  request->next = item.token->id;
  run.finish = to_message(
      finish_after(job.sampling, context_->text->eog_ids(), request->sample->position(), item.token->id));
  return run.finish != finish_kind::none;
}

void decode_worker::name_block(live& request) {
  const auto& parent = request.keys.empty() ? request.job.root : request.keys.back();
  request.keys.push_back(next_key(parent, request.unnamed));
  request.unnamed.clear();
}

/// Those that the step wrote to memory.
void decode_worker::publish_blocks(const live& request, const step_item& item) {
  const auto& slots = intake_.find(request.job.id.owner())->claim.slots();
  std::vector<commit_item> items;
  for (std::uint32_t i = 0; i < item.checksums.size(); ++i) {
    const auto b = item.first_block + i;
    items.push_back(
        {slots[b], request.keys[b], b == 0 ? request.job.root : request.keys[b - 1], b, item.checksums[i]});
  }
  send(links_.shard, commit_atom_v, request.job.id.owner(), std::move(items));
}

}  // namespace mooncaf
