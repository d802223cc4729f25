#include "runtime/sched/conductor_core.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace mooncaf {

namespace {

/// How much of an SLO a class may fill before it is refused: low-priority requests go first when it gets tight.
double room_of(std::uint8_t priority) noexcept { return priority == 0 ? 1.25 : priority == 1 ? 1.0 : 0.75; }

}  // namespace

conductor_core::conductor_core(conductor_options options) : options_(options), random_(options.seed) {}

result<void> conductor_core::add_node(node_id node) {
  if (node_of_.contains(node)) return {};
  auto free = std::ranges::find(nodes_, node_id{});
  if (free == nodes_.end()) {
    if (nodes_.size() >= prefix_index::max_nodes) {
      return fail(ec::out_of_space, "the index holds at most " + std::to_string(prefix_index::max_nodes) + " nodes");
    }
    free = nodes_.insert(free, node);
    blocks_at_.resize(nodes_.size());
  }
  *free = node;
  node_of_[node] = static_cast<node_index>(free - nodes_.begin());
  return {};
}

void conductor_core::add_instance(const instance_desc& desc) {
  const auto node = node_of_.find(desc.node);
  if (node == node_of_.end()) return;
  instance made;
  made.desc = desc;
  made.node = node->second;
  if (desc.role == instance_role::prefill) {
    made.prefill = prefill_model{desc.samples};
    prefill_.push_back(std::move(made));
  } else {
    made.decode = decode_model{desc.samples};
    decode_.push_back(std::move(made));
  }
}

std::vector<request_id> conductor_core::remove_node(node_id node) {
  std::vector<request_id> lost;
  const auto i = node_of_.find(node);
  if (i == node_of_.end()) return lost;
  const auto on_node = [&](worker_id id) {
    const auto is = [&](const instance& x) { return x.desc.id == id && x.desc.node == node; };
    return std::ranges::any_of(prefill_, is) || std::ranges::any_of(decode_, is);
  };
  for (const auto& [id, c] : charges_) {
    if (on_node(c.decode_id) || (on_node(c.prefill_id) && !c.prefill_done)) lost.push_back(id);
  }
  for (const auto id : lost) release(id);
  std::erase_if(prefill_, [&](const instance& x) { return x.desc.node == node; });
  std::erase_if(decode_, [&](const instance& x) { return x.desc.node == node; });
  index_.drop_node(i->second);
  nodes_[i->second] = node_id{};
  node_of_.erase(i);
  return lost;
}

void conductor_core::report(worker_id worker, const instance_load& load) {
  for (auto* pool : {&prefill_, &decode_}) {
    for (auto& i : *pool) {
      if (i.desc.id != worker) continue;
      i.latest = load;
      if (i.desc.role == instance_role::decode && load.running > 0) {
        i.decode.observe(load.running, load.context_tokens, load.step);
      }
    }
  }
}

void conductor_core::block_held(node_id node, const block_key& key, holder_tier tier) {
  if (const auto i = node_of_.find(node); i != node_of_.end()) index_.add(key, i->second, tier);
}

void conductor_core::block_gone(node_id node, const block_key& key) {
  if (const auto i = node_of_.find(node); i != node_of_.end()) index_.remove(key, i->second);
}

void conductor_core::forget_blocks(node_id node) {
  if (const auto i = node_of_.find(node); i != node_of_.end()) index_.drop_node(i->second);
}

duration conductor_core::queue_of(const instance& i, time_point now) const {
  if (i.queued <= duration{}) return {};
  return std::max(i.queued - (now - i.head_since), duration{});
}

conductor_core::candidate conductor_core::weigh(std::size_t at, const schedule_request& request,
                                                std::uint32_t local_blocks, const holder_match* best,
                                                time_point now) const {
  const auto& inst = prefill_[at];
  candidate c;
  c.at = at;
  c.local_blocks = local_blocks;
  const auto cost_with = [&](std::uint32_t blocks) {
    const auto cached = std::min<std::uint64_t>(std::uint64_t{blocks} * options_.block_tokens, request.prompt_tokens - 1);
    return inst.prefill.estimate(request.prompt_tokens - cached, cached);
  };
  c.cost = cost_with(local_blocks);
  const bool may_fetch = options_.policy == placement_policy::kvcache_centric && best != nullptr &&
                         best->blocks > local_blocks && best->node != inst.node &&
                         best->blocks > options_.balancing_threshold * local_blocks;
  if (may_fetch) {
    // A fetch is priced before it starts: a tier slower than recomputing is not used.
    const auto bytes = std::uint64_t{best->blocks - local_blocks} * options_.block_tokens * options_.bytes_per_token;
    const auto with_fetch = transfer_.estimate(bytes) + cost_with(best->blocks);
    if (with_fetch < c.cost) {
      c.cost = with_fetch;
      c.fetch = true;
    }
  }
  c.ttft = queue_of(inst, now) + c.cost;
  return c;
}

conductor_core::candidate conductor_core::select_prefill(const schedule_request& request, const holder_match* best,
                                                         time_point now) {
  const auto local = [&](std::size_t at) { return blocks_at_[prefill_[at].node]; };
  if (options_.policy == placement_policy::random) {
    const auto at = static_cast<std::size_t>(random_() % prefill_.size());
    return weigh(at, request, local(at), best, now);
  }
  if (options_.policy == placement_policy::load_balancing) {
    std::size_t least = 0;
    for (std::size_t at = 1; at < prefill_.size(); ++at) {
      if (queue_of(prefill_[at], now) < queue_of(prefill_[least], now)) least = at;
    }
    return weigh(least, request, local(least), best, now);
  }
  auto chosen = weigh(0, request, local(0), best, now);
  for (std::size_t at = 1; at < prefill_.size(); ++at) {
    const auto c = weigh(at, request, local(at), best, now);
    if (c.ttft < chosen.ttft) chosen = c;
  }
  return chosen;
}

duration conductor_core::step_time(const instance& i, std::uint32_t extra, std::uint64_t extra_context) const {
  return i.decode.estimate(std::min(i.charged + extra, i.desc.capacity), i.charged_context + extra_context);
}

std::size_t conductor_core::select_decode(time_point) const {
  const auto fill = [](const instance& i) { return static_cast<double>(i.charged) / std::max(i.desc.capacity, 1u); };
  std::size_t chosen = 0;
  for (std::size_t at = 1; at < decode_.size(); ++at) {
    if (fill(decode_[at]) < fill(decode_[chosen])) chosen = at;
  }
  return chosen;
}

duration conductor_core::predicted_step(const schedule_request& request, time_point prefill_end) const {
  // Load that the pool will have when this prefill ends: those that will have joined by then and will not have ended,
  // each taken to decode for `decode_span`; spread evenly.
  std::uint64_t requests = 1;
  std::uint64_t context = request.prompt_tokens;
  for (const auto& [id, c] : charges_) {
    if (c.prefill_end > prefill_end || c.prefill_end + options_.decode_span < prefill_end) continue;
    ++requests;
    context += c.context_tokens;
  }
  const auto n = decode_.size();
  const auto share = std::min<std::uint64_t>((requests + n - 1) / n, decode_.front().desc.capacity);
  return decode_.front().decode.estimate(share, context / n);
}

std::optional<rejection> conductor_core::admit(const schedule_request& request, const candidate& p, std::size_t d,
                                               duration tbt, time_point now) {
  if (options_.admission == admission_policy::none) return std::nullopt;
  const auto ttft_slo = request.ttft_slo > duration{} ? request.ttft_slo : options_.ttft_slo;
  const auto tbt_slo = request.tbt_slo > duration{} ? request.tbt_slo : options_.tbt_slo;
  const auto room = room_of(request.priority);
  const auto limit = [room](duration slo) { return duration{static_cast<std::int64_t>(static_cast<double>(slo.count()) * room)}; };
  const auto text = [](duration t) { return std::to_string(t.count() / 1'000'000) + " ms"; };
  if (p.ttft > limit(ttft_slo)) {
    ++counts_.rejected_ttft;
    return rejection{{ec::slo_unreachable, "predicted TTFT " + text(p.ttft) + " exceeds " + text(limit(ttft_slo))},
                     p.ttft - limit(ttft_slo)};
  }
  if (options_.admission == admission_policy::baseline) return std::nullopt;
  const auto expected = options_.admission == admission_policy::predictive ? predicted_step(request, now + p.ttft) : tbt;
  const bool full = options_.admission == admission_policy::early && decode_[d].charged >= 2 * decode_[d].desc.capacity;
  if (expected > limit(tbt_slo) || full) {
    ++counts_.rejected_tbt;
    return rejection{{full ? ec::overloaded : ec::slo_unreachable,
                      full ? "every decode batch is full and as many requests wait"
                           : "predicted TBT " + text(expected) + " exceeds " + text(limit(tbt_slo))},
                     std::chrono::seconds(1)};
  }
  return std::nullopt;
}

tl::expected<placement, rejection> conductor_core::schedule(const schedule_request& request, time_point now) {
  if (prefill_.empty() || decode_.empty() || request.prompt_tokens == 0) {
    ++counts_.rejected_unavailable;
    return tl::unexpected(rejection{{ec::unavailable, prefill_.empty() ? "no live prefill instance"
                                                      : decode_.empty() ? "no live decode instance" : "empty prompt"},
                                    std::chrono::seconds(1)});
  }
  // The block of the last token is never reused: its logits have to be computed.
  const auto usable = std::min<std::size_t>(request.keys.size(), (request.prompt_tokens - 1) / options_.block_tokens);
  index_.match(request.keys.first(usable), matches_);
  const holder_match* best = nullptr;
  for (const auto& m : matches_) {
    blocks_at_[m.node] = m.blocks;
    if (best == nullptr || m.blocks > best->blocks || (m.blocks == best->blocks && m.dram_blocks > best->dram_blocks)) {
      best = &m;
    }
  }
  const auto chosen = select_prefill(request, best, now);
  for (const auto& m : matches_) blocks_at_[m.node] = 0;
  const auto d = select_decode(now);
  const auto tbt = step_time(decode_[d], 1, request.prompt_tokens);
  if (auto refused = admit(request, chosen, d, tbt, now)) return tl::unexpected(std::move(*refused));

  auto& p = prefill_[chosen.at];
  placement out;
  out.prefill = p.desc.id;
  out.prefill_node = p.desc.node;
  out.decode = decode_[d].desc.id;
  out.decode_node = decode_[d].desc.node;
  out.local_blocks = chosen.local_blocks;
  if (chosen.fetch) {
    out.source = nodes_[best->node];
    out.source_blocks = best->blocks;
    out.source_tier = best->dram_blocks == best->blocks ? holder_tier::dram : holder_tier::ssd;
    ++counts_.fetches;
  }
  out.predicted_ttft = chosen.ttft;
  out.predicted_tbt = tbt;
  if (p.queued <= duration{}) p.head_since = now;
  p.queued += chosen.cost;
  ++decode_[d].charged;
  decode_[d].charged_context += request.prompt_tokens;
  charge c;
  c.prefill_id = out.prefill;
  c.decode_id = out.decode;
  c.prefill_cost = chosen.cost;
  c.prefill_end = now + chosen.ttft;
  c.context_tokens = request.prompt_tokens;
  charges_.insert_or_assign(request.id, c);
  ++counts_.placed;
  return out;
}

void conductor_core::first_token(request_id id, std::uint32_t new_tokens, std::uint32_t cached_tokens,
                                 duration compute, time_point now) {
  const auto i = charges_.find(id);
  if (i == charges_.end() || i->second.prefill_done) return;
  auto& c = i->second;
  c.prefill_done = true;
  c.prefill_end = now;
  for (auto& p : prefill_) {
    if (p.desc.id != c.prefill_id) continue;
    p.queued = std::max(p.queued - c.prefill_cost, duration{});
    p.head_since = now;
    p.prefill.observe(new_tokens, cached_tokens, compute);
  }
}

void conductor_core::release(request_id id) {
  const auto i = charges_.find(id);
  if (i == charges_.end()) return;
  const auto c = i->second;
  charges_.erase(i);
  if (!c.prefill_done) {
    for (auto& p : prefill_) {
      if (p.desc.id == c.prefill_id) p.queued = std::max(p.queued - c.prefill_cost, duration{});
    }
  }
  for (auto& d : decode_) {
    if (d.desc.id != c.decode_id) continue;
    --d.charged;
    d.charged_context -= c.context_tokens;
  }
}

double conductor_core::load_of(worker_id worker, time_point now) const {
  for (const auto& p : prefill_) {
    if (p.desc.id == worker) return to_seconds(queue_of(p, now)) / to_seconds(options_.ttft_slo);
  }
  for (const auto& d : decode_) {
    if (d.desc.id == worker && d.charged > 0) return to_seconds(step_time(d, 0, 0)) / to_seconds(options_.tbt_slo);
  }
  return 0;
}

}  // namespace mooncaf
