#include "runtime/sim/sampler.hpp"

#include <algorithm>
#include <utility>

#include "runtime/sim/trace_keys.hpp"

namespace mooncaf::sim {

void sampler::begin() {
  began_ = sampled_ = w_.time.now();
  w_.out.began_s = to_sec(began_);
}

void sampler::sample(bool arriving) {
  timeline_row row;
  row.at = to_sec(w_.time.now());
  count_machines(row);
  look_at_prompts(row);
  look_at_decoding(row);
  count_blocks(row);
  for (const auto id : w_.options.watch)
    row.replicas.push_back(static_cast<float>(w_.conductor.index().holder_count(key_of(id))));
  sampled_ = w_.time.now();
  if (arriving) {
    ++rows_;
    w_.out.decode_batch += row.decode_batch;
    w_.out.decode_memory += row.decode_memory;
    w_.out.decode_step += row.decode_load;
  }
  w_.out.history.add(std::move(row));
}

/// A share of the time since the latest row. A step that its machine did not live to end was counted when it
/// began, and is taken off afterwards: that makes no share negative.
float sampler::busy_since(std::uint32_t machine) {
  const auto busy = c_.busy(machine);
  const double span = to_sec(w_.time.now() - sampled_);
  return static_cast<float>(std::max(to_sec(busy - std::exchange(busy_[machine], busy)) / span, 0.0));
}

/// Means over a role's instances are about the serving ones.
void sampler::look_at_prompts(timeline_row& row) {
  const double serving = std::max(row.prefill_serving, 1.0);
  for (std::uint32_t i = 0; i < w_.layout.prefill(); ++i) {
    row.prefill_load += w_.conductor.load_of(w_.layout.prefill_id(i), w_.time.clock()) / serving;
    row.prefill_waiting += static_cast<double>(c_.waiting(i));
    row.busy.push_back(busy_since(i));
  }
}

void sampler::look_at_decoding(timeline_row& row) {
  const auto look = [&](std::size_t running, std::uint64_t context, const cost_model& costs, double serving) {
    row.decode_running += static_cast<double>(running);
    add_occupancy(row, running, context, serving);
    if (running > 0) row.decode_load += costs.decode_step(running, context) / w_.options.tbt_slo_s / serving;
  };
  for (std::uint32_t i = 0; i < c_.coupled.size(); ++i)
    look(c_.coupled.running(i), c_.coupled.context_tokens(i), w_.prefill_costs,
         std::max(row.prefill_serving, 1.0));
  for (std::uint32_t i = 0; i < c_.decodes.size(); ++i) {
    look(c_.decodes.running(i), c_.decodes.context_tokens(i), w_.decode_costs,
         std::max(row.decode_serving, 1.0));
    row.decode_waiting += static_cast<double>(c_.decodes.waiting(i));
    row.busy.push_back(busy_since(w_.layout.decode_machine(i)));
  }
}

void sampler::count_blocks(timeline_row& row) {
  const auto blocks = w_.out.blocks(), missed = w_.out.blocks_missed;
  const auto found = blocks - std::exchange(blocks_, blocks);
  row.blocks_asked = static_cast<double>(found);
  row.blocks_found = static_cast<double>(found - (missed - std::exchange(missed_, missed)));
  const auto rejected = w_.out.all().rejected();
  row.rejected = static_cast<double>(rejected - std::exchange(rejected_, rejected));
}

void sampler::count_machines(timeline_row& row) const {
  for (std::uint32_t m = 0; m < w_.layout.machines(); ++m) {
    (w_.layout.role_of(m) == worker_role::decode ? row.decode_serving : row.prefill_serving) +=
        c_.machines.computes(m);
    row.paid += c_.machines.is_paid(m);
  }
}

void sampler::add_occupancy(timeline_row& row, std::size_t running, std::uint64_t context, double instances) {
  const auto& machine = w_.options.decode_profile();
  const double memory = static_cast<double>(context) / static_cast<double>(machine.device_kv_tokens);
  row.decode_batch += static_cast<double>(running) / machine.max_batch / instances;
  row.decode_memory += memory / instances;
  w_.out.decode_memory_most = std::max(w_.out.decode_memory_most, memory);
}

void sampler::sum_up() {
  auto& out = w_.out;
  const auto& layout = w_.layout;
  out.prefill_instances = layout.prefill();
  out.decode_instances = layout.decode();
  const double span = std::max(out.span_s, 1e-9);
  c_.machines.sum_up(began_ + from_sec(out.span_s));
  // As many as there were on average.
  const bool elastic = w_.options.elastic.any();
  const double prefill = elastic ? out.prefill_machine_s / layout.pipeline() / span : layout.prefill();
  const double decode = elastic ? out.decode_machine_s / span : layout.decode();
  for (std::uint32_t m = 0; m < layout.machines(); ++m) {
    const double share = to_sec(c_.busy(m)) / span;
    out.busiest = std::max(out.busiest, share);
    if (layout.role_of(m) == worker_role::decode) {
      out.decode_busy += share / decode;
    } else {
      out.prefill_busy += share / prefill;
      out.network_busy += to_sec(c_.links.worked(m)) / span / prefill;
    }
  }
  for (auto* mean : {&out.decode_batch, &out.decode_memory, &out.decode_step})
    *mean /= static_cast<double>(std::max<std::uint64_t>(rows_, 1));
  sum_up_devices();
  c_.memories.sum_up();
}

void sampler::sum_up_devices() {
  auto& sum = w_.out.device;
  for (std::uint32_t m = 0; m < w_.layout.machines(); ++m) {
    const auto& tier =
        w_.layout.role_of(m) == worker_role::decode ? c_.decodes.tier(w_.layout.instance_of(m)) : c_.tier(m);
    if (!tier) continue;
    const auto s = tier->stats();
    sum.blocks += s.blocks, sum.blocks_used += s.blocks_used;
    sum.hit_tokens += s.hit_tokens, sum.loaded_tokens += s.loaded_tokens;
    sum.loaded_bytes += s.loaded_bytes, sum.stored_bytes += s.stored_bytes;
    sum.unwritten_blocks += s.unwritten_blocks, sum.lost_blocks += s.lost_blocks;
  }
}

}  // namespace mooncaf::sim
