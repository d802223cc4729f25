#include "actors/prefill_request.hpp"

#include <algorithm>
#include <utility>

#include "actors/cluster/wire.hpp"
#include "runtime/compute/device_reach.hpp"

namespace mooncaf {

step_item prefill_request::item_of(const node_context& context, const prefill_part& part) const {
  const std::span tokens{job.tokens};
  step_item item;
  item.id = job.id;
  item.tokens = tokens.subspan(part.start, part.tokens);
  item.start = part.start;
  item.reused = part.reused;
  item.blocks = blocks;
  item.keys = std::span{job.keys}.first(part.named_blocks);
  if (part.streams) item.stream = stream;
  if (part.patience) {
    item.load = load;
    item.patience = *part.patience;
  }
  item.adapter = adapter_of(context, job);
  item.cancelled = cancelled;
  item.may_stay = part.stays;
  if (part.scored > 0) {
    item.targets = tokens.subspan(part.start + 1, part.scored);
    item.top = static_cast<std::size_t>(job.sampling.prompt_logprobs);
  }
  if (part.last) item.sample = sample;
  if (part.pools) item.pooling = job.sampling.pooling;
  item.pooled = part.pooled;
  return item;
}

prefill_outcome prefill_request::outcome_of(const node_context& context, step_item& item) const {
  prefill_outcome out;
  out.owner = item.id.owner();
  out.start = item.start;
  out.tokens = static_cast<std::uint32_t>(item.tokens.size());
  out.streamed = item.stream != nullptr;
  out.first_block = item.first_block;
  out.checksums = std::move(item.checksums);
  for (const auto& score : item.scores) out.scores.push_back(to_message(score));
  out.pooled = std::move(item.pooled);
  if (item.token) {
    out.token = to_message(*item.token);
    out.finish = finish_with(context, item.token->id);
  }
  return out;
}

void prefill_request::open_stream(const node_context& context, std::span<const slot_index> slots,
                                  std::function<void(bool delivered)> on_end) {
  kv_stream::source from;
  from.region = context.region.id;
  from.prompt_tokens = static_cast<std::uint32_t>(job.tokens.size());
  for (const auto slot : slots) from.offsets.push_back(context.slot_offset(slot));
  if (const auto& reach = context.reach; reach && reach->region)
    from.device = {reach->region, reach->base,
                   [plane = context.plane.get()](node_id peer) {
                     return plane->preferred_path(peer) == transfer_path::rdma;
                   },
                   [reach](std::uint64_t bytes) { reach->sent_bytes += bytes; }};
  stream = std::make_shared<kv_stream>(job.id, context.layout, context.plane, context.transfer_ids,
                                       context.links, std::move(from), std::move(on_end));
}

void prefill_request::give_up_load() const {
  if (load) load->give_up();
}

void prefill_request::abandon() const {
  cancelled->store(true);
  give_up_load();
  if (stream) stream->stop();
}

void prefill_request::stopped(bool fenced) {
  for (auto& promise : waiting) {
    if (fenced) promise.deliver(caf::unit);
    else promise.deliver(to_caf(error{ec::peer_lost, "slices may still land; fence this node"}));
  }
}

}  // namespace mooncaf
