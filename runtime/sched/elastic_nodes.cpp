#include "runtime/sched/elastic_nodes.hpp"

#include <algorithm>
#include <cmath>

namespace mooncaf {

std::string counts_of(const scale_wish& wish) {
  std::string out;
  const auto add = [&](const char* part, std::uint32_t count) {
    if (count > 0) out += (out.empty() ? "" : " ") + std::string{part} + "=" + std::to_string(count);
  };
  add("prefill", wish.prefill);
  add("decode", wish.decode);
  add("coupled", wish.nodes);
  return out;
}

elastic_nodes::elastic_nodes(const elastic_node_options& options, duration ttft_slo, duration tbt_slo,
                             bool coupled)
    : options_(options),
      coupled_(coupled),
      watch_(ttft_slo, tbt_slo),
      prefill_(part_of(options.prefill)),
      decode_(part_of(options.decode)),
      nodes_(part_of(options.nodes)) {}

elastic_nodes::part elastic_nodes::part_of(const instance_range& range) const {
  return {range, autoscaler{{.least = std::max(range.least, 1u),
                             .most = std::max(range.most, 1u),
                             .target = options_.target,
                             .down_after = options_.down_after}}};
}

void elastic_nodes::reported(worker_id worker, const instance_load& load, time_point now) {
  if (options_.any()) watch_.reported(worker, load, now);
}

/// Nodes that were asked for count although they do not run yet, and nodes that are to go do not although they
/// still run, until it has been too long for either.
bool elastic_nodes::look(part& p, pool_load load, time_point now) {
  if (!p.range.scales()) return false;
  const bool settles = p.asked_at && now - *p.asked_at < options_.down_after;
  const auto there = settles ? p.asked : load.running;
  const auto wanted = p.scaler.wanted(load, there, now);
  if (now - *began_ < options_.down_after) {
    p.asked = there;
    return false;
  }
  p.asked = wanted;
  if (wanted == there) return false;
  p.asked_at = now;
  return true;
}

/// A coupled node is in both counts. Where a node plays one role at a time each role needs whole nodes: a full prefill
/// beside an idle decode is not half a load.
pool_load elastic_nodes::of_both(const pool_loads& all) const {
  const double prompts = all.prefill.load, answers = all.decode.load;
  const auto p = all.prefill_nodes, d = all.decode_nodes;
  if (coupled_) return {std::max(prompts, answers), std::max(p, d)};
  const auto whole = [&](double work) {
    const double nodes = work / options_.target;
    return std::max(1.0, std::ceil(nodes / (1 + autoscaler_options{}.tolerance)));
  };
  return {(whole(prompts * p) + whole(answers * d)) * options_.target / std::max(p + d, 1u), p + d};
}

std::optional<scale_wish> elastic_nodes::decide(const cluster_state& cluster, time_point now) {
  if (!options_.any() || watch_.since_look(now).value_or(options_.every) < options_.every)
    return std::nullopt;
  if (!began_) began_ = now;
  const auto& loads = watch_.look(cluster, now, defaults::scheduler::calm_looks * options_.every);
  const bool changes[] = {look(prefill_, {loads.prefill.load, loads.prefill_nodes}, now),
                          look(decode_, {loads.decode.load, loads.decode_nodes}, now),
                          look(nodes_, of_both(loads), now)};
  const auto count = [](const part& p) { return p.range.scales() ? p.asked : 0; };
  if (std::ranges::none_of(changes, [](bool c) { return c; })) return std::nullopt;
  return scale_wish{count(prefill_), count(decode_), count(nodes_), loads.prefill.load, loads.decode.load};
}

}  // namespace mooncaf
