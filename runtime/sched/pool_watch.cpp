#include "runtime/sched/pool_watch.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace mooncaf {

void pool_watch::reported(worker_id worker, const instance_load& load, time_point now) {
  auto& w = work_[worker];
  if (load.busy > w.load.busy) w.worked = now;
  w.load = load;
  w.at = now;
}

const pool_watch::reported_work* pool_watch::of(worker_id worker) const {
  const auto found = work_.find(worker);
  return found == work_.end() ? nullptr : &found->second;
}

std::optional<duration> pool_watch::since_look(time_point now) const {
  return looked_ ? std::optional{now - *looked_} : std::nullopt;
}

const pool_loads& pool_watch::look(const cluster_state& cluster, time_point now, duration over) {
  const auto apart = since_look(now).value_or(over);
  looked_ = now;
  std::erase_if(work_, [&](const auto& w) { return !cluster.view(w.first, now); });
  look_at_prefill(cluster, now);
  look_at_decode(cluster);
  prefill_calm_.settle(seen_.prefill, apart, over);
  decode_calm_.settle(seen_.decode, apart, over);
  return seen_;
}

void pool_watch::look_at_prefill(const cluster_state& cluster, time_point now) {
  pool_load out;
  std::set<node_id> nodes;
  for (auto& [id, w] : work_) {
    const auto v = cluster.view(id, now);
    if (v->role != worker_role::prefill) continue;
    const auto busy = w.load.busy - std::exchange(w.looked_busy, w.load.busy);
    const auto window = w.at - std::exchange(w.looked, w.at);
    if (v->state != instance_state::live) continue;
    ++out.running;
    nodes.insert(v->node);
    if (window > duration{}) out.load += std::clamp(to_seconds(busy) / to_seconds(window), 0.0, 1.0);
    out.load += to_seconds(v->queue) / to_seconds(ttft_slo_);
  }
  out.load /= std::max(out.running, 1u);
  seen_.prefill = out;
  seen_.prefill_nodes = static_cast<std::uint32_t>(nodes.size());
}

void pool_watch::look_at_decode(const cluster_state& cluster) {
  pool_load out;
  std::set<node_id> nodes;
  const auto& pool = cluster.decode();
  const double empty = to_seconds(pool.mean_step(0, 0));
  for (const auto slot : pool.live()) {
    const auto& desc = pool.desc(slot);
    const auto& at = pool.latest(slot);
    ++out.running;
    nodes.insert(desc.node);
    out.load += fullness({static_cast<double>(at.running), static_cast<double>(at.waiting),
                          static_cast<double>(at.context_tokens), static_cast<double>(desc.capacity),
                          static_cast<double>(desc.capacity_tokens), to_seconds(pool.step(slot, 0, false)),
                          empty, to_seconds(tbt_slo_)});
  }
  out.load /= std::max(out.running, 1u);
  seen_.decode = out;
  seen_.decode_nodes = static_cast<std::uint32_t>(nodes.size());
}

}  // namespace mooncaf
