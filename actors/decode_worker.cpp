#include "actors/decode_worker.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <map>
#include <utility>

#include "actors/conversions.hpp"
#include "actors/executor.hpp"
#include "actors/job_sampler.hpp"
#include "actors/stray_errors.hpp"

namespace mooncaf {

namespace {

constexpr auto tick_interval = std::chrono::milliseconds(500);
constexpr auto request_limit = std::chrono::seconds(30);
constexpr auto early_limit = std::chrono::seconds(30);  ///< a finished prefill whose job never comes

}  // namespace

decode_worker::decode_worker(caf::actor_config& config, context_ptr context, worker_links links,
                             std::shared_ptr<engine> machine, std::shared_ptr<landing_board> board)
    : decode_worker_actor::base(config),
      context_(std::move(context)),
      links_(std::move(links)),
      machine_(std::move(machine)),
      board_(std::move(board)),
      batch_(decode_batch_options{.max_batch = context_->opts.decode.max_batch,
                                  .aging = context_->opts.scheduler.ttft_slo}) {}

decode_worker_actor::behavior_type decode_worker::make_behavior() {
  outlive_stray_errors(*this);
  guard_.install();
  delayed_send(this, tick_interval, tick_atom_v);
  return {
      [this](job_atom, const generate_job& job) { take(job); },
      [this](done_atom, const prefill_done& message) { prefill_finished(message); },
      [this](cancel_atom, const attempt_id& id) { cancel(id); },
      [this](peer_down_atom, node_id peer) { peer_lost(peer); },
      [this](status_atom) { return load(); },
      [this](landed_atom, const attempt_id& id, bool complete) { kv_landed(id, complete); },
      [this](tick_atom) {
        sweep();
        delayed_send(this, tick_interval, tick_atom_v);
      },
  };
}

void decode_worker::on_exit() {
  for (const auto& [owner, request] : requests_) board_->close(owner);
  guard_.forget_all();
  requests_.clear();
  early_.clear();
  links_ = {};
}

worker_load decode_worker::load() const {
  worker_load out;
  out.id = links_.id;
  for (const auto& [owner, request] : requests_) {
    if (request->at == phase::running) {
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
  return out;
}

void decode_worker::take(const generate_job& job) {
  const auto owner = job.id.owner();
  if (requests_.contains(owner) || cancelled_early_.contains(owner)) return;
  auto request = std::make_shared<live>();
  request->job = job;
  request->arrived = clock_type::now();
  request->local = job.placement.prefill_node == context_->id;
  requests_.emplace(owner, request);
  if (requests_.size() > context_->opts.decode.max_queue + context_->opts.decode.max_batch) {
    return fail(request,
                error{ec::overloaded, "decode queue is full (" +
                                          std::to_string(context_->opts.decode.max_queue) + " requests)"},
                true);
  }
  if (!request->local && context_->plane->preferred_path(job.placement.prefill_node) == transfer_path::none) {
    // Its worker's handle would lead through the gateway: no word of its end, no answer that must come.
    return fail(request, error{ec::unavailable, "the node that computes the prompt is not connected"}, true);
  }
  if (!request->local) return pin(request);
  request->at = phase::receiving;
  if (auto early = early_.extract(owner)) prefill_finished(early.mapped().first);
}

void decode_worker::pin(const live_ptr& request) {
  const auto& job = request->job;
  this->request(links_.shard, request_limit, pin_atom_v, job.id.owner(), job.keys, all_blocks)
      .then(
          [this, request](const pinned_slots& pinned) {
            if (request->over) return;
            request->slots = pinned.slots;
            request->have_blocks = static_cast<std::uint32_t>(pinned.slots.size());
            reserve(request);
          },
          [this, request](const caf::error& e) {
            if (!request->over) fail(request, from_caf(e), true);
          });
}

void decode_worker::reserve(const live_ptr& request) {
  const auto total = context_->layout.blocks_for(request->job.tokens.size());
  const auto count = static_cast<std::uint32_t>(total) - request->have_blocks;
  this->request(links_.shard, request_limit, reserve_atom_v, request->job.id.owner(), count)
      .then(
          [this, request](const std::vector<slot_index>& slots) {
            if (!request->over) reserved(request, slots);
          },
          [this, request](const caf::error& e) {
            if (!request->over) fail(request, from_caf(e), true);
          });
}

void decode_worker::reserved(const live_ptr& request, const std::vector<slot_index>& slots) {
  const auto& job = request->job;
  const auto owner = job.id.owner();
  request->at = phase::receiving;
  add_slots(request, slots);
  kv_target target;
  target.id = job.id;
  target.node = context_->id;
  target.region = context_->region.id;
  target.have_blocks = request->have_blocks;
  for (const auto slot : slots) target.offsets.push_back(context_->slot_offset(slot));
  board_->open(owner, [self = decode_worker_actor{this}, id = job.id](bool complete) {
    caf::anon_send(self, landed_atom_v, id, complete);
  });
  // From here on the prefill side may write into these slots.
  request->exposed = true;
  request->fences = context_->plane->fences_of(job.placement.prefill_node);
  send(links_.shard, fence_atom_v, owner);
  send(caf::actor_cast<prefill_worker_actor>(job.prefill), target_atom_v, std::move(target));
  if (auto early = early_.extract(owner)) prefill_finished(early.mapped().first);
}

void decode_worker::add_slots(const live_ptr& request, const std::vector<slot_index>& slots) {
  request->slots.insert(request->slots.end(), slots.begin(), slots.end());
  request->blocks.clear();
  for (const auto slot : request->slots) request->blocks.push_back(context_->slot(slot));
}

void decode_worker::prefill_finished(const prefill_done& message) {
  const auto owner = message.id.owner();
  const auto i = requests_.find(owner);
  if (i == requests_.end()) {
    if (cancelled_early_.contains(owner)) {
      // Handed over to a request that has been cancelled: its blocks have no other owner any more.
      if (!message.slots.empty()) send(links_.shard, release_atom_v, owner);
    } else {
      early_[owner] = {message, clock_type::now()};
    }
    return;
  }
  const auto request = i->second;
  request->done = message;
  if (request->local) {
    add_slots(request, message.slots);
    join(request);
  } else if (request->at == phase::receiving) {
    board_->expect(owner, message.transfers);
  }
}

void decode_worker::kv_landed(const attempt_id& id, bool complete) {
  const auto i = requests_.find(id.owner());
  if (i == requests_.end()) return;
  const auto request = i->second;
  if (!complete) return fail(request, error{ec::corrupt, "a KV slice failed its checksum on arrival"}, true);
  request->exposed = false;
  send(links_.shard, confirm_atom_v, id.owner());
  publish_prompt(request);
  join(request);
}

void decode_worker::publish_prompt(const live_ptr& request) {
  const auto& checksums = request->done->checksums;
  std::vector<commit_item> items;
  for (auto i = request->have_blocks; i < request->job.keys.size() && i < checksums.size(); ++i) {
    items.push_back(name_block(request->job, request->slots, i, checksums[i]));
  }
  if (!items.empty()) send(links_.shard, commit_atom_v, request->job.id.owner(), std::move(items));
}

void decode_worker::join(const live_ptr& request) {
  const auto& job = request->job;
  request->position = static_cast<std::uint32_t>(job.tokens.size());
  request->last_key = job.keys.empty() ? job.root : job.keys.back();
  const auto tail = job.keys.size() * context_->layout.block_tokens;
  request->unnamed.assign(job.tokens.begin() + static_cast<std::ptrdiff_t>(tail), job.tokens.end());
  auto sample = make_sampler(*context_, job);
  if (!sample) return fail(request, sample.error(), false);
  request->sample = std::move(*sample);
  request->sample->accept(request->done->first.id);
  request->next = request->done->first.id;
  request->at = phase::ready;
  const auto entry = entry_of(*request);
  if (job.placement.check_at_decode && job.tokens.size() == job.prompt_tokens) {
    if (const auto refused = batch_.check(entry, links_.steps, duration{job.tbt_slo_ns}))
      return refuse(request, *refused);
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

/// As the papers describe it: decode's load is known only now, and the prefill was for nothing.
void decode_worker::refuse(const live_ptr& request, const rejection& why) {
  attempt_failed message;
  message.id = request->job.id;
  message.cause = why.cause;
  message.retriable = false;
  message.wasted_prefill_tokens = request->done->computed_tokens;
  message.retry_after_ns = why.retry_after.count();
  send(caf::actor_cast<gateway_actor>(request->job.gateway), failed_atom_v, std::move(message));
  end(request);
}

void decode_worker::step() {
  if (computing_) return;
  for (const auto id : batch_.admit(clock_type::now())) requests_.at(id.value)->at = phase::running;
  std::vector<step_item> items;
  for (const auto id : batch_.running()) {
    const auto& request = requests_.at(id.value);
    if (!has_room(request)) continue;
    step_item item;
    item.id = request->job.id;
    item.tokens = std::span{&request->next, 1};
    item.start = request->position;
    item.blocks = request->blocks;
    item.hold = request;
    item.sample = request->sample;
    request->busy = true;
    items.push_back(std::move(item));
  }
  if (items.empty()) return;
  computing_ = true;
  auto task = std::make_shared<compute_step>(machine_, std::move(items));
  request(links_.executor, caf::infinite, run_atom_v, task_ptr{task}).then([this, task](const task_ptr&) {
    step_done(task);
  });
}

bool decode_worker::has_room(const live_ptr& request) {
  const auto block_tokens = context_->layout.block_tokens;
  // The next slot is asked for half a block ahead, so that the batch hardly ever waits for one.
  const auto wanted = (request->position + block_tokens / 2) / block_tokens + 1;
  if (request->blocks.size() < wanted && !request->growing) grow(request);
  return request->position < request->blocks.size() * block_tokens;
}

void decode_worker::grow(const live_ptr& request) {
  request->growing = true;
  this->request(links_.shard, request_limit, reserve_atom_v, request->job.id.owner(), std::uint32_t{1})
      .then(
          [this, request](const std::vector<slot_index>& slots) {
            request->growing = false;
            if (request->over) return;
            request->fresh.insert(request->fresh.end(), slots.begin(), slots.end());
            take_fresh(request);
            step();
          },
          [this, request](const caf::error& e) {
            request->growing = false;
            // What was asked for ahead may be had by the time that it is needed, or may never be needed.
            if (request->over || request->position < request->blocks.size() * context_->layout.block_tokens)
              return;
            // Its place is worth more to the others than a wait without an end; the gateway places it again.
            fail(request, from_caf(e), true);
          });
}

void decode_worker::take_fresh(const live_ptr& request) {
  // `blocks` is read by the step that runs now.
  if (request->busy || request->fresh.empty()) return;
  add_slots(request, std::exchange(request->fresh, {}));
}

void decode_worker::step_done(const std::shared_ptr<compute_step>& task) {
  computing_ = false;
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
    request->busy = false;
    if (request->over) {
      end(request);
      continue;
    }
    if (!task->outcome()) {
      fail(request, task->outcome().error(), false);
      continue;
    }
    token_run run;
    const bool finished = item_done(request, item, run);
    auto& [gateway, batch] = out[request->job.gateway->address()];
    if (!gateway) gateway = caf::actor_cast<gateway_actor>(request->job.gateway);
    batch.runs.push_back(std::move(run));
    if (finished) end(request);
  }
  for (auto& [address, entry] : out) send(entry.first, tokens_atom_v, std::move(entry.second));
  step();
}

bool decode_worker::item_done(const live_ptr& request, step_item& item, token_run& run) {
  const auto& job = request->job;
  request->unnamed.push_back(request->next);
  ++request->position;
  if (!item.checksums.empty()) publish_block(request, item.checksums.front());
  take_fresh(request);
  run.id = job.id;
  run.position = request->sample->position() - 1;
  run.tokens.push_back(to_message(*item.token));
  request->next = item.token->id;
  run.finish = to_message(
      finish_after(job.sampling, context_->text->eog_ids(), request->sample->position(), item.token->id));
  return run.finish != finish_kind::none;
}

void decode_worker::publish_block(const live_ptr& request, std::uint64_t checksum) {
  const auto block_tokens = context_->layout.block_tokens;
  commit_item item;
  item.depth = request->position / block_tokens - 1;
  item.slot = request->slots[item.depth];
  item.parent = request->last_key;
  item.key = next_key(request->last_key, request->unnamed);
  item.checksum = checksum;
  request->last_key = item.key;
  request->unnamed.clear();
  send(links_.shard, commit_atom_v, request->job.id.owner(), std::vector<commit_item>{item});
}

void decode_worker::cancel(const attempt_id& id) {
  const auto owner = id.owner();
  const auto i = requests_.find(owner);
  if (i != requests_.end()) {
    const auto request = i->second;  // `end` takes it out of the map
    // Until it is handed over, a local prefill worker owns the blocks; what it sends later is released on
    // arrival.
    if (request->local && !request->done) cancelled_early_[owner] = clock_type::now();
    return end(request);
  }
  cancelled_early_[owner] = clock_type::now();
  if (auto early = early_.extract(owner); early && !early.mapped().first.slots.empty()) {
    send(links_.shard, release_atom_v, owner);
  }
}

void decode_worker::fail(const live_ptr& request, error cause, bool retriable) {
  attempt_failed message;
  message.id = request->job.id;
  message.cause = std::move(cause);
  message.retriable = retriable;
  send(caf::actor_cast<gateway_actor>(request->job.gateway), failed_atom_v, std::move(message));
  end(request);
}

void decode_worker::end(const live_ptr& request) {
  const auto owner = request->job.id.owner();
  if (!request->over) {
    request->over = true;
    batch_.cancel(request_id{owner});
    board_->close(owner);
  }
  if (request->busy) return;  // the step's end comes back here
  if (!requests_.erase(owner)) return;
  if (request->local && !request->done) return;  // the blocks are still the prefill worker's
  send(links_.shard, release_atom_v, owner);     // fenced slots go into quarantine
  if (request->exposed) fence(request);
}

void decode_worker::fence(const live_ptr& request) {
  const auto& job = request->job;
  const auto confirm = [this, owner = job.id.owner()] { send(links_.shard, confirm_atom_v, owner); };
  const auto cut = [this, confirm, node = job.placement.prefill_node,
                    fences = request->fences](const error&) {
    // It did not say that it stopped: cut its links instead, however long that takes.
    this->request(links_.messenger, caf::infinite, fence_atom_v, node, fences)
        .then(confirm, [](const caf::error&) {});
  };
  guard_.request(caf::actor_cast<prefill_worker_actor>(job.prefill), request_limit, cancel_atom_v, job.id)
      .then(confirm, cut);
}

void decode_worker::peer_lost(node_id peer) {
  std::vector<live_ptr> orphans, cut_off;
  for (const auto& [owner, request] : requests_) {
    const bool waits = request->at == phase::reserving || request->at == phase::receiving;
    if (request->job.gateway_node == peer) {
      orphans.push_back(request);
    } else if (waits && !request->local && request->job.placement.prefill_node == peer) {
      cut_off.push_back(request);
    }
  }
  for (const auto& request : orphans) end(request);
  for (const auto& request : cut_off) {
    fail(request, error{ec::peer_lost, "the node that computes the prompt cannot be reached"}, true);
  }
}

void decode_worker::sweep() {
  const auto now = clock_type::now();
  for (auto i = early_.begin(); i != early_.end();) {
    if (now - i->second.second <= early_limit) {
      ++i;
      continue;
    }
    if (!i->second.first.slots.empty()) send(links_.shard, release_atom_v, i->first);
    i = early_.erase(i);
  }
  std::erase_if(cancelled_early_, [&](const auto& e) { return now - e.second > early_limit; });
  std::vector<std::uint64_t> owners;
  owners.reserve(requests_.size());
  for (const auto& [owner, request] : requests_) owners.push_back(owner);
  for (const auto& [owner, handover] : early_) owners.push_back(owner);
  if (!owners.empty()) send(links_.shard, renew_atom_v, std::move(owners));
}

}  // namespace mooncaf
