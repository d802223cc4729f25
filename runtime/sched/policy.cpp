#include "runtime/sched/policy.hpp"

#include <algorithm>
#include <iterator>
#include <random>
#include <vector>

namespace mooncaf {

// ---- costs
// ----------------------------------------------------------------------------------------------------------

prefill_costs::prefill_costs(const policy_options& options, const selection_input& in)
    : options_(options), in_(in) {
  if (options.policy == placement_policy::kvcache_centric && in.may_fetch) find_source();
}

void prefill_costs::find_source() {
  const auto longest = in_.match.best_blocks();
  const auto bytes = std::uint64_t{longest} * options_.block_tokens * options_.bytes_per_token;
  duration soonest{};
  const auto consider = [&](const holder_match& m) {
    const auto wait = in_.transfers.wait(m.node, in_.now);
    const auto link = in_.transfers.sent_by(m.node);
    const auto sent = link.estimate(bytes, wait);
    const bool better =
        !has_source_ || sent < soonest ||
        (sent == soonest && (m.dram_blocks > source_.dram_blocks ||
                             (m.dram_blocks == source_.dram_blocks && m.node < source_.node)));
    if (!better) return;
    has_source_ = true;
    source_ = m;
    source_wait_ = wait;
    source_link_ = link;
    soonest = sent;
  };
  for (const auto& m : in_.match.few()) {
    if (m.blocks == longest) consider(m);
  }
  for (const auto& crowd : in_.match.crowds()) {
    if (crowd.blocks != longest) continue;
    crowd.nodes.for_each([&](node_index n) { consider({n, longest, longest}); });
  }
}

duration prefill_costs::compute(std::size_t speed, std::uint32_t blocks) const {
  // The last token is always computed: its logits are the first token's.
  const auto prompt = std::uint64_t{in_.request.prompt_tokens};
  const auto cached = std::min(std::uint64_t{blocks} * options_.block_tokens, prompt - 1);
  return in_.pool.class_model(speed).estimate(prompt - cached, cached);
}

prefill_costs::priced prefill_costs::price(std::size_t speed, const holder_match& held,
                                           const transfer_model& link) const {
  const auto bytes = [&](std::uint32_t blocks) {
    return std::uint64_t{blocks} * options_.block_tokens * options_.bytes_per_token;
  };
  priced p{compute(speed, held.dram_blocks), held.dram_blocks, false};
  if (held.blocks > held.dram_blocks) {
    const auto with_disk =
        in_.transfers.read(held.node, bytes(held.blocks - held.dram_blocks)) + compute(speed, held.blocks);
    if (with_disk < p.cost) p = {with_disk, held.blocks, false};
  }
  if (!has_source_ || !(source_.blocks > options_.balancing_threshold * held.blocks)) return p;
  const bool from_ssd = source_.dram_blocks < source_.blocks;
  const auto reading = held.blocks > held.dram_blocks
                           ? in_.transfers.read(held.node, bytes(held.blocks - held.dram_blocks))
                           : duration{};
  const auto with_fetch = reading +
                          link.estimate(bytes(source_.blocks - held.blocks), source_wait_, from_ssd) +
                          compute(speed, source_.blocks);
  if (with_fetch < p.cost) p = {with_fetch, held.blocks, true};
  return p;
}

prefill_choice prefill_costs::on(instance_slot slot, const holder_match& held) const {
  const auto speed = in_.pool.speed_of(slot);
  const auto node = in_.pool.node(slot);
  // Of a node that was not measured only its blocks in memory matter.
  const bool alike = node == last_node_ || (priced_apart().empty() && held.blocks == held.dram_blocks);
  if (!alike || speed != last_speed_ || held.blocks != last_blocks_ ||
      held.dram_blocks != last_dram_blocks_) {
    last_ = price(speed, held, has_source_ ? in_.transfers.link(source_.node, node) : source_link_);
    last_node_ = node;
    last_speed_ = speed;
    last_blocks_ = held.blocks;
    last_dram_blocks_ = held.dram_blocks;
  }
  prefill_choice c;
  c.slot = slot;
  c.local_blocks = last_.local_blocks;
  c.fetch = last_.fetch;
  if (c.fetch) {
    c.source = source_.node;
    c.source_blocks = source_.blocks;
    c.source_tier = source_.dram_blocks < source_.blocks ? storage_tier::ssd : storage_tier::dram;
  }
  c.cost = last_.cost;
  c.ttft = in_.pool.queue(slot, in_.now) + c.cost;
  return c;
}

// ---- selectors
// ------------------------------------------------------------------------------------------------------

namespace {

bool better(const prefill_choice& a, const prefill_choice& b) noexcept {
  return b.slot == no_slot || a.ttft < b.ttft || (a.ttft == b.ttft && a.slot < b.slot);
}

bool is_barred(const selection_input& in, node_index node) noexcept {
  return in.barred != nullptr && in.barred->test(node);
}

class random_selector final : public prefill_selector {
 public:
  explicit random_selector(const policy_options& options) : options_(options), random_(options.seed) {}

  prefill_choice select(const selection_input& in) override {
    auto live = in.pool.live();
    if (in.barred != nullptr) {
      free_.clear();
      std::ranges::copy_if(live, std::back_inserter(free_),
                           [&](instance_slot s) { return !in.barred->test(in.pool.node(s)); });
      live = free_;
    }
    if (live.empty()) return {};
    const auto slot = live[static_cast<std::size_t>(random_() % live.size())];
    return prefill_costs{options_, in}.on(slot, in.match.held_by(in.pool.node(slot)));
  }

 private:
  policy_options options_;
  std::mt19937_64 random_;
  std::vector<instance_slot> free_;  // live and not barred
};

class load_balancing_selector final : public prefill_selector {
 public:
  explicit load_balancing_selector(const policy_options& options) : options_(options) {}

  prefill_choice select(const selection_input& in) override {
    auto least = no_slot;
    for (std::size_t c = 0; c < in.pool.class_count(); ++c) {
      const auto slot = in.barred == nullptr
                            ? in.pool.shortest(c, in.now)
                            : in.pool.shortest_off(c, *in.barred, in.now, duration::max() / 2);
      if (slot == no_slot) continue;
      const auto mine = in.pool.queue(slot, in.now);
      if (least == no_slot || mine < in.pool.queue(least, in.now) ||
          (mine == in.pool.queue(least, in.now) && slot < least)) {
        least = slot;
      }
    }
    if (least == no_slot) return {};
    return prefill_costs{options_, in}.on(least, in.match.held_by(in.pool.node(least)));
  }

 private:
  policy_options options_;
};

/// Minimises the predicted TTFT over all instances without visiting them: holders, and nodes with a measured
/// link with the source, are weighed one by one, and of the others, which differ only in their queues, the
/// one with the shortest per speed class.
class earliest_selector final : public prefill_selector {
 public:
  explicit earliest_selector(const policy_options& options) : options_(options) {}

  prefill_choice select(const selection_input& in) override {
    const prefill_costs costs{options_, in};
    prefill_choice best;
    const auto weigh = [&](instance_slot slot, const holder_match& held) {
      if (slot == no_slot) return;
      if (const auto c = costs.on(slot, held); better(c, best)) best = c;
    };
    // Instances that hold nothing more than a crowd does can only win with a queue that leaves room for their
    // cost.
    const auto weigh_shortest = [&](std::size_t c, const holder_match& held, auto&& find) {
      auto room = duration::max() / 2;
      if (best.slot != no_slot) room = best.ttft - costs.least(c, held);
      if (room >= duration{}) weigh(find(room), held);
    };
    matched_.clear();
    if (in.barred != nullptr) matched_ |= *in.barred;
    for (const auto& m : in.match.few()) {
      if (is_barred(in, m.node)) continue;
      matched_.insert(m.node);
      for (const auto slot : in.pool.live_on(m.node)) weigh(slot, m);
    }
    apart_.clear();
    for (const auto node : costs.priced_apart()) {
      if (matched_.test(node)) continue;
      apart_.insert(node);
      for (const auto slot : in.pool.live_on(node)) weigh(slot, in.match.held_by(node));
    }
    for (const auto& crowd : in.match.crowds()) {
      matched_ |= crowd.nodes;
      const auto* nodes = &crowd.nodes;
      if (in.barred != nullptr || !apart_.empty()) {
        free_ = crowd.nodes;
        if (in.barred != nullptr) free_ -= *in.barred;
        free_ -= apart_;
        nodes = &free_;
      }
      for (std::size_t c = 0; c < in.pool.class_count(); ++c) {
        weigh_shortest(c, {0, crowd.blocks, crowd.blocks},
                       [&](duration most) { return in.pool.shortest_on(c, *nodes, in.now, most); });
      }
    }
    matched_ |= apart_;
    for (std::size_t c = 0; c < in.pool.class_count(); ++c) {
      weigh_shortest(c, {}, [&](duration most) { return in.pool.shortest_off(c, matched_, in.now, most); });
    }
    return best;
  }

 private:
  policy_options options_;
  node_set matched_;
  node_set apart_;  // nodes with a price of their own
  node_set free_;   // of a crowd, the nodes neither barred nor apart
};

}  // namespace

std::unique_ptr<prefill_selector> make_selector(const policy_options& options) {
  switch (options.policy) {
    case placement_policy::random:
      return std::make_unique<random_selector>(options);
    case placement_policy::load_balancing:
      return std::make_unique<load_balancing_selector>(options);
    case placement_policy::cache_aware:
    case placement_policy::kvcache_centric:
      return std::make_unique<earliest_selector>(options);
  }
  return nullptr;
}

}  // namespace mooncaf
