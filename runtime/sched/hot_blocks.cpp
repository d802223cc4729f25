#include "runtime/sched/hot_blocks.hpp"

#include <algorithm>
#include <cmath>

namespace mooncaf {

namespace {

constexpr double half_life = 30;  // seconds
/// Until then a copy that was ordered counts as there, though no shard announced it.
constexpr auto on_the_way = std::chrono::seconds(10);
/// Blocks that many prompts share stand at the front: a system prompt of 8,192 tokens at 64 a block.
constexpr std::size_t most_in_one = 128;

/// The share of a heat that is left after this time.
double kept_share(duration age) { return std::exp2(-to_seconds(std::max(age, duration{})) / half_life); }

}  // namespace

double hot_blocks::faded(const entry& e, time_point now) { return e.heat * kept_share(now - e.at); }

const hot_blocks::entry* hot_blocks::find(const block_key& key) const {
  const auto at = places_.find(key, [&](std::uint32_t i) -> const block_key& { return blocks_[i].key; });
  return at == tag_index::none ? nullptr : &blocks_[at];
}

void hot_blocks::used(std::span<const block_key> keys, time_point now) {
  keys = keys.first(std::min(keys.size(), most_in_one));
  // One walk would wait for memory twice per block.
  for (const auto& key : keys) places_.prefetch(tag_index::tag_of(key));
  for (const auto& key : keys) {
    if (const auto at = places_.guess(key); at != tag_index::none) prefetch(&blocks_[at]);
  }
  // Blocks of one prompt were mostly used together the last time, too.
  time_point last{};
  double left = kept_share(now - last);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto place = places_.find_or_insert(
        keys[i], [&](std::uint32_t at) -> const block_key& { return blocks_[at].key; },
        [&](std::uint32_t) {
          blocks_.emplace_back().key = keys[i];
          return static_cast<std::uint32_t>(blocks_.size() - 1);
        });
    auto& e = blocks_[place];
    if (e.heat > 0 && e.at != last) left = kept_share(now - (last = e.at));
    e.heat = e.heat > 0 ? e.heat * left + 1 : 1;
    e.at = now;
    e.parent = i == 0 ? block_key{} : keys[i - 1];
    e.depth = static_cast<std::uint32_t>(i);
    if (e.heat > options_.uses_per_holder) warm_.insert(keys[i]);
  }
  if (blocks_.size() > options_.most_tracked) forget_the_coldest(now);
}

/// Forgets half of the blocks, so that it is done seldom.
void hot_blocks::forget_the_coldest(time_point now) {
  std::vector<double> heats;
  heats.reserve(blocks_.size());
  time_point last{};
  double left = kept_share(now - last);
  for (const auto& e : blocks_) {
    if (e.at != last) left = kept_share(now - (last = e.at));
    heats.push_back(e.heat * left);
  }
  auto sorted = heats;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (heats[i] > *middle) blocks_[kept++] = blocks_[i];
  }
  blocks_.resize(kept);
  places_.clear();
  for (std::uint32_t i = 0; i < kept; ++i) {
    places_.find_or_insert(
        blocks_[i].key, [&](std::uint32_t at) -> const block_key& { return blocks_[at].key; },
        [&](std::uint32_t) { return i; });
  }
}

double hot_blocks::heat(const block_key& key, time_point now) const {
  const auto* known = find(key);
  return known == nullptr ? 0 : faded(*known, now);
}

std::size_t hot_blocks::copies_on(node_id node) const {
  const auto i = copies_.find(node);
  return i == copies_.end() ? 0 : i->second.size();
}

std::vector<hot_blocks::chain> hot_blocks::hot_chains(time_point now) {
  std::vector<block_name> hot;
  std::erase_if(warm_, [&](const block_key& key) {
    const auto* known = find(key);
    if (known == nullptr || faded(*known, now) <= options_.uses_per_holder) return true;
    hot.push_back({key, known->parent, known->depth});
    return false;
  });
  // Blocks of equal depth are in the order of their keys, so that every run decides alike.
  std::ranges::sort(hot, [](const block_name& a, const block_name& b) {
    return a.depth != b.depth ? a.depth < b.depth
                              : std::pair{a.key.high, a.key.low} < std::pair{b.key.high, b.key.low};
  });
  std::vector<chain> chains;
  std::unordered_map<block_key, std::size_t> ends;  // last block of a chain -> the chain
  for (const auto& b : hot) {
    std::size_t at = chains.size();
    if (const auto i = ends.find(b.parent); b.depth > 0 && i != ends.end()) {
      at = i->second;
      ends.erase(i);
    } else {
      chains.emplace_back();
    }
    chains[at].push_back(b);
    ends[b.key] = at;
  }
  return chains;
}

bool hot_blocks::has(node_id node, const block_key& key, const holds_fn& holds) const {
  if (holds(node, key)) return true;
  const auto i = copies_.find(node);
  return i != copies_.end() && i->second.contains(key);
}

std::vector<hot_copy> hot_blocks::plan(std::span<const hot_node> nodes, const holds_fn& holds,
                                       time_point now) {
  forget_what_is_gone(holds, now);
  std::vector<hot_copy> out;
  for (const auto& c : hot_chains(now)) copy(c, nodes, holds, now, out);
  return out;
}

void hot_blocks::copy(const chain& c, std::span<const hot_node> nodes, const holds_fn& holds, time_point now,
                      std::vector<hot_copy>& out) {
  const hot_node* source = nullptr;
  const hot_node* target = nullptr;
  std::size_t holders = 0;
  for (const auto& n : nodes) {
    const bool here = has(n.id, c.front().key, holds);
    holders += here;
    auto& best = here ? source : target;
    // Only a node that has the block for certain can give it, and only one that has its parent can use it.
    const bool fits = here ? holds(n.id, c.front().key)
                           : copies_on(n.id) < n.budget_blocks &&
                                 (c.front().depth == 0 || has(n.id, c.front().parent, holds));
    if (fits && (!best || n.queue < best->queue || (n.queue == best->queue && n.id.value < best->id.value)))
      best = &n;
  }
  if (!source || !target) return;
  const double worth = options_.uses_per_holder * static_cast<double>(holders);
  const auto room = std::min(target->budget_blocks - copies_on(target->id), most_in_one);
  hot_copy order{source->id, target->id, {}};
  for (const auto& b : c) {
    if (order.blocks.size() == room || heat(b.key, now) <= worth || !holds(source->id, b.key) ||
        has(target->id, b.key, holds))
      break;
    order.blocks.push_back(b);
  }
  if (order.blocks.empty()) return;
  for (const auto& b : order.blocks) copies_[target->id].emplace(b.key, now);
  out.push_back(std::move(order));
}

/// Forgets copies that were evicted or never came.
void hot_blocks::forget_what_is_gone(const holds_fn& holds, time_point now) {
  for (auto& [node, made] : copies_) {
    std::erase_if(made, [&, at = node](const auto& copy) {
      return !holds(at, copy.first) && now - copy.second > on_the_way;
    });
  }
  std::erase_if(copies_, [](const auto& c) { return c.second.empty(); });
}

}  // namespace mooncaf
