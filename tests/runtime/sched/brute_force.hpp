#pragma once
// Algorithm 1 by looking at everything: what the scheduler's answers are held against.

#include <map>
#include <optional>
#include <vector>

#include "runtime/sched/conductor_core.hpp"

namespace mooncaf::test {

/// What every node holds, by a map.
using plain_holdings = std::map<node_id, std::map<block_key, storage_tier>>;

struct held {
  std::uint32_t blocks = 0;
  std::uint32_t dram_blocks = 0;
};

inline held held_by(const plain_holdings& holdings, node_id node, std::span<const block_key> keys) {
  held h;
  const auto i = holdings.find(node);
  if (i == holdings.end()) return h;
  for (const auto& k : keys) {
    const auto at = i->second.find(k);
    if (at == i->second.end()) break;
    if (at->second == storage_tier::dram && h.dram_blocks == h.blocks) ++h.dram_blocks;
    ++h.blocks;
  }
  return h;
}

struct answer {
  worker_id prefill;
  duration ttft{};
  bool fetch = false;
  std::uint32_t source_blocks = 0;
};

/// The earliest first token over all live instances, of equals the lowest slot.
inline answer algorithm_1(const conductor_core& core, const plain_holdings& holdings,
                          const schedule_request& request, time_point now) {
  const auto& o = core.options();
  const auto& pool = core.cluster().prefill();
  const auto& board = core.transfers();
  const auto keys = request.keys.first(
      std::min<std::size_t>(request.keys.size(), (request.prompt_tokens - 1) / o.block_tokens));
  held best;
  duration wait{}, soonest{};
  bool found = false;
  std::optional<node_index> source;
  for (const auto& [node, blocks] : holdings) {
    const auto h = held_by(holdings, node, keys);
    if (h.blocks == 0 || h.blocks < best.blocks) continue;
    const auto index = *core.cluster().index_of(node);
    const auto w = board.wait(index, now);
    const auto sent =
        board.sent_by(index).estimate(std::uint64_t{h.blocks} * o.block_tokens * o.bytes_per_token, w);
    if (!found || h.blocks > best.blocks || sent < soonest ||
        (sent == soonest &&
         (h.dram_blocks > best.dram_blocks || (h.dram_blocks == best.dram_blocks && index < *source)))) {
      best = h;
      wait = w;
      soonest = sent;
      source = index;
      found = true;
    }
  }
  const auto bytes = [&](std::uint32_t blocks) {
    return std::uint64_t{blocks} * o.block_tokens * o.bytes_per_token;
  };
  answer out;
  auto chosen = no_slot;
  for (const auto slot : pool.live()) {
    const auto compute = [&](std::uint32_t blocks) {
      const auto cached =
          std::min<std::uint64_t>(std::uint64_t{blocks} * o.block_tokens, request.prompt_tokens - 1);
      return pool.model(slot).estimate(request.prompt_tokens - cached, cached);
    };
    const auto h = held_by(holdings, pool.desc(slot).node, keys);
    const auto here = pool.node(slot);
    const auto reading = board.read(here, bytes(h.blocks - h.dram_blocks));
    auto cost = compute(h.dram_blocks);
    if (h.blocks > h.dram_blocks) cost = std::min(cost, reading + compute(h.blocks));
    bool fetch = false;
    if (o.policy == placement_policy::kvcache_centric && found &&
        static_cast<double>(best.blocks) > o.balancing_threshold * h.blocks) {
      const auto link = board.link(*source, here);
      const auto with = reading +
                        link.estimate(bytes(best.blocks - h.blocks), wait, best.dram_blocks < best.blocks) +
                        compute(best.blocks);
      if (with < cost) {
        cost = with;
        fetch = true;
      }
    }
    const auto ttft = pool.queue(slot, now) + cost;
    if (chosen == no_slot || ttft < out.ttft || (ttft == out.ttft && slot < chosen)) {
      chosen = slot;
      out = {pool.desc(slot).id, ttft, fetch, fetch ? best.blocks : 0};
    }
  }
  return out;
}

}  // namespace mooncaf::test
