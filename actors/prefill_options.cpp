#include "actors/prefill_options.hpp"

#include <utility>

#include "runtime/sched/link_book.hpp"

namespace mooncaf {

prefill_core_options prefill_options_of(const context_ptr& context, std::uint32_t stages,
                                        journal::sink journal) {
  const auto& o = context->opts;
  prefill_core_options out;
  out.layers = context->layout.n_layers;
  out.stages = stages;
  out.journal = std::move(journal);
  out.layerwise = o.prefill.kv_transfer == kv_transfer_choice::layerwise;
  out.max_attempts = o.prefill.max_queue;
  out.batch = {.chunk_tokens = o.prefill.chunk_tokens,
               .max_batch_tokens = o.prefill.max_batch_tokens,
               .block_tokens = context->layout.block_tokens,
               .aging = o.scheduler.ttft_slo,
               .max_requests = prompts_per_step(o.prefill.max_batch_tokens)};
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
  out.prefetch = {o.prefill.prefetch, o.prefill.prefetch_timeout_base,
                  o.prefill.prefetch_timeout_per_ki_token, o.prefill.prefetch_threshold};
  // The worker holds the context for longer than its core.
  out.link = [c = context.get()](node_id source, std::uint32_t blocks, time_point now) {
    const auto path = static_cast<std::uint8_t>(c->plane->preferred_path(source));
    return c->links->estimate(source, path, blocks * c->layout.block_bytes(), now);
  };
  return out;
}

}  // namespace mooncaf
