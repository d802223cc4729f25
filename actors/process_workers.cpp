#include "actors/decode_worker.hpp"
#include "actors/executor.hpp"
#include "actors/prefill_worker.hpp"
#include "actors/process.hpp"

// What a process computes with: engines and the workers that drive them.

namespace mooncaf {

result<std::shared_ptr<engine>> process::make_engine(std::uint32_t batch_tokens, std::uint32_t logit_rows,
                                                     int priority) {
  runner_options options;
  options.max_batch_tokens = batch_tokens;
  options.max_logit_rows = logit_rows;
  options.layout = context_->layout;
  options.priority = priority;
  auto runner = model_runner::make(context_->net, *context_->hardware, options);
  if (!runner) return fail(runner.error());
  auto made = std::make_shared<engine>();
  made->runner = std::move(*runner);
  return made;
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

void process::add_worker(worker_role role, caf::actor handle, std::uint32_t capacity,
                         std::vector<timing_sample> samples) {
  worker_info w;
  w.id = worker_id{context_->id.value + 1 + info_.workers.size()};
  w.role = role;
  w.handle = std::move(handle);
  w.capacity = capacity;
  w.samples = std::move(samples);
  info_.workers.push_back(std::move(w));
}

result<void> process::spawn_workers() {
  const auto& o = opts();
  std::vector<timing_sample> samples;
  if (o.cluster.prefill) {
    const auto budget = o.prefill.max_batch_tokens;
    for (std::uint32_t i = 0; i < o.prefill.instances; ++i) {
      auto machine = make_engine(budget, prefill_worker::requests_per_step(budget), 1);
      if (!machine) return fail(machine.error());
      if (i == 0) {
        auto measured = calibrate_prefill(*(*machine)->runner, budget);
        if (!measured) return fail(measured.error());
        samples = std::move(*measured);
      }
      const auto links = next_links();
      auto worker = spawn_vital<prefill_worker>("prefill worker", context_, links, *machine);
      add_worker(worker_role::prefill, caf::actor_cast<caf::actor>(worker), budget, samples);
      local_.prefill.push_back(std::move(worker));
    }
  }
  if (o.cluster.decode) {
    for (std::uint32_t i = 0; i < o.decode.instances; ++i) {
      auto machine = make_engine(o.decode.max_batch, o.decode.max_batch, 0);
      if (!machine) return fail(machine.error());
      if (i == 0) {
        auto measured = calibrate_decode(*(*machine)->runner, o.decode.max_batch);
        if (!measured) return fail(measured.error());
        samples = std::move(*measured);
      }
      const auto links = next_links();
      auto worker = spawn_vital<decode_worker>("decode worker", context_, links, *machine, board_);
      add_worker(worker_role::decode, caf::actor_cast<caf::actor>(worker), o.decode.max_batch, samples);
      local_.decode.push_back(std::move(worker));
    }
  }
  return {};
}

}  // namespace mooncaf
