#include "runtime/sched/load_plan.hpp"

#include <algorithm>

namespace mooncaf {

load_plan plan_load(const load_question& q, const prefill_model& computing) {
  const auto compute_behind = [&](std::uint32_t blocks) {
    const auto cached =
        std::min<std::uint64_t>(std::uint64_t{blocks} * q.block_tokens, std::max(q.prompt_tokens, 1u) - 1);
    return computing.estimate(q.prompt_tokens - cached, cached);
  };
  const auto enough = [&](std::uint32_t blocks) {
    return blocks > 0 && std::uint64_t{blocks} * q.block_tokens >= q.threshold_tokens;
  };
  // A journal that somebody else wrote may say anything.
  const auto bounded = [](duration d) { return std::clamp(d, duration{}, duration::max() / 4); };
  const auto parts = std::max(q.disk_parts, 1u);
  load_plan best;
  best.cost = compute_behind(std::max(q.device_blocks, q.dram_blocks));
  for (const auto from_disk : {0u, q.on_disk()}) {
    if (from_disk > 0 && !enough(from_disk)) continue;
    const auto here = q.dram_blocks + from_disk;
    const auto reading = from_disk > 0 ? bounded(q.read) : duration{};
    const auto without = compute_behind(here);
    const auto alone = std::max(reading, without) + std::min(reading, without) / parts;
    if (alone < best.cost) best = {from_disk, 0, {}, alone};
    const auto from_remote = q.remote_behind(here);
    if (!enough(from_remote)) continue;
    const auto with = compute_behind(here + from_remote);
    const auto cost = reading + std::max(bounded(from_disk > 0 ? q.fetch_behind_disk : q.fetch), with);
    if (cost < best.cost) best = {from_disk, from_remote, without, cost};
  }
  return best;
}

}  // namespace mooncaf
