#include "actors/prefill_worker.hpp"

#include <bit>
#include <caf/send.hpp>
#include <utility>

#include "actors/conversions.hpp"
#include "actors/device_reach.hpp"
#include "actors/executor.hpp"
#include "actors/job_sampler.hpp"
#include "actors/policy_choices.hpp"
#include "actors/stray_errors.hpp"
#include "runtime/sched/link_book.hpp"

namespace mooncaf {

namespace {

constexpr auto tick_interval = std::chrono::milliseconds(500);
constexpr auto request_limit = std::chrono::seconds(30);  ///< for answers of the shard

prefill_core_options options_of(const context_ptr& context) {
  const auto& o = context->opts;
  prefill_core_options out;
  out.layers = context->layout.n_layers;
  out.layerwise = o.prefill.kv_transfer == kv_transfer_choice::layerwise;
  out.max_attempts = o.prefill.max_queue;
  out.batch = {.chunk_tokens = o.prefill.chunk_tokens,
               .max_batch_tokens = o.prefill.max_batch_tokens,
               .block_tokens = context->layout.block_tokens,
               .aging = o.scheduler.ttft_slo,
               .max_requests = prefill_worker::requests_per_step(o.prefill.max_batch_tokens)};
  if (const auto part = context->disk_part_layers; part > 0)
    out.disk_parts = (context->layout.n_layers + part - 1) / part;
  if (const auto& kv = context->device_blocks) {
    out.to_device = [kv](std::span<const block_key> keys, std::uint32_t blocks) {
      return kv->loading(keys, blocks);
    };
    out.on_device = [kv](std::span<const block_key> keys) { return kv->match(keys); };
    out.keep_on_device = [kv](std::uint64_t owner, std::span<const block_key> keys, std::uint32_t have) {
      return kv->adopt(owner, keys, have);
    };
  }
  out.prefetch = as_policy(o.prefill);
  // The worker holds the context for longer than its core.
  out.link = [c = context.get()](node_id source, std::uint32_t blocks, time_point now) {
    const auto path = static_cast<std::uint8_t>(c->plane->preferred_path(source));
    return c->links->estimate(source, path, blocks * c->layout.block_bytes(), now);
  };
  return out;
}

}  // namespace

prefill_worker::prefill_worker(caf::actor_config& config, context_ptr context, worker_links links,
                               std::shared_ptr<engine> machine)
    : prefill_worker_actor::base(config),
      context_(std::move(context)),
      links_(std::move(links)),
      machine_(std::move(machine)),
      core_(context_->id, options_of(context_), links_.passes) {}

prefill_worker_actor::behavior_type prefill_worker::make_behavior() {
  outlive_stray_errors(*this);
  delayed_send(this, tick_interval, tick_atom_v);
  return {
      [this](job_atom, const generate_job& job) {
        look_after_device();
        take(job);
        act();
      },
      [this](target_atom, const kv_target& target) {
        core_.target(target, clock_type::now());
        act();
      },
      [this](cancel_atom, const attempt_id& id) { return cancel(id); },
      [this](roll_atom, const roll_call& call) {
        auto answer = core_.answer_roll(call);
        act();
        return answer;
      },
      [this](peer_down_atom, node_id peer) {
        core_.peer_lost(peer);
        act();
      },
      [this](status_atom) {
        look_after_device();
        act();
        worker_load load;
        load.id = links_.id;
        load.running = core_.computing() ? 1 : 0;
        load.waiting = static_cast<std::uint32_t>(core_.size());
        load.waiting_tokens = core_.waiting_tokens();
        load.failure = failure_;
        return load;
      },
      [this](layers_atom, const attempt_id& id) {
        const auto i = requests_.find(id.owner());
        if (i == requests_.end() || !i->second->load) return;
        core_.layers_in(id.owner(), i->second->load->leading(), clock_type::now());
        act();
      },
      [this](stop_atom, const attempt_id& id) {
        core_.waited(id.owner(), clock_type::now());
        act();
      },
      [this](sent_atom, const attempt_id& id, bool delivered) {
        const auto i = requests_.find(id.owner());
        if (i == requests_.end()) return;
        core_.sent(id.owner(), delivered, i->second->stream->fenced());
        act();
      },
      [this](tick_atom) {
        auto owners = core_.sweep(clock_type::now());
        act();
        if (!owners.empty()) send(links_.shard, renew_atom_v, std::move(owners));
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
  if (!core_.wants(job.id)) return;
  auto request = std::make_shared<live>();
  request->job = job;
  const auto owner = job.id.owner();
  requests_.emplace(owner, std::move(request));
  core_.take(job, clock_type::now());
  make_sampler_of(owner);
}

void prefill_worker::make_sampler_of(std::uint64_t owner) {
  const auto* a = core_.find(owner);
  if (a == nullptr || a->over) return;
  auto& request = *requests_.at(owner);
  if (auto sample = make_sampler(*context_, request.job)) {
    request.sample = std::move(*sample);
  } else {
    core_.fail(owner, sample.error(), false);
  }
}

caf::result<void> prefill_worker::cancel(const attempt_id& id) {
  const auto i = requests_.find(id.owner());
  auto promise = make_response_promise();
  if (i != requests_.end()) i->second->waiting.push_back(promise);
  const bool over = core_.cancel(id, clock_type::now());
  act();
  if (over) promise.deliver(caf::unit);
  return promise;
}

void prefill_worker::act() {
  // What is carried out may make more to do.
  for (auto actions = core_.take_actions(); !actions.empty(); actions = core_.take_actions()) {
    for (auto& action : actions) std::visit([this](auto& what) { carry_out(what); }, action);
  }
}

// ---- blocks
// -------------------------------------------------------------------------------------------------------------

void prefill_worker::carry_out(prefill_action::look& order) {
  request(links_.shard, request_limit, look_atom_v, std::move(order.keys))
      .then(
          [this, owner = order.owner](const prefix_view& here) {
            core_.looked(owner, here, clock_type::now());
            act();
          },
          [this, owner = order.owner](const caf::error& e) {
            core_.refused(owner, from_caf(e));
            act();
          });
}

void prefill_worker::carry_out(prefill_action::pin& order) {
  request(links_.shard, request_limit, pin_atom_v, order.owner, std::move(order.what.keys),
          order.what.from_ssd)
      .then(
          [this, owner = order.owner, turn = order.what.turn](const pinned_slots& pinned) {
            core_.pinned(owner, turn, pinned);
            act();
          },
          [this, owner = order.owner, turn = order.what.turn](const caf::error& e) {
            core_.not_pinned(owner, turn, from_caf(e));
            act();
          });
}

void prefill_worker::carry_out(const prefill_action::reserve& order) {
  requests_.at(order.owner)->blocks.clear();
  request(links_.shard, request_limit, reserve_atom_v, order.owner, order.count)
      .then(
          [this, owner = order.owner](const std::vector<slot_index>& slots) {
            core_.reserved(owner, slots, clock_type::now());
            act();
          },
          [this, owner = order.owner](const caf::error& e) {
            core_.refused(owner, from_caf(e));
            act();
          });
}

void prefill_worker::carry_out(prefill_action::fetch& order) {
  const auto ended = [this, owner = order.owner](const remote_blocks& got) {
    core_.fetched(owner, got, clock_type::now());
    act();
  };
  // A prefix that cannot be had is a miss: it is computed.
  const auto failed = [ended](const caf::error&) { ended({}); };
  // The messenger bounds it. Until it answers, blocks may still arrive in these slots.
  if (!order.by_layers) {
    request(links_.messenger, caf::infinite, fetch_atom_v, std::move(order.what)).then(ended, failed);
    return;
  }
  auto& load = requests_.at(order.owner)->load;
  load = std::make_shared<prefix_load>(
      context_->layout.n_layers,
      [self = prefill_worker_actor{this}, id = order.what.id] { caf::anon_send(self, layers_atom_v, id); });
  if (order.what.source == context_->id) {
    request(links_.shard, caf::infinite, load_atom_v, std::move(order.what), load).then(ended, failed);
  } else {
    request(links_.messenger, caf::infinite, load_atom_v, std::move(order.what), load).then(ended, failed);
  }
}

void prefill_worker::carry_out(const prefill_action::remind& order) {
  delayed_send(this, order.after, stop_atom_v, requests_.at(order.owner)->job.id);
}

void prefill_worker::carry_out(const prefill_action::stop_fetch& order) {
  if (const auto& load = requests_.at(order.id.owner())->load) load->give_up();
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

void prefill_worker::carry_out(const prefill_action::release& order) {
  if (context_->device_blocks) context_->device_blocks->let_go(order.owner);
  send(links_.shard, release_atom_v, order.owner);
}

// ---- steps
// --------------------------------------------------------------------------------------------------------------

void prefill_worker::carry_out(const prefill_action::compute& order) {
  std::vector<step_item> items;
  items.reserve(order.parts.size());
  for (const auto& part : order.parts) items.push_back(make_item(part));
  auto task = std::make_shared<compute_step>(machine_, std::move(items));
  request(links_.executor, caf::infinite, run_atom_v, task_ptr{task}).then([this, task](const task_ptr&) {
    step_done(task);
  });
}

step_item prefill_worker::make_item(const prefill_part& part) {
  const auto& request = requests_.at(part.owner);
  const auto& job = request->job;
  if (request->blocks.empty()) {
    for (const auto slot : core_.find(part.owner)->claim.slots())
      request->blocks.push_back(context_->slot(slot));
  }
  step_item item;
  item.id = job.id;
  item.tokens = std::span{job.tokens}.subspan(part.start, part.tokens);
  item.start = part.start;
  item.reused = part.reused;
  item.blocks = request->blocks;
  item.hold = request;
  // A prefix that still comes in is not verified: nobody else may find it by its keys.
  item.keys =
      part.verified ? std::span{job.keys} : std::span{job.keys}.first(core_.find(part.owner)->claim.have());
  if (part.streams) item.stream = request->stream;
  if (part.patience) {
    item.load = request->load;
    item.patience = *part.patience;
  }
  item.adapter = adapter_of(*context_, request->job);
  item.cancelled = request->cancelled;
  item.may_stay = part.stays;
  if (const auto& wanted = job.sampling; wanted.prompt_logprobs >= 0) {
    const auto rest = std::span{job.tokens}.first(job.prompt_tokens).subspan(part.start + 1);
    item.targets = rest.first(std::min<std::size_t>(part.tokens, rest.size()));
    item.top = static_cast<std::size_t>(wanted.prompt_logprobs);
  }
  if (part.last) item.sample = request->sample;
  if (job.sampling.pooling == pooling_kind::mean || part.last) {
    item.pooling = job.sampling.pooling;
    item.pooled = request->pooled;
  }
  return item;
}

void prefill_worker::look_after_device(const std::optional<device_failure>& own) {
  if (own && own->whole()) links_.health->failed(own->what());
  const auto why = own ? own->what() : links_.health->failure();
  if (why.empty() || !failure_.empty()) return;
  failure_ = why;
  core_.device_lost({ec::unavailable, "device: " + why});
  links_.device_lost(why);
}

void prefill_worker::step_done(const std::shared_ptr<compute_step>& task) {
  const auto& outcome = task->outcome();
  look_after_device(task->failure());
  std::vector<prefill_outcome> outcomes;
  for (auto& item : task->items()) {
    const auto owner = item.id.owner();
    outcomes.push_back({owner, item.start, static_cast<std::uint32_t>(item.tokens.size()),
                        item.stream != nullptr, item.first_block, std::move(item.checksums)});
    item.hold = nullptr;  // who keeps it now
    if (outcome) requests_.at(owner)->outcomes.push_back(std::move(item));
  }
  core_.step_ended(std::move(outcomes), task->elapsed(), outcome ? error{} : outcome.error(),
                   clock_type::now());
  act();
}

void prefill_worker::carry_out(const prefill_action::count& order) {
  auto& request = *requests_.at(order.owner);
  auto item = std::move(request.outcomes.front());
  request.outcomes.pop_front();
  for (const auto& score : item.scores) request.scores.push_back(to_message(score));
  request.pooled = std::move(item.pooled);
  if (item.token) request.first = to_message(*item.token);
}

void prefill_worker::carry_out(const prefill_action::discard& order) {
  requests_.at(order.owner)->outcomes.clear();
  make_sampler_of(order.owner);  // the other one has chosen a token
}

void prefill_worker::carry_out(const prefill_action::answer& order) {
  auto& request = *requests_.at(order.owner);
  const auto& job = request.job;
  const auto output = static_cast<std::uint32_t>(job.tokens.size() - job.prompt_tokens) + 1;
  first_token message;
  message.id = job.id;
  message.token = request.first;
  message.finish =
      to_message(finish_after(job.sampling, context_->text->eog_ids(), output, request.first.id));
  message.stats = core_.find(order.owner)->stats;
  message.prompt = std::move(request.scores);
  const auto rows = job.sampling.pooling == pooling_kind::mean ? static_cast<double>(job.tokens.size()) : 1.0;
  for (const auto sum : request.pooled)
    message.pooled.push_back(std::bit_cast<std::uint32_t>(static_cast<float>(sum / rows)));
  const bool finished = message.finish != finish_kind::none;
  send(caf::actor_cast<gateway_actor>(job.gateway), first_atom_v, std::move(message));
  core_.answered(order.owner, finished);
}

// ---- streams and ends
// --------------------------------------------------------------------------------------------------

void prefill_worker::carry_out(const prefill_action::open_stream& order) {
  auto& request = *requests_.at(order.owner);
  const auto id = request.job.id;
  kv_stream::source from;
  from.region = context_->region.id;
  from.prompt_tokens = static_cast<std::uint32_t>(request.job.tokens.size());
  for (const auto slot : core_.find(order.owner)->claim.slots())
    from.offsets.push_back(context_->slot_offset(slot));
  if (const auto& reach = context_->reach; reach && reach->region)
    from.device = {reach->region, reach->base,
                   [plane = context_->plane.get()](node_id peer) {
                     return plane->preferred_path(peer) == transfer_path::rdma;
                   },
                   [reach](std::uint64_t bytes) { reach->sent_bytes += bytes; }};
  request.stream = std::make_shared<kv_stream>(id, context_->layout, context_->plane, context_->transfer_ids,
                                               context_->links, std::move(from),
                                               [self = prefill_worker_actor{this}, id](bool delivered) {
                                                 caf::anon_send(self, sent_atom_v, id, delivered);
                                               });
}

void prefill_worker::carry_out(const prefill_action::aim& order) {
  requests_.at(order.owner)->stream->set_target(order.target);
}

void prefill_worker::carry_out(const prefill_action::send& order) {
  requests_.at(order.owner)->stream->prefix_ready(order.until, order.from);
}

void prefill_worker::carry_out(prefill_action::finish_stream& order) {
  const auto& request = *requests_.at(order.owner);
  order.message.first = request.first;
  request.stream->finish([decode = caf::actor_cast<decode_worker_actor>(request.job.decode),
                          handover = std::move(order.message)](std::uint32_t transfers) mutable {
    handover.transfers = transfers;
    caf::anon_send(decode, done_atom_v, handover);
  });
}

void prefill_worker::carry_out(const prefill_action::stop_stream& order) {
  requests_.at(order.owner)->stream->stop();
}

void prefill_worker::carry_out(prefill_action::hand_over& order) {
  const auto& request = *requests_.at(order.owner);
  order.message.first = request.first;
  send(caf::actor_cast<decode_worker_actor>(request.job.decode), done_atom_v, std::move(order.message));
}

void prefill_worker::carry_out(const prefill_action::stop_decode& order) {
  const auto& job = requests_.at(order.owner)->job;
  send(caf::actor_cast<decode_worker_actor>(job.decode), cancel_atom_v, job.id);
}

void prefill_worker::carry_out(const prefill_action::withdraw& order) {
  requests_.at(order.owner)->cancelled->store(true);
}

void prefill_worker::carry_out(attempt_failed& message) {
  const auto& gateway = requests_.at(message.id.owner())->job.gateway;
  send(caf::actor_cast<gateway_actor>(gateway), failed_atom_v, std::move(message));
}

void prefill_worker::carry_out(const prefill_action::forget& order) {
  const auto request = requests_.extract(order.owner);
  for (auto& promise : request.mapped()->waiting) {
    if (order.fenced) {
      promise.deliver(caf::unit);
    } else {
      promise.deliver(to_caf(error{ec::peer_lost, "slices may still land; fence this node"}));
    }
  }
}

}  // namespace mooncaf
