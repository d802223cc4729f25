#include "runtime/sim/device_tier.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf::sim {

namespace {

std::uint32_t blocks_of(const profile& p, std::uint32_t stages) {
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(p.device_kv_tokens / p.block_tokens * stages, 1, device_tier::most_blocks));
}

}  // namespace

device_tier::device_tier(const profile& machine, std::uint32_t stages, device_write_rule rule,
                         std::shared_ptr<prefix_tree> tree)
    : blocks_(blocks_of(machine, stages)),
      block_tokens_(machine.block_tokens),
      bytes_per_token_(machine.kv_bytes_per_token),
      link_bytes_per_s_(machine.device_link_bytes_per_s),
      layers_(std::max(machine.layers, stages)),
      stages_(stages),
      rule_(rule),
      residency_(blocks_, block_tokens_, 0, std::move(tree), !rule.through) {}

double device_tier::pass(std::span<const item> items, double constant) {
  double seconds = 0;
  while (!items.empty()) {
    double compute = constant, load = 0;
    std::uint64_t written = 0;                                   // tokens
    std::vector<std::pair<std::uint64_t, std::uint32_t>> taken;  // tickets, and their tokens afterwards
    std::size_t placed = 0;
    for (; placed < items.size(); ++placed) {
      const auto& i = items[placed];
      const auto end = i.start + i.tokens;
      const auto place = residency_.take({i.sequence, i.keys, i.start, end, keeps()});
      if (!place && placed > 0) break;
      const auto valid = place ? place->valid : 0;
      const auto missing = residency_.missing(valid, i.start).size();
      count(valid, i.start, missing);
      load += static_cast<double>(std::uint64_t{missing} * block_tokens_ * bytes_per_token_);
      written += place ? end - place->write_from : i.tokens;
      compute += i.seconds;
      if (place) taken.emplace_back(place->ticket, end);
    }
    for (const auto& [ticket, valid] : taken) residency_.give_back(ticket, valid);
    wrote(written);
    seconds += overlapped(compute, load, static_cast<double>(written * bytes_per_token_));
    items = items.subspan(placed);
  }
  return seconds;
}

device_tier::member device_tier::join(const kv_residency::wish& w) {
  const auto place = residency_.take(w);
  const auto valid = place ? place->valid : 0;
  const bool stays = place && place->write_from == w.end;
  const member m{place ? place->ticket : 0, residency_.missing(valid, w.start).size(), stays};
  count(valid, w.start, m.load_blocks);
  if (place && !stays) wrote(w.start - place->write_from);
  return m;
}

void device_tier::leave(const member& m, std::uint32_t valid) {
  if (m.ticket != 0) residency_.give_back(m.ticket, valid);
}

double device_tier::beside_loads(double compute, std::uint32_t load_blocks) const noexcept {
  return overlapped(compute,
                    static_cast<double>(std::uint64_t{load_blocks} * block_tokens_ * bytes_per_token_), 0);
}

void device_tier::used(std::span<const block_key> keys, std::uint64_t now) {
  auto& tree = residency_.tree();
  for (const auto& key : keys) {
    const auto h = tree.in(storage_tier::device).find(key);
    if (h == prefix_tree::none) return;
    tree.touch(h, now);
  }
}

void device_tier::clear() { residency_.clear(); }

device_kv_stats device_tier::stats() const {
  auto s = stats_;
  s.blocks = residency_.blocks();
  s.blocks_used = residency_.used();
  s.unwritten_blocks = residency_.unwritten();
  s.lost_blocks = residency_.lost();
  return s;
}

double device_tier::overlapped(double compute, double load_bytes, double store_bytes) const noexcept {
  const double load = load_bytes / link_bytes_per_s_, store = store_bytes / link_bytes_per_s_;
  const double slowest = std::max({load, compute, store});
  return (stages_ * (load + compute + store) + (layers_ - stages_) * slowest) / layers_;
}

void device_tier::count(std::uint32_t valid, std::uint32_t start, std::uint32_t blocks) noexcept {
  stats_.hit_tokens += valid;
  stats_.loaded_tokens += start - valid;
  stats_.loaded_bytes += std::uint64_t{blocks} * block_tokens_ * bytes_per_token_;
}

std::optional<device_tier> tier_of(const profile& machine, std::uint32_t stages, device_write_rule rule,
                                   std::shared_ptr<prefix_tree> tree) {
  if (machine.device_link_bytes_per_s <= 0) return std::nullopt;
  return std::optional<device_tier>{std::in_place, machine, stages, rule, std::move(tree)};
}

}  // namespace mooncaf::sim
