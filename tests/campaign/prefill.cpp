// A prefill worker of a virtual process: what it decides with is the product's (`prefill_batch`, `plan_load`,
// `prefetch_policy`, `block_claim`); the order of its steps is that of actors/prefill_worker.cpp, but for
// computing behind a prefix whose layers are still coming in.

#include <algorithm>

#include "tests/campaign/machine.hpp"

namespace mooncaf::campaign {

namespace {

constexpr duration early_limit = 30s;

prefetch_policy draw_policy(dice& luck) {
  constexpr prefetch_mode modes[] = {prefetch_mode::best_effort, prefetch_mode::wait_complete,
                                     prefetch_mode::timeout};
  prefetch_options out;
  out.mode = modes[luck.below(std::size(modes))];
  out.base = luck.between(0ms, 3ms);
  out.per_1024_tokens = 200ms;
  out.threshold_tokens = block_tokens;
  return prefetch_policy{out};
}

}  // namespace

prefill_twin::prefill_twin(machine& here)
    : here_(here),
      prefetch_(draw_policy(here.w.luck)),
      computing_model_(prefill_samples),
      queue_({.chunk_tokens = 8, .max_batch_tokens = 12, .block_tokens = block_tokens, .max_requests = 3}) {}

void prefill_twin::take(const work_order& job) {
  const auto owner = job.id.owner();
  if (requests_.contains(owner) || cancelled_early_.contains(owner)) return;
  auto r = std::make_shared<live>();
  r->job = job;
  r->claim = block_claim{job.id, chain_of(job), reusable(job), blocks_for(job.tokens.size())};
  requests_.emplace(owner, r);
  const auto count = std::min<std::size_t>(reusable(job), job.keys.size());
  here_.cache->look({job.keys.begin(), job.keys.begin() + static_cast<std::ptrdiff_t>(count)},
                    [this, r](const prefix_view& held) {
                      if (r->over) return end(r);
                      weigh(r, held);
                    });
}

std::uint32_t prefill_twin::reusable(const work_order& job) const {
  return static_cast<std::uint32_t>((job.tokens.size() - 1) / block_tokens);
}

// ---- what is reused
// -----------------------------------------------------------------------------------------------------

void prefill_twin::weigh(const live_ptr& r, const prefix_view& held) {
  const auto& where = r->job.placement;
  load_question q;
  q.prompt_tokens = static_cast<std::uint32_t>(r->job.tokens.size());
  q.block_tokens = block_tokens;
  q.dram_blocks = held.dram_blocks;
  q.held_blocks = held.held_blocks;
  if (where.source && where.source != node_of(here_.self))
    q.remote_blocks = std::min(where.source_blocks, reusable(r->job));
  q.threshold_tokens = prefetch_.threshold_tokens();
  q.disk = [&](std::uint32_t blocks) { return duration{held.disk_wait_ns + held.disk_block_ns * blocks}; };
  q.link = [](std::uint32_t blocks) { return 100us * blocks; };
  if (prefetch_.begins(idle())) r->plan = plan_load(q, computing_model_);
  pin(r, r->plan.from_disk);
}

void prefill_twin::pin(const live_ptr& r, std::uint32_t from_ssd) {
  r->at = phase::pinning;
  r->load_began = here_.now();
  auto what = r->claim.pin(from_ssd);
  if (from_ssd > 0) stop_later(r);
  here_.cache->pin(
      r->claim.owner(), what,
      [this, r, turn = what.turn](const pinned_slots& held) {
        const auto missing = r->claim.pinned(turn, held);
        if (!missing) return;
        if (r->over) return end(r);
        r->computed = r->claim.have() * block_tokens;
        reserve(r, *missing);
      },
      [this, r, turn = what.turn](const error& why) {
        if (!r->claim.awaits(turn)) return;
        if (r->over) return end(r);
        fail(r, why);
      });
}

void prefill_twin::reserve(const live_ptr& r, std::uint32_t count) {
  r->at = phase::reserving;
  here_.cache->reserve(
      r->claim.owner(), count,
      [this, r](const std::vector<slot_index>& slots) {
        if (r->over) return end(r);
        r->claim.reserved(slots);
        fetch(r);
      },
      [this, r](const error& why) {
        if (r->over) return end(r);
        fail(r, why);
      });
}

void prefill_twin::fetch(const live_ptr& r) {
  const auto& where = r->job.placement;
  const auto there = r->plan.from_remote > 0 ? std::min(where.source_blocks, reusable(r->job)) : 0;
  if (there <= r->claim.have() || !prefetch_.begins(idle())) return enqueue(r);
  r->plan.from_remote = there - r->claim.have();
  r->at = phase::fetching;
  r->load_began = here_.now();
  stop_later(r);
  here_.mail.fetch(r->claim.fetch(where.source, there, r->plan.worth.count()),
                   [this, r](const remote_blocks& got) {
                     r->claim.fetched();
                     if (r->over) return end(r);
                     auto items = r->claim.adopt(got);
                     r->computed += static_cast<std::uint32_t>(items.size()) * block_tokens;
                     if (!items.empty()) here_.cache->commit(r->claim.owner(), std::move(items));
                     enqueue(r);
                   });
}

std::uint32_t prefill_twin::tokens_loading(const live& r) const {
  if (r.at == phase::pinning) return r.plan.from_disk * block_tokens;
  return r.claim.loading() ? r.plan.from_remote * block_tokens : 0;
}

void prefill_twin::stop_later(const live_ptr& r) {
  const auto limit = prefetch_.limit(tokens_loading(*r));
  if (limit < duration::max()) here_.w.net.in(here_.self, limit, [this, r] { maybe_stop(r); });
}

void prefill_twin::maybe_stop(const live_ptr& r) {
  const auto tokens = tokens_loading(*r);
  if (r->over || tokens == 0) return;
  if (!prefetch_.ends(tokens, here_.now() - r->load_began, idle())) return;
  if (r->at != phase::pinning) return here_.mail.stop(r->job.id);
  // What was read until now is in memory: it is found there.
  r->plan.from_disk = 0;
  here_.cache->release(r->claim.owner());
  pin(r, 0);
}

// ---- steps
// --------------------------------------------------------------------------------------------------------------

void prefill_twin::enqueue(const live_ptr& r) {
  const auto decode = process_of(r->job.placement.decode);
  r->streams = decode != here_.self;
  if (auto early = early_targets_.extract(r->claim.owner())) r->target = early.mapped().first;
  r->at = phase::queued;
  stream(r);
  prefill_entry entry;
  entry.id = request_id{r->claim.owner()};
  entry.prompt_tokens = static_cast<std::uint32_t>(r->job.tokens.size());
  entry.start = r->computed;
  entry.priority = r->job.priority;
  entry.arrival = here_.now() - duration{r->job.age_ns};
  entry.deadline = here_.now() + duration{r->job.ttft_slo_ns};
  queue_.push(entry);
  step();
}

void prefill_twin::step() {
  if (computing_) return;
  const auto chunks = queue_.next(here_.now());
  if (chunks.empty()) {
    std::vector<live_ptr> waiting;
    for (const auto& [owner, r] : requests_) waiting.push_back(r);
    for (const auto& r : waiting) maybe_stop(r);
    return;
  }
  computing_ = true;
  std::vector<std::pair<live_ptr, prefill_chunk>> items;
  for (const auto& chunk : chunks) {
    items.emplace_back(requests_.at(chunk.id.value), chunk);
    items.back().first->busy = true;
  }
  here_.w.net.in(here_.self, here_.w.luck.between(1ms, 8ms), [this, items = std::move(items)] {
    computing_ = false;
    for (const auto& [r, chunk] : items) {
      r->busy = false;
      write(*r, chunk);  // wanted or not
      if (r->over) {
        end(r);
      } else {
        computed(r, chunk);
      }
    }
    step();
  });
}

void prefill_twin::write(live& r, const prefill_chunk& chunk) {
  const auto& tokens = r.job.tokens;
  const auto until = chunk.start + chunk.tokens;
  for (std::uint32_t i = 0; i < blocks_for(until); ++i) {
    auto& slot = here_.cache->at(r.claim.slots()[i]);
    const auto begin = i * block_tokens;
    // All that lies before the chunk is read, and has to be what it should.
    if (begin < chunk.start) r.right = r.right && slot == content_of(std::span{tokens}.first(chunk.start), i);
    if (begin + block_tokens > chunk.start)
      slot = r.right ? content_of(std::span{tokens}.first(until), i) : garbage;
  }
}

void prefill_twin::computed(const live_ptr& r, const prefill_chunk& chunk) {
  r->computed = chunk.start + chunk.tokens;
  stream(r);
  std::vector<std::uint64_t> sums;
  const auto first = chunk.start / block_tokens;
  for (auto i = first; i < r->computed / block_tokens; ++i)
    sums.push_back(here_.cache->at(r->claim.slots()[i]));
  if (!sums.empty()) here_.cache->commit(r->claim.owner(), r->claim.name(first, sums));
  if (r->computed == r->job.tokens.size()) prompt_done(r);
}

void prefill_twin::prompt_done(const live_ptr& r) {
  const auto& job = r->job;
  const auto to = process_of(job.gateway_node), decode = process_of(job.placement.decode);
  const auto output = static_cast<std::uint32_t>(job.tokens.size() - job.prompt_tokens) + 1;
  first_token message;
  message.id = job.id;
  message.token = as_token(r->right ? token_after(fold_all(job.tokens)) : -1);
  if (output >= job.sampling.max_tokens) message.finish = finish_kind::length;
  here_.w.net.send_of_attempt(here_.self, to, [this, to, message] {
    here_.at(to).gateway->core.first(message, here_.now());
    here_.at(to).gateway->act();
  });
  if (message.finish != finish_kind::none) {
    here_.w.net.send_of_attempt(here_.self, decode,
                                [&m = here_.at(decode), id = job.id] { m.decode->cancel(id); });
    return end(r);
  }
  if (!r->streams) {
    prefill_done handover;
    handover.id = job.id;
    handover.first = message.token;
    handover.slots = r->claim.slots();
    handover.checksums = r->claim.checksums();
    here_.w.net.send(here_.self, decode, [&m = here_.at(decode), handover] { m.decode->done(handover); });
    requests_.erase(r->claim.owner());  // the owner and its blocks are decode's now
    return;
  }
  r->at = phase::sending;
  r->finished = true;
  settle(r);
}

void prefill_twin::target(const kv_target& target) {
  const auto i = requests_.find(target.id.owner());
  if (i == requests_.end() || !i->second->streams) {
    early_targets_[target.id.owner()] = {target, here_.now()};
    return;
  }
  const auto r = i->second;
  if (r->target || stream_ended(*r)) return;
  r->target = target;
  stream(r);
  settle(r);
}

void prefill_twin::stream(const live_ptr& r) {
  if (!r->streams || !r->target || r->failed || r->stopped) return;
  const auto whole = r->computed == r->job.tokens.size();
  const auto ready = whole ? blocks_for(r->computed) : r->computed / block_tokens;
  for (; r->sent < ready; ++r->sent) {
    if (r->sent < r->target->have_blocks) continue;
    const auto to = process_of(r->target->node);
    const auto slot = static_cast<slot_index>(r->target->offsets[r->sent - r->target->have_blocks]);
    const auto content = here_.cache->at(r->claim.slots()[r->sent]);
    ++r->transfers;
    auto number = std::make_shared<std::uint64_t>();
    *number = here_.mail.write(
        to,
        [&m = here_.at(to), slot, content, owner = r->claim.owner()] {
          m.cache->at(slot) = content;
          m.w.net.in(m.self, 10us, [&m, owner] { m.decode->landed(owner); });
        },
        [this, r, number](bool landed, bool fenced) {
          std::erase(r->under_way, *number);
          if (!landed) r->failed = true;
          r->fenced = r->fenced && fenced;
          settle(r);
        });
    r->under_way.push_back(*number);
  }
}

bool prefill_twin::stream_ended(const live& r) const {
  const bool nothing_to_come = r.failed || r.stopped || (r.finished && r.target);
  return nothing_to_come && r.under_way.empty();
}

void prefill_twin::settle(const live_ptr& r) {
  if (r->finished && r->target && !r->told && !r->stopped && !r->failed) {
    r->told = true;
    prefill_done handover;
    handover.id = r->job.id;
    handover.first = as_token(r->right ? token_after(fold_all(r->job.tokens)) : -1);
    handover.checksums = r->claim.checksums();
    handover.transfers = r->transfers;
    const auto to = process_of(r->job.placement.decode);
    here_.w.net.send_of_attempt(here_.self, to, [&m = here_.at(to), handover] { m.decode->done(handover); });
  }
  if (!stream_ended(*r) || !requests_.contains(r->claim.owner())) return;
  const bool delivered = !r->failed && !r->stopped;
  here_.w.net.in(here_.self, 10us, [this, r, delivered] {
    if (!requests_.contains(r->claim.owner())) return;
    if (r->over || delivered) return end(r);
    fail(r, {ec::io_error, "the KV could not be delivered to the decode worker"});
  });
}

void prefill_twin::stop_stream(const live_ptr& r) {
  if (!r->streams || stream_ended(*r)) return;
  r->stopped = true;
  const auto cancel = r->under_way;
  for (const auto id : cancel) here_.mail.cancel(id);
}

void prefill_twin::cancel(const attempt_id& id, std::function<void(bool)> answer) {
  early_targets_.erase(id.owner());
  const auto i = requests_.find(id.owner());
  if (i == requests_.end()) {
    cancelled_early_[id.owner()] = here_.now();
    return answer(true);
  }
  const auto r = i->second;
  r->waiting.push_back(std::move(answer));
  end(r);
}

roll_answer prefill_twin::answer_roll(const roll_call& call) {
  roll_answer out;
  for (const auto& id : call.live) {
    const auto i = requests_.find(id.owner());
    if (i == requests_.end()) {
      out.unknown.push_back(id);
    } else if (i->second->at == phase::sending && !i->second->target) {
      out.waiting.push_back(id);
    }
  }
  std::vector<live_ptr> orphans;
  for (const auto& [owner, r] : requests_) {
    const bool mine = r->job.gateway_node == call.gateway;
    if (mine && std::ranges::find(call.live, r->job.id) == call.live.end()) orphans.push_back(r);
  }
  for (const auto& r : orphans) end(r);
  return out;
}

void prefill_twin::fail(const live_ptr& r, error cause) {
  attempt_failed message;
  message.id = r->job.id;
  message.cause = std::move(cause);
  const auto to = process_of(r->job.gateway_node);
  here_.w.net.send_of_attempt(here_.self, to, [this, to, message] {
    here_.at(to).gateway->core.attempt_over(message, here_.now());
    here_.at(to).gateway->act();
  });
  end(r);
}

void prefill_twin::end(const live_ptr& r) {
  const auto owner = r->claim.owner();
  if (!std::exchange(r->over, true)) {
    queue_.cancel(request_id{owner});
    if (r->claim.loading()) here_.mail.stop(r->job.id);
    stop_stream(r);
  }
  if (r->busy || r->claim.loading() || (r->streams && !stream_ended(*r))) return;
  if (!requests_.erase(owner)) return;
  early_targets_.erase(owner);
  here_.cache->release(owner);
  for (auto& answer : r->waiting) answer(!r->streams || r->fenced);
}

void prefill_twin::peer_lost(process peer) {
  std::vector<live_ptr> orphans, cut_off;
  for (const auto& [owner, r] : requests_) {
    if (process_of(r->job.gateway_node) == peer) {
      orphans.push_back(r);
    } else if (process_of(r->job.placement.decode) == peer && !r->over) {
      cut_off.push_back(r);
    }
  }
  for (const auto& r : orphans) end(r);
  for (const auto& r : cut_off) {
    if (!r->over) fail(r, {ec::peer_lost, "the node that is to decode cannot be reached"});
  }
}

std::vector<std::uint64_t> prefill_twin::sweep() {
  const auto old = [&](time_point since) { return here_.now() - since > early_limit; };
  std::erase_if(early_targets_,
                [&](const auto& e) { return old(e.second.second) && !requests_.contains(e.first); });
  std::erase_if(cancelled_early_, [&](const auto& e) { return old(e.second); });
  std::vector<std::uint64_t> owners;
  for (const auto& [owner, r] : requests_) owners.push_back(owner);
  return owners;
}

}  // namespace mooncaf::campaign
