#include "actors/prefill_worker.hpp"

#include <algorithm>
#include <bit>
#include <caf/send.hpp>
#include <utility>

#include "actors/conversions.hpp"
#include "actors/executor.hpp"
#include "actors/job_sampler.hpp"
#include "actors/policy_choices.hpp"
#include "actors/stray_errors.hpp"

namespace mooncaf {

namespace {

constexpr auto tick_interval = std::chrono::milliseconds(500);
constexpr auto request_limit = std::chrono::seconds(30);  ///< for answers of local actors and peers
constexpr auto early_limit = std::chrono::seconds(30);    ///< a target whose job never comes

std::int64_t ns(duration d) { return d.count(); }

}  // namespace

prefill_worker::prefill_worker(caf::actor_config& config, context_ptr context, worker_links links,
                               std::shared_ptr<engine> machine)
    : prefill_worker_actor::base(config),
      context_(std::move(context)),
      links_(std::move(links)),
      machine_(std::move(machine)),
      computing_model_(links_.passes),
      prefetch_(as_policy(context_->opts.prefill)),
      queue_(prefill_batch_options{
          .chunk_tokens = context_->opts.prefill.chunk_tokens,
          .max_batch_tokens = context_->opts.prefill.max_batch_tokens,
          .block_tokens = context_->layout.block_tokens,
          .aging = context_->opts.scheduler.ttft_slo,
          .max_requests = requests_per_step(context_->opts.prefill.max_batch_tokens)}) {}

prefill_worker_actor::behavior_type prefill_worker::make_behavior() {
  outlive_stray_errors(*this);
  delayed_send(this, tick_interval, tick_atom_v);
  return {
      [this](job_atom, const generate_job& job) { take(job); },
      [this](target_atom, const kv_target& target) {
        const auto i = requests_.find(target.id.owner());
        if (i != requests_.end() && i->second->stream) {
          i->second->targeted = true;
          i->second->stream->set_target(target);
        } else {
          // The job is on its way, or still looks for its prefix.
          early_targets_[target.id.owner()] = {target, clock_type::now()};
        }
      },
      [this](cancel_atom, const attempt_id& id) { return cancel(id); },
      [this](roll_atom, const roll_call& call) { return answer_roll(call); },
      [this](peer_down_atom, node_id peer) {
        for (const auto& request : requests_of(peer)) end(request);
        for (const auto& request : bound_for(peer)) {
          fail(request, error{ec::peer_lost, "the node that is to decode cannot be reached"}, true);
        }
      },
      [this](status_atom) {
        worker_load load;
        load.id = links_.id;
        load.running = computing_ ? 1 : 0;
        load.waiting = static_cast<std::uint32_t>(requests_.size());
        load.waiting_tokens = queue_.waiting_tokens();
        return load;
      },
      [this](layers_atom, const attempt_id& id) {
        const auto i = requests_.find(id.owner());
        if (i == requests_.end() || !i->second->load) return;
        i->second->arrival.landed(i->second->load->leading(), clock_type::now());
        use_idle_device();
      },
      [this](stop_atom, const attempt_id& id) {
        if (const auto i = requests_.find(id.owner()); i != requests_.end()) maybe_stop(i->second);
      },
      [this](sent_atom, const attempt_id& id, bool delivered) {
        const auto i = requests_.find(id.owner());
        if (i == requests_.end()) return;
        const auto request = i->second;
        if (request->over || delivered) return end(request);
        fail(request, error{ec::io_error, "the KV could not be delivered to the decode worker"}, true);
      },
      [this](tick_atom) {
        sweep();
        delayed_send(this, tick_interval, tick_atom_v);
      },
  };
}

void prefill_worker::on_exit() {
  for (auto& [owner, request] : requests_) {
    request->cancelled->store(true);
    if (request->load) request->load->give_up();
    if (request->stream) request->stream->stop();
  }
  requests_.clear();
  links_ = {};
}

void prefill_worker::take(const generate_job& job) {
  const auto owner = job.id.owner();
  if (requests_.contains(owner) || cancelled_early_.contains(owner)) return;
  auto request = std::make_shared<live>();
  request->job = job;
  request->arrived = clock_type::now();
  const auto blocks = static_cast<std::uint32_t>(context_->layout.blocks_for(job.tokens.size()));
  request->claim = block_claim{job.id, chain_of(job), reusable_blocks(job), blocks};
  requests_.emplace(owner, request);
  if (requests_.size() > context_->opts.prefill.max_queue) {
    return fail(request,
                error{ec::overloaded, "prefill queue is full (" +
                                          std::to_string(context_->opts.prefill.max_queue) + " requests)"},
                true);
  }
  look(request);
}

std::uint32_t prefill_worker::reusable_blocks(const generate_job& job) const {
  if (job.sampling.prompt_logprobs >= 0 || job.sampling.pooling == pooling_kind::mean) return 0;
  return static_cast<std::uint32_t>((job.tokens.size() - 1) / context_->layout.block_tokens);
}

void prefill_worker::enqueue(const live_ptr& request) {
  const auto& job = request->job;
  auto& stats = request->stats;
  stats.cached_tokens = request->computed;
  stats.computed_tokens = static_cast<std::uint32_t>(job.tokens.size()) - request->computed;
  auto sample = make_sampler(*context_, job);
  if (!sample) return fail(request, sample.error(), false);
  request->sample = std::move(*sample);
  // An answer of one token needs no KV elsewhere.
  const bool decodes = job.sampling.max_tokens > 1;
  if (decodes && job.placement.decode_node != context_->id && !request->stream) open_stream(request);
  request->at = phase::queued;
  prefill_entry entry;
  entry.id = request_id{job.id.owner()};
  entry.prompt_tokens = static_cast<std::uint32_t>(job.tokens.size());
  entry.start = request->computed;
  entry.priority = job.priority;
  entry.arrival = request->arrived - duration{job.age_ns};
  entry.deadline = request->arrived + duration{job.ttft_slo_ns};
  queue_.push(entry);
  step();
}

void prefill_worker::open_stream(const live_ptr& request) {
  const auto id = request->job.id;
  kv_stream::source from;
  from.region = context_->region.id;
  from.prompt_tokens = static_cast<std::uint32_t>(request->job.tokens.size());
  for (const auto slot : request->claim.slots()) from.offsets.push_back(context_->slot_offset(slot));
  request->stream = std::make_shared<kv_stream>(id, context_->layout, context_->plane, context_->transfer_ids,
                                                context_->links, std::move(from),
                                                [self = prefill_worker_actor{this}, id](bool delivered) {
                                                  caf::anon_send(self, sent_atom_v, id, delivered);
                                                });
  if (const auto i = early_targets_.find(id.owner()); i != early_targets_.end()) {
    request->targeted = true;
    request->stream->set_target(i->second.first);
    early_targets_.erase(i);
  }
  // Of a prefix that is not verified nothing leaves.
  const auto sure =
      request->early ? request->claim.have() * context_->layout.block_tokens : request->computed;
  if (layerwise() && sure > 0) request->stream->prefix_ready(sure);
}

bool prefill_worker::layerwise() const {
  return context_->opts.prefill.kv_transfer == kv_transfer_choice::layerwise;
}

void prefill_worker::step() {
  if (computing_) return;
  const auto chunks = queue_.next(clock_type::now());
  if (chunks.empty()) return use_idle_device();
  std::vector<step_item> items;
  items.reserve(chunks.size());
  for (const auto& chunk : chunks) {
    const auto& request = requests_.at(chunk.id.value);
    if (request->stats.queue_ns == 0) request->stats.queue_ns = ns(clock_type::now() - request->arrived);
    items.push_back(make_item(request, chunk));
  }
  computing_ = true;
  auto task = std::make_shared<compute_step>(machine_, std::move(items));
  request(links_.executor, caf::infinite, run_atom_v, task_ptr{task}).then([this, task](const task_ptr&) {
    step_done(task);
  });
}

step_item prefill_worker::make_item(const live_ptr& request, const prefill_chunk& chunk) {
  request->busy = true;
  step_item item;
  item.id = request->job.id;
  item.tokens = std::span{request->job.tokens}.subspan(chunk.start, chunk.tokens);
  item.start = chunk.start;
  if (chunk.start == request->stats.cached_tokens) item.reused = chunk.start;
  item.blocks = request->blocks;
  item.hold = request;
  // A prefix that still comes in is not verified: nobody else may find it by its keys.
  if (!request->early) item.keys = request->job.keys;
  if (layerwise() && !request->early) item.stream = request->stream;
  if (request->early && request->claim.loading()) {
    item.load = request->load;
    item.patience = request->arrival.patience();
  }
  item.cancelled = request->cancelled;
  if (const auto& wanted = request->job.sampling; wanted.prompt_logprobs >= 0) {
    const auto rest =
        std::span{request->job.tokens}.first(request->job.prompt_tokens).subspan(chunk.start + 1);
    item.targets = rest.first(std::min<std::size_t>(chunk.tokens, rest.size()));
    item.top = static_cast<std::size_t>(wanted.prompt_logprobs);
  }
  const bool last = chunk.start + chunk.tokens == request->job.tokens.size();
  if (last) item.sample = request->sample;
  const auto pooling = request->job.sampling.pooling;
  if (pooling == pooling_kind::mean || last) {
    item.pooling = pooling;
    item.pooled = request->pooled;
  }
  return item;
}

void prefill_worker::step_done(const std::shared_ptr<compute_step>& task) {
  computing_ = false;
  if (task->outcome()) learn(*task);
  std::uint64_t tokens = 0;
  for (const auto& item : task->items()) tokens += item.tokens.size();
  for (auto& item : task->items()) {
    const auto elapsed = from_seconds(part_of_step(to_seconds(task->elapsed()), item.tokens.size(), tokens));
    const auto i = requests_.find(item.id.owner());
    if (i == requests_.end()) continue;
    const auto request = i->second;
    request->busy = false;
    if (request->over) {
      end(request);
    } else if (request->early && !task->outcome()) {
      // Its prefix did not come in time.
      request->again = true;
      stop_loading(request);
      compute_again(request);
    } else if (!task->outcome()) {
      fail(request, task->outcome().error(), false);
    } else if (request->again) {
      compute_again(request);
    } else if (request->early) {
      request->held.emplace_back(std::move(item), elapsed);
    } else {
      item_done(request, item, elapsed);
    }
  }
  step();
}

void prefill_worker::learn(const compute_step& task) {
  // Of a batch nobody knows whose time it was; and one that waited for layers tells nothing of computing.
  if (task.items().size() != 1 || task.items().front().load) return;
  const auto& item = task.items().front();
  computing_model_.observe(item.tokens.size(), item.start, task.elapsed());
}

void prefill_worker::item_done(const live_ptr& request, step_item& item, duration elapsed) {
  request->stats.compute_ns += ns(elapsed);
  request->computed = item.start + static_cast<std::uint32_t>(item.tokens.size());
  if (request->stream && layerwise() && !item.stream)
    request->stream->prefix_ready(request->computed, item.start);
  for (const auto& score : item.scores) request->scores.push_back(to_message(score));
  request->pooled = std::move(item.pooled);
  commit(request, item);
  if (item.token) prompt_done(request, *item.token);
}

void prefill_worker::commit(const live_ptr& request, const step_item& item) {
  if (item.checksums.empty()) return;
  const auto first = item.start / context_->layout.block_tokens;
  auto items = request->claim.name(first, item.checksums);
  send(links_.shard, commit_atom_v, request->job.id.owner(), std::move(items));
}

void prefill_worker::prompt_done(const live_ptr& request, const sampled_token& token) {
  const auto& job = request->job;
  const auto output = static_cast<std::uint32_t>(job.tokens.size() - job.prompt_tokens) + 1;
  first_token message;
  message.id = job.id;
  message.token = to_message(token);
  message.finish = to_message(finish_after(job.sampling, context_->text->eog_ids(), output, token.id));
  message.stats = request->stats;
  message.prompt = std::move(request->scores);
  const auto rows = job.sampling.pooling == pooling_kind::mean ? static_cast<double>(job.tokens.size()) : 1.0;
  for (const auto sum : request->pooled)
    message.pooled.push_back(std::bit_cast<std::uint32_t>(static_cast<float>(sum / rows)));
  send(caf::actor_cast<gateway_actor>(job.gateway), first_atom_v, message);
  const bool finished = message.finish != finish_kind::none;
  const auto decode = caf::actor_cast<decode_worker_actor>(job.decode);
  if (finished) {
    send(decode, cancel_atom_v, job.id);
    return end(request);
  }
  prefill_done handover;
  handover.id = job.id;
  handover.first = message.token;
  handover.checksums = request->claim.checksums();
  handover.computed_tokens = request->stats.computed_tokens;
  if (!request->stream) {
    handover.slots = request->claim.slots();
    send(decode, done_atom_v, std::move(handover));
    requests_.erase(job.id.owner());  // the owner and its blocks are decode's now
    return;
  }
  request->at = phase::sending;
  if (!layerwise()) request->stream->prefix_ready(static_cast<std::uint32_t>(job.tokens.size()));
  request->stream->finish([decode, handover](std::uint32_t transfers) mutable {
    handover.transfers = transfers;
    caf::anon_send(decode, done_atom_v, handover);
  });
}

caf::result<void> prefill_worker::cancel(const attempt_id& id) {
  early_targets_.erase(id.owner());
  const auto i = requests_.find(id.owner());
  if (i == requests_.end()) {
    // The job may still be on its way: it must not start once its slots have been given away.
    cancelled_early_[id.owner()] = clock_type::now();
    return caf::unit;
  }
  const auto request = i->second;
  auto promise = make_response_promise();
  request->waiting.push_back(promise);
  end(request);
  return promise;
}

roll_answer prefill_worker::answer_roll(const roll_call& call) {
  roll_answer out;
  for (const auto& id : call.live) {
    const auto i = requests_.find(id.owner());
    if (i == requests_.end()) {
      out.unknown.push_back(id);
    } else if (i->second->at == phase::sending && !i->second->targeted) {
      out.waiting.push_back(id);
    }
  }
  for (const auto& request : requests_of(call.gateway)) {
    if (std::ranges::find(call.live, request->job.id) == call.live.end()) end(request);
  }
  return out;
}

void prefill_worker::fail(const live_ptr& request, error cause, bool retriable) {
  attempt_failed message;
  message.id = request->job.id;
  message.cause = std::move(cause);
  message.retriable = retriable;
  message.wasted_prefill_tokens =
      request->computed - std::min(request->computed, request->stats.cached_tokens);
  send(caf::actor_cast<gateway_actor>(request->job.gateway), failed_atom_v, std::move(message));
  end(request);
}

void prefill_worker::end(const live_ptr& request) {
  const auto owner = request->job.id.owner();
  if (!request->over) {
    request->over = true;
    request->cancelled->store(true);
    queue_.cancel(request_id{owner});
    if (request->claim.loading()) stop_loading(request);
    if (request->stream) request->stream->stop();
  }
  // The blocks stay ours while a step, a fetch or a slice touches them; the end of each comes back here.
  if (request->busy || request->claim.loading() || (request->stream && !request->stream->ended())) return;
  if (!requests_.erase(owner)) return;
  early_targets_.erase(owner);
  send(links_.shard, release_atom_v, owner);
  const bool fenced = !request->stream || request->stream->fenced();
  for (auto& promise : request->waiting) {
    if (fenced) {
      promise.deliver(caf::unit);
    } else {
      promise.deliver(to_caf(error{ec::peer_lost, "slices may still land; fence this node"}));
    }
  }
}

std::vector<prefill_worker::live_ptr> prefill_worker::requests_of(node_id gateway) const {
  std::vector<live_ptr> out;
  for (const auto& [owner, request] : requests_) {
    if (request->job.gateway_node == gateway) out.push_back(request);
  }
  return out;
}

std::vector<prefill_worker::live_ptr> prefill_worker::bound_for(node_id decode) const {
  std::vector<live_ptr> out;
  for (const auto& [owner, request] : requests_) {
    if (request->job.placement.decode_node == decode && !request->over) out.push_back(request);
  }
  return out;
}

void prefill_worker::sweep() {
  const auto now = clock_type::now();
  std::erase_if(early_targets_, [&](const auto& e) {
    return now - e.second.second > early_limit && !requests_.contains(e.first);
  });
  std::erase_if(cancelled_early_, [&](const auto& e) { return now - e.second > early_limit; });
  std::vector<std::uint64_t> owners;
  owners.reserve(requests_.size());
  for (const auto& [owner, request] : requests_) owners.push_back(owner);
  if (!owners.empty()) send(links_.shard, renew_atom_v, std::move(owners));
}

}  // namespace mooncaf
