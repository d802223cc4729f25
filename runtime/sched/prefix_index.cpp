#include "runtime/sched/prefix_index.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

namespace {

constexpr std::size_t not_found = ~std::size_t{0};

}  // namespace

prefix_index::prefix_index() : table_(1024) {}

std::size_t prefix_index::find(const block_key& key) const noexcept {
  const auto mask = table_.size() - 1;
  for (auto at = key.low & mask;; at = (at + 1) & mask) {
    if (!table_[at].used()) return not_found;
    if (table_[at].key == key) return at;
  }
}

std::span<const prefix_index::holder> prefix_index::holders_of(const entry& e) const noexcept {
  if (e.holders[0] == spilled) return lists_[list_of(e)];
  std::size_t n = 0;
  while (n < inline_holders && e.holders[n] != 0) ++n;
  return {e.holders, n};
}

void prefix_index::set_holders(entry& e, std::span<const holder> holders) {
  if (e.holders[0] == spilled && holders.size() <= inline_holders) {
    const auto list = list_of(e);
    const auto kept = std::vector<holder>(holders.begin(), holders.end());
    lists_[list] = {};
    free_lists_.push_back(list);
    std::fill(std::begin(e.holders), std::end(e.holders), holder{0});
    std::copy(kept.begin(), kept.end(), e.holders);
    return;
  }
  if (holders.size() <= inline_holders) {
    std::copy(holders.begin(), holders.end(), e.holders);
    std::fill(e.holders + holders.size(), e.holders + inline_holders, holder{0});
    return;
  }
  if (free_lists_.empty()) {
    free_lists_.push_back(static_cast<std::uint32_t>(lists_.size()));
    lists_.emplace_back();
  }
  const auto list = free_lists_.back();
  free_lists_.pop_back();
  lists_[list].assign(holders.begin(), holders.end());
  e.holders[0] = spilled;
  e.holders[1] = static_cast<holder>(list & 0xFFFF);
  e.holders[2] = static_cast<holder>(list >> 16);
  e.holders[3] = 0;
}

void prefix_index::add(const block_key& key, node_index node, holder_tier tier) {
  if ((count_ + 1) * 4 > table_.size() * 3) grow();
  const auto mask = table_.size() - 1;
  auto at = key.low & mask;
  while (table_[at].used() && table_[at].key != key) at = (at + 1) & mask;
  auto& e = table_[at];
  const auto h = pack(node, tier);
  if (!e.used()) {
    e.key = key;
    e.holders[0] = h;
    ++count_;
    return;
  }
  if (e.holders[0] == spilled) {
    auto& list = lists_[list_of(e)];
    const auto same = std::ranges::find(list, node, node_of);
    if (same != list.end()) {
      *same = h;
    } else {
      list.push_back(h);
    }
    return;
  }
  for (auto& slot : e.holders) {
    if (slot == 0 || node_of(slot) == node) {
      slot = h;
      return;
    }
  }
  holder all[inline_holders + 1];
  std::copy(std::begin(e.holders), std::end(e.holders), all);
  all[inline_holders] = h;
  set_holders(e, all);
}

void prefix_index::remove(const block_key& key, node_index node) {
  const auto at = find(key);
  if (at == not_found) return;
  auto& e = table_[at];
  const auto held = holders_of(e);
  std::vector<holder> rest;
  rest.reserve(held.size());
  for (const auto h : held) {
    if (node_of(h) != node) rest.push_back(h);
  }
  if (rest.size() == held.size()) return;
  if (e.holders[0] == spilled && rest.size() > inline_holders) {
    lists_[list_of(e)] = std::move(rest);
  } else if (rest.empty()) {
    erase_at(at);
  } else {
    set_holders(e, rest);
  }
}

void prefix_index::erase_at(std::size_t at) {
  const auto mask = table_.size() - 1;
  for (auto next = (at + 1) & mask; table_[next].used(); next = (next + 1) & mask) {
    const auto home = table_[next].key.low & mask;
    // Move back what may live at `at`: everything whose home does not lie between the hole and itself.
    if (((next - home) & mask) < ((next - at) & mask)) continue;
    table_[at] = table_[next];
    at = next;
  }
  table_[at] = entry{};
  --count_;
}

void prefix_index::drop_node(node_index node) {
  // Deleting moves entries, so the keys are collected first.
  std::vector<block_key> held;
  for (const auto& e : table_) {
    if (e.used() && std::ranges::find(holders_of(e), node, node_of) != holders_of(e).end()) held.push_back(e.key);
  }
  for (const auto& key : held) remove(key, node);
}

void prefix_index::grow() {
  auto old = std::exchange(table_, std::vector<entry>(table_.size() * 2));
  const auto mask = table_.size() - 1;
  for (const auto& e : old) {
    if (!e.used()) continue;
    auto at = e.key.low & mask;
    while (table_[at].used()) at = (at + 1) & mask;
    table_[at] = e;
  }
}

void prefix_index::match(std::span<const block_key> keys, std::vector<holder_match>& out) const {
  out.clear();
  // `out` holds the nodes that have all blocks so far first, then those that dropped out.
  std::size_t alive = 0;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const auto at = find(keys[i]);
    if (at == not_found) return;
    const auto held = holders_of(table_[at]);
    if (i == 0) {
      for (const auto h : held) out.push_back({node_of(h), 1, tier_of(h) == holder_tier::dram ? 1u : 0u});
      alive = out.size();
      continue;
    }
    for (std::size_t n = 0; n < alive;) {
      const auto h = std::ranges::find(held, out[n].node, node_of);
      if (h == held.end()) {
        std::swap(out[n], out[--alive]);
        continue;
      }
      if (tier_of(*h) == holder_tier::dram && out[n].dram_blocks == i) ++out[n].dram_blocks;
      out[n++].blocks = i + 1;
    }
    if (alive == 0) return;
  }
}

std::size_t prefix_index::memory_bytes() const noexcept {
  std::size_t bytes = table_.size() * sizeof(entry);
  for (const auto& list : lists_) bytes += sizeof list + list.capacity() * sizeof(holder);
  return bytes;
}

}  // namespace mooncaf
