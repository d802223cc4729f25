// What a prefill worker does before it computes: it looks what there is of the prompt, weighs loading against
// computing, and loads.

#include <algorithm>
#include <caf/send.hpp>
#include <tuple>
#include <utility>

#include "actors/conversions.hpp"
#include "actors/prefill_worker.hpp"
#include "runtime/sched/link_book.hpp"

namespace mooncaf {

namespace {

constexpr auto request_limit = std::chrono::seconds(30);  ///< for answers of the shard

}  // namespace

void prefill_worker::look(const live_ptr& request) {
  const auto& job = request->job;
  const auto count = std::min<std::size_t>(reusable_blocks(job), job.keys.size());
  block_keys_t keys(job.keys.begin(), job.keys.begin() + static_cast<std::ptrdiff_t>(count));
  this->request(links_.shard, request_limit, look_atom_v, std::move(keys))
      .then(
          [this, request](const prefix_view& here) {
            if (request->over) return end(request);
            weigh(request, here);
          },
          [this, request](const caf::error& e) {
            if (request->over) return end(request);
            fail(request, from_caf(e), true);
          });
}

void prefill_worker::weigh(const live_ptr& request, const prefix_view& here) {
  const auto& where = request->job.placement;
  const auto& layout = context_->layout;
  load_question q;
  q.prompt_tokens = static_cast<std::uint32_t>(request->job.tokens.size());
  q.block_tokens = layout.block_tokens;
  q.dram_blocks = here.dram_blocks;
  q.held_blocks = here.held_blocks;
  if (where.source && where.source != context_->id)
    q.remote_blocks = std::min(where.source_blocks, reusable_blocks(request->job));
  q.threshold_tokens = prefetch_.threshold_tokens();
  q.disk = [&](std::uint32_t blocks) { return duration{here.disk_wait_ns + here.disk_block_ns * blocks}; };
  const auto path = static_cast<std::uint8_t>(context_->plane->preferred_path(where.source));
  q.link = [&](std::uint32_t blocks) {
    return context_->links->estimate(where.source, path, blocks * layout.block_bytes(), clock_type::now());
  };
  if (prefetch_.begins(idle())) request->plan = plan_load(q, computing_model_);
  pin(request, request->plan.from_disk);
}

void prefill_worker::pin(const live_ptr& request, std::uint32_t from_ssd) {
  request->at = phase::pinning;
  request->load_began = clock_type::now();
  const auto& job = request->job;
  auto what = request->claim.pin(from_ssd);
  if (const auto limit = prefetch_.limit(tokens_loading(request)); from_ssd > 0 && limit < duration::max())
    delayed_send(this, limit, stop_atom_v, job.id);
  this->request(links_.shard, request_limit, pin_atom_v, job.id.owner(), std::move(what.keys), from_ssd)
      .then(
          [this, request, turn = what.turn](const pinned_slots& pinned) {
            const auto missing = request->claim.pinned(turn, pinned);
            if (!missing) return;
            if (request->over) return end(request);
            const auto block_tokens = context_->layout.block_tokens;
            request->computed = request->claim.have() * block_tokens;
            request->stats.ssd_tokens = pinned.from_ssd * block_tokens;
            request->stats.dram_tokens = request->computed - request->stats.ssd_tokens;
            reserve(request, *missing);
          },
          [this, request, turn = what.turn](const caf::error& e) {
            if (!request->claim.awaits(turn)) return;
            if (request->over) return end(request);
            fail(request, from_caf(e), true);
          });
}

void prefill_worker::reserve(const live_ptr& request, std::uint32_t count) {
  request->at = phase::reserving;
  this->request(links_.shard, request_limit, reserve_atom_v, request->job.id.owner(), count)
      .then(
          [this, request](const std::vector<slot_index>& slots) {
            if (request->over) return end(request);
            request->claim.reserved(slots);
            request->blocks.clear();
            for (const auto slot : request->claim.slots()) request->blocks.push_back(context_->slot(slot));
            fetch(request);
          },
          [this, request](const caf::error& e) {
            if (request->over) return end(request);
            fail(request, from_caf(e), true);
          });
}

void prefill_worker::fetch(const live_ptr& request) {
  const auto& where = request->job.placement;
  const auto here = request->claim.have();
  const auto there =
      request->plan.from_remote > 0 ? std::min(where.source_blocks, reusable_blocks(request->job)) : 0;
  if (there <= here || !prefetch_.begins(idle())) return enqueue(request);
  request->plan.from_remote = there - here;
  request->at = phase::fetching;
  request->load_began = clock_type::now();
  auto plan = request->claim.fetch(where.source, there, request->plan.worth.count());
  const auto tokens = tokens_loading(request);
  if (const auto limit = prefetch_.limit(tokens); limit < duration::max())
    delayed_send(this, limit, stop_atom_v, plan.id);
  const auto path = static_cast<std::uint8_t>(context_->plane->preferred_path(where.source));
  const auto expected = context_->links->estimate(
      where.source, path, plan.slots.size() * context_->layout.block_bytes(), clock_type::now());
  const auto ended = [this, request](const remote_blocks& got) { fetched(request, got); };
  // A prefix that cannot be had is a miss: it is computed.
  const auto failed = [this, request](const caf::error&) { fetched(request, {}); };
  // The messenger bounds it. Until it answers, blocks may still arrive in these slots.
  if (!prefetch_.by_layers(tokens, expected)) {
    this->request(links_.messenger, caf::infinite, fetch_atom_v, std::move(plan)).then(ended, failed);
    return;
  }
  request->arrival = layer_arrival{context_->layout.n_layers, request->load_began};
  request->load = std::make_shared<prefix_load>(
      context_->layout.n_layers,
      [self = prefill_worker_actor{this}, id = plan.id] { caf::anon_send(self, layers_atom_v, id); });
  this->request(links_.messenger, caf::infinite, load_atom_v, std::move(plan), request->load)
      .then(ended, failed);
}

void prefill_worker::fetched(const live_ptr& request, const remote_blocks& got) {
  request->claim.fetched();
  if (request->over) return end(request);
  request->stats.fetch_ns = (clock_type::now() - request->load_began).count();
  if (request->early) return settle(request, got);
  request->load = nullptr;
  adopt(request, got);
  request->computed += request->stats.remote_tokens;
  enqueue(request);
}

/// Publishes fetched blocks, which were verified.
void prefill_worker::adopt(const live_ptr& request, const remote_blocks& got) {
  auto items = request->claim.adopt(got);
  request->stats.remote_tokens = static_cast<std::uint32_t>(items.size()) * context_->layout.block_tokens;
  if (items.empty()) return;
  send(links_.shard, fetched_atom_v, static_cast<std::uint64_t>(items.size()));
  send(links_.shard, commit_atom_v, request->job.id.owner(), std::move(items));
}

// ---- waiting for it
// -------------------------------------------------------------------------------------------------

std::uint32_t prefill_worker::tokens_loading(const live_ptr& request) const {
  const auto& plan = request->plan;
  if (request->at == phase::pinning) return plan.from_disk * context_->layout.block_tokens;
  return request->claim.loading() ? plan.from_remote * context_->layout.block_tokens : 0;
}

void prefill_worker::maybe_stop(const live_ptr& request) {
  const auto tokens = tokens_loading(request);
  // A pass that is under way waits for its layers as long as it was given.
  if (request->over || request->early || tokens == 0) return;
  if (!prefetch_.ends(tokens, clock_type::now() - request->load_began, idle())) return;
  if (request->at != phase::pinning) return stop_loading(request);
  // What was read until now is in memory: it is found there.
  request->plan.from_disk = 0;
  send(links_.shard, release_atom_v, request->job.id.owner());
  pin(request, 0);
}

void prefill_worker::stop_loading(const live_ptr& request) {
  if (request->load) request->load->give_up();
  if (request->claim.loading()) send(links_.messenger, stop_atom_v, request->job.id);
}

void prefill_worker::use_idle_device() {
  if (!idle()) return;
  std::vector<live_ptr> waiting;
  for (const auto& [owner, request] : requests_) {
    if (request->at == phase::pinning || request->at == phase::fetching) waiting.push_back(request);
  }
  live_ptr best;
  const auto urgency = [](const live_ptr& r) {
    return std::tuple{r->job.priority, r->arrived + duration{r->job.ttft_slo_ns}, r->job.id.owner()};
  };
  for (const auto& request : waiting) {
    maybe_stop(request);
    if (!request->load || request->over || !request->claim.loading()) continue;
    const auto behind = (request->claim.have() + request->plan.from_remote) * context_->layout.block_tokens;
    const auto left = static_cast<std::uint32_t>(request->job.tokens.size()) - behind;
    const auto pass = computing_model_.estimate(std::min(left, context_->opts.prefill.chunk_tokens), behind);
    if (request->arrival.may_begin(pass) && (!best || urgency(request) < urgency(best))) best = request;
  }
  if (best) begin_early(best);
}

void prefill_worker::begin_early(const live_ptr& request) {
  request->early = true;
  request->computed = (request->claim.have() + request->plan.from_remote) * context_->layout.block_tokens;
  enqueue(request);  // alone, since the device is idle: nobody else waits for its layers
}

void prefill_worker::settle(const live_ptr& request, const remote_blocks& got) {
  if (request->again || got.blocks.size() < request->plan.from_remote) {
    request->again = true;
    return compute_again(request);
  }
  adopt(request, got);
  request->early = false;
  request->load = nullptr;
  const auto block_tokens = context_->layout.block_tokens;
  const auto prefix = (request->claim.have() + request->plan.from_remote) * block_tokens;
  if (request->stream && layerwise())
    request->stream->prefix_ready(prefix, request->claim.have() * block_tokens);
  for (auto& [item, elapsed] : std::exchange(request->held, {})) {
    item_done(request, item, elapsed);
  }
}

/// From behind what was here, once neither a pass nor a transfer touches its blocks.
void prefill_worker::compute_again(const live_ptr& request) {
  queue_.cancel(request_id{request->job.id.owner()});
  request->held.clear();
  if (request->busy || request->claim.loading()) return;
  request->early = false;
  request->again = false;
  request->load = nullptr;
  request->computed = request->claim.have() * context_->layout.block_tokens;
  enqueue(request);
}

}  // namespace mooncaf
