#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <sstream>

#include "actors/cluster/shutdown.hpp"
#include "actors/decode_worker.hpp"
#include "actors/device_writer.hpp"
#include "actors/executor.hpp"
#include "actors/metrics/metrics.hpp"
#include "actors/prefill_options.hpp"
#include "actors/prefill_worker.hpp"
#include "actors/process/journal_file.hpp"
#include "actors/process/model_extras.hpp"
#include "actors/process/process.hpp"
#include "config/device_name.hpp"
#include "runtime/compute/device_reach.hpp"
#include "runtime/compute/pipeline_pass.hpp"
#include "runtime/compute/shared_exchange.hpp"
#include "runtime/compute/tensor_pass.hpp"
#include "runtime/loading/kept_timings.hpp"
#include "runtime/log/log.hpp"
#include "runtime/model/lora_adapter.hpp"
#include "runtime/model/model_runner.hpp"

// The workers of a process, and the engines that they drive.

namespace mooncaf {

namespace {

/// Prefill steps are large and wait for decode's turns on the device; a worker's limits come from its
/// options.
runner_options runner_options_of(const node_context& context, worker_role role) {
  const auto& o = context.opts;
  runner_options r;
  const auto budget = o.prefill.max_batch_tokens;
  const bool prefill = role == worker_role::prefill;
  r.max_batch_tokens = prefill ? budget : o.decode.max_batch;
  r.max_logit_rows = prefill ? prompts_per_step(budget) : o.decode.max_batch;
  r.layout = context.layout;
  r.device_blocks = context.device_blocks;
  r.context_tokens = o.model.context_length;
  for (const auto& [name, adapter] : context.adapters) r.lora_rank = std::max(r.lora_rank, adapter->rank());
  r.priority = prefill ? 1 : 0;
  return r;
}

/// Processes of one host that read one file of options, and have no names, want the same file: the first has it, and
/// the others serve without.
result<journal::sink> open_worker_journal(const scheduler_options& o, const std::string& name,
                                          worker_role role, std::uint32_t number) {
  if (o.journal.empty()) return journal::sink{};
  auto opened = open_journal(worker_journal_path(o.journal, name, role, number), o.journal_limit);
  if (opened || opened.error() != ec::already_exists) return opened;
  log_warn("journal",
           {{"problem", opened.error().detail}, {"now", "this worker's decisions are not written down"}});
  return journal::sink{};
}

result<std::unique_ptr<pass_stage>> as_stage(result<std::unique_ptr<model_runner>> made) {
  if (!made) return fail(made.error());
  return std::unique_ptr<pass_stage>{std::move(*made)};
}

/// A stage of devices that share its layers, in the node's own blocks.
result<std::unique_ptr<pass_stage>> make_tensor(const node_context& context, worker_role role,
                                                std::span<const compute_stage> devices) {
  auto options = runner_options_of(context, role);
  options.layout.n_layers = devices.front().net->part().count;
  const auto whole = options.layout;
  const auto& shape = context.shape;
  const auto exchange = devices.front().exchange
                            ? devices.front().exchange
                            : shared_exchange::make(static_cast<std::uint32_t>(devices.size()),
                                                    group_exchange::widest_row(shape));
  std::vector<std::unique_ptr<pass_stage>> ranks;
  for (const auto& device : devices) {
    const auto share = device.net->share();
    options.layout = layout_of_share(whole, share);
    options.exchange = exchange->end(share.rank);
    options.device_blocks = device.device_blocks;
    auto rank = model_runner::make(device.net, *device.hardware, options);
    if (!rank) return fail(rank.error());
    ranks.push_back(std::move(*rank));
  }
  auto made = tensor_pass::make(std::move(ranks), exchange, whole, shape.vocab_size);
  if (!made) return fail(made.error());
  return std::unique_ptr<pass_stage>{std::move(*made)};
}

/// Where the times of this role's passes are kept: of this build, on this host and device, with this model.
kept_timings timings_of(const node_context& context, worker_role role, std::uint32_t context_tokens,
                        std::uint32_t batch_tokens) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  struct stat binary {};
  ::stat("/proc/self/exe", &binary);
  std::ostringstream of;
  of << host << ", build of " << binary.st_mtim.tv_sec << '.' << binary.st_mtim.tv_nsec << ", "
     << binary.st_size << " bytes, " << to_string(cluster_identity(context)) << ", " << to_string(role) << ' '
     << context_tokens << '/' << batch_tokens << ", " << context.opts.model.device;
  for (const auto& stage : context.stages) of << ", " << stage.hardware->info().name;
  return {kept_timings::default_folder(), of.str()};
}

}  // namespace

/// By the process's device, or by the stages of its group, here or elsewhere.
result<std::unique_ptr<forward_pass>> process::make_pass(worker_role role) const {
  const auto& stages = context_->stages;
  const auto& shape = context_->shape;
  const pipeline_shape whole{context_->layout, shape.vocab_size, shape.dim};
  const auto make = [&](const compute_stage& stage, std::shared_ptr<rank_exchange> exchange = {}) {
    auto options = runner_options_of(*context_, role);
    options.layout.n_layers = stage.net->part().count;
    if (exchange) options.layout = layout_of_share(options.layout, stage.net->share());
    options.exchange = std::move(exchange);
    options.device_blocks = stage.device_blocks;
    return model_runner::make(stage.net, *stage.hardware, options);
  };
  if (!group_.empty()) {
    auto all = group_.stages(*context_, [&](std::shared_ptr<rank_exchange> exchange) {
      return as_stage(make(stages.front(), std::move(exchange)));
    });
    if (!all) return fail(all.error());
    return pipeline_pass::make(std::move(*all), whole);
  }
  if (stages.size() == 1) return make(stages.front());
  std::vector<std::unique_ptr<pass_stage>> ranks;
  for (auto rest = std::span{stages}; !rest.empty();) {
    const auto of = rest.front().net->share().of;
    auto stage = of == 1 ? as_stage(make(rest.front())) : make_tensor(*context_, role, rest.first(of));
    if (!stage) return fail(stage.error());
    ranks.push_back(std::move(*stage));
    rest = rest.subspan(of);
  }
  return pipeline_pass::make(std::move(ranks), whole);
}

result<std::shared_ptr<engine>> process::make_engine(worker_role role) const {
  auto made = std::make_shared<engine>();
  const auto& m = opts().model;
  if (modelled_) {
    made->runner = std::make_unique<sim::modelled_pass>(
        sim::modelled_options{*modelled_, role, m.time_scale, m.pipeline});
    return made;
  }
  auto runner = make_pass(role);
  if (!runner) return fail(runner.error());
  made->runner = std::move(*runner);
  return made;
}

result<std::vector<timing_sample>> process::calibrate(worker_role role) const {
  const auto& m = opts().model;
  if (modelled_) return modelled_samples(*modelled_, role, m.time_scale, m.pipeline);
  const auto limits = runner_options_of(*context_, role);
  auto runner = make_pass(role);
  if (!runner) return fail(runner.error());
  const auto own = context_->shape.context_length;
  const auto context = limits.context_tokens == 0 ? own : std::min(limits.context_tokens, own);
  const bool prefill = role == worker_role::prefill;
  // Ranks reach the node's own memory alone, where no block lies yet.
  const auto memory = group_.empty() ? std::span<std::byte>{} : context_->memory->bytes();
  const auto kept = timings_of(*context_, role, context, limits.max_batch_tokens);
  // Nothing tells whether ranks of other hosts are as fast as at an earlier start.
  const auto known = group_.empty() ? kept.find(kept_timings::wall_clock::now(), m.timings_age)
                                    : std::vector<timing_sample>{};
  log_info(known.empty() ? "measuring" : "measured before", {{"worker", to_string(role)}});
  auto samples = prefill ? calibrate_prefill(**runner, context, limits.max_batch_tokens, memory, known)
                         : calibrate_decode(**runner, context, limits.max_batch_tokens, memory, known);
  if (samples && known.empty() && group_.empty()) {
    if (const auto done = kept.keep(*samples, kept_timings::wall_clock::now()); !done)
      log_warn("measured times are not kept", {{"reason", done.error().detail}});
  }
  // A prompt's passes follow each other through a group a stage's time apart.
  if (samples && prefill)
    for (auto& s : *samples) s[2] /= (*runner)->stages();
  for (const auto& stage : context_->stages)
    if (stage.device_blocks) stage.device_blocks->start_over();
  return samples;
}

executor_actor process::new_executor() {
  executors_.push_back(spawn_executor(*system_));
  return executors_.back();
}

worker_links process::next_links() {
  worker_links links;
  links.id = worker_id{context_->id.value + 1 + info_.workers.size()};
  links.shard = local_.shard;
  links.messenger = local_.messenger;
  // Coupled: one thread computes for both roles, so a decode step waits for the prefill step before it.
  const bool coupled = opts().cluster.mode == serving_mode::coupled;
  links.executor = coupled && !info_.workers.empty() ? coupled_ : new_executor();
  if (coupled) coupled_ = links.executor;
  return links;
}

bool process::lives_without_workers() const {
  const auto& c = opts().cluster;
  // A leader finds its ranks when it starts, so one that keeps a cache alone starts again.
  return c.conductor || c.gateway || (c.cache && group_.empty());
}

void process::device_lost(worker_role role, const std::string& why) {
  const std::string name{to_string(role)};
  context_->meters->device_failed(name);
  const bool others = lives_without_workers();
  const bool last = ++lost_workers_ == info_.workers.size();
  log_error("device failed; its worker computes nothing any more",
            {{"worker", name},
             {"reason", why},
             {"effect", last && !others ? "the process ends, having no other role, so that others take over"
                                        : "its requests go elsewhere; the process goes on without it"},
             {"next", "put right what the reason names, then start this process again"}});
  if (last && !others) leave_now(static_cast<int>(exit_code::actor_failed));
}

void process::add_worker(worker_role role, caf::actor handle, std::uint32_t capacity,
                         std::vector<timing_sample> samples) {
  worker_info w;
  w.id = worker_id{context_->id.value + 1 + info_.workers.size()};
  w.role = role;
  w.handle = std::move(handle);
  w.capacity = capacity;
  w.samples = std::move(samples);
  if (role == worker_role::decode) {
    const auto& layout = context_->layout;
    w.memory_tokens = (context_->memory->size_bytes() - opts().store.shared_bytes) / layout.block_bytes() *
                      layout.block_tokens / opts().decode.instances;
  }
  info_.workers.push_back(std::move(w));
}

/// The devices of a group hold their layers of blocks, each by itself, and write all of them to the host's memory.
result<void> process::open_device_memory() {
  const auto& m = opts().model;
  const auto longest = m.context_length == 0 ? context_->shape.context_length : m.context_length;
  const auto rule = device_write_rule::of(m.device_write_policy, opts().cache.selective_hits);
  const bool group = context_->stages.size() > 1 || !group_.empty();
  for (auto& stage : context_->stages) {
    auto& device = *stage.hardware;
    if (device.info().host_memory) continue;
    const auto share = stage.net->share();
    auto layout = context_->layout;
    layout.n_layers = stage.net->part().count;
    if (!share.whole()) layout = layout_of_share(layout, share).compact();
    if (!share.whole() && share.rank == 0 && group_.empty())
      stage.exchange = shared_exchange::make(share.of, group_exchange::widest_row(context_->shape), true);
    auto made =
        device_kv::make(device, layout, m.device_kv_bytes, longest, rule, group ? nullptr : context_->blocks);
    if (!made) return fail(std::move(made.error()));
    stage.device_blocks = std::move(*made);
    if (!context_->memory) continue;
    if (auto pinned = device.pin(context_->memory->bytes(), context_->memory); !pinned)
      log_warn("memory",
               {{"problem", to_string(pinned.error())},
                {"effect", "KV between the device and the host is copied by way of the driver's memory"}});
    stage.device_blocks->measure_link(device, context_->memory->bytes());
  }
  if (group || context_->stages.empty() || !context_->stages.front().device_blocks) return {};
  context_->device_blocks = context_->stages.front().device_blocks;
  if (!rule.through)
    local_.writer = spawn_vital<device_writer>("device writer", context_, local_.shard, new_executor());
  reach_device_memory();
  return {};
}

/// Where prefill's KV leaves from, if it does.
void process::reach_device_memory() {
  const auto& kv = context_->device_blocks;
  if (!opts().cluster.prefill || !context_->plane) return;
  if (context_->layout.pages == page_order::page_first) {
    context_->reach = std::make_shared<device_reach>();
    context_->reach->why_not = "l2-layout: pages are laid out by token, the device's blocks by layer";
  } else if (!config::cuda_ordinal(opts().model.device)) {
    context_->reach = std::make_shared<device_reach>();
    context_->reach->why_not = "the memory of a " + opts().model.device + " device is its own alone";
  } else {
    context_->reach =
        offer_to_nics(*context_->plane, kv->block(0), kv->stats().blocks * context_->layout.block_bytes());
  }
  const auto& reach = *context_->reach;
  if (reach.region) log_info("KV leaves from the device's memory", {{"read by", "NICs"}});
  else log_info("KV leaves from the host's memory", {{"reason", reach.why_not}});
}

/// All instances of a role are calibrated once: they run on the same device.
result<void> process::spawn_workers() {
  if (auto opened = open_device_memory(); !opened) return opened;
  const auto& o = opts();
  const auto spawn = [&](worker_role role, std::uint32_t instances, std::uint32_t capacity,
                         auto&& start) -> result<void> {
    const auto samples = calibrate(role);
    if (!samples) return fail(samples.error());
    const auto points = as_timing_points(*samples);
    for (std::uint32_t i = 0; i < instances; ++i) {
      auto machine = make_engine(role);
      if (!machine) return fail(machine.error());
      auto links = next_links();
      links.health = health_;
      auto journal = open_worker_journal(o.scheduler, o.cluster.name, role, i);
      if (!journal) return fail(journal.error());
      links.journal = std::move(*journal);
      while (role == worker_role::prefill && links.beside.size() + 1 < (*machine)->runner->stages())
        links.beside.push_back(new_executor());
      if (role == worker_role::decode && context_->device_blocks) links.loads = new_executor();
      links.device_lost = [this, role](const std::string& why) { device_lost(role, why); };
      if (role == worker_role::prefill) links.passes = prefill_model{points};
      else links.steps = decode_model{points};
      add_worker(role, start(links, *machine), capacity, *samples);
    }
    return {};
  };
  if (o.cluster.prefill) {
    const auto started = spawn(
        worker_role::prefill, o.prefill.instances, o.prefill.max_batch_tokens,
        [&](const worker_links& links, const std::shared_ptr<engine>& machine) {
          local_.prefill.push_back(spawn_vital<prefill_worker>("prefill worker", context_, links, machine));
          return caf::actor_cast<caf::actor>(local_.prefill.back());
        });
    if (!started) return started;
  }
  if (!o.cluster.decode) return {};
  return spawn(worker_role::decode, o.decode.instances, o.decode.max_batch,
               [&](const worker_links& links, const std::shared_ptr<engine>& machine) {
                 local_.decode.push_back(
                     spawn_vital<decode_worker>("decode worker", context_, links, machine, board_));
                 return caf::actor_cast<caf::actor>(local_.decode.back());
               });
}

}  // namespace mooncaf
