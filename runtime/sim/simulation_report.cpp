#include <algorithm>

#include "runtime/sim/simulation.hpp"

// What a simulation writes down.

namespace mooncaf::sim {

void simulation::sample() {
  timeline_row row;
  row.at = to_sec(now_);
  const double span = to_sec(now_ - sampled_at_);
  count_machines(row);
  // A mean over a role's instances is about those that serve.
  const double prefill = std::max(row.prefill_serving, 1.0), decode = std::max(row.decode_serving, 1.0);
  for (std::uint32_t i = 0; i < options_.prefill; ++i) {
    row.prefill_load += conductor_.load_of(prefill_id(i), clock()) / prefill;
    const auto busy = is_coupled() ? coupled_[i].busy() : prefills_[i].busy();
    row.prefill_waiting += static_cast<double>(is_coupled() ? coupled_[i].waiting() : prefills_[i].waiting());
    // A step that its machine did not live to end was counted when it began.
    row.busy.push_back(static_cast<float>(std::max(to_sec(busy - sampled_busy_[i]) / span, 0.0)));
    sampled_busy_[i] = busy;
  }
  for (const auto& c : coupled_) {
    row.decode_running += static_cast<double>(c.running());
    add_occupancy(row, c.running(), c.context_tokens(), prefill);
    if (c.running() == 0) continue;
    row.decode_load += costs_.decode_step(c.running(), c.context_tokens()) / options_.tbt_slo_s / prefill;
  }
  for (std::uint32_t i = 0; i < decodes_.size(); ++i) {
    const auto& d = decodes_[i];
    if (d.running() > 0) {
      row.decode_load +=
          decode_costs_.decode_step(d.running(), d.context_tokens()) / options_.tbt_slo_s / decode;
    }
    add_occupancy(row, d.running(), d.context_tokens(), decode);
    row.decode_running += static_cast<double>(d.running());
    row.decode_waiting += static_cast<double>(d.waiting());
    auto& before = sampled_busy_[options_.prefill + i];
    row.busy.push_back(static_cast<float>(to_sec(d.busy() - before) / span));
    before = d.busy();
  }
  const auto blocks = out_.blocks() - sampled_blocks_, missed = out_.blocks_missed - sampled_missed_;
  row.blocks_asked = static_cast<double>(blocks);
  row.blocks_found = static_cast<double>(blocks - missed);
  const auto rejected = out_.all().rejected();
  row.rejected = static_cast<double>(rejected - sampled_rejected_);
  for (const auto id : options_.watch) {
    row.replicas.push_back(static_cast<float>(conductor_.index().holder_count(key_of(id))));
  }
  sampled_blocks_ = out_.blocks();
  sampled_missed_ = out_.blocks_missed;
  sampled_rejected_ = rejected;
  sampled_at_ = now_;
  if (arriving_) {
    ++samples_;
    out_.decode_batch += row.decode_batch;
    out_.decode_memory += row.decode_memory;
    out_.decode_step += row.decode_load;
  }
  out_.history.add(std::move(row));
}

void simulation::count_machines(timeline_row& row) const {
  for (std::uint32_t m = 0; m < conditions_.size(); ++m) {
    if (is_coupled() && m >= options_.prefill) break;
    const auto& c = conditions_[m];
    (role_of(m) == machine_role::decode ? row.decode_serving : row.prefill_serving) += c.computes();
    row.paid += c.paid_since >= 0;
  }
}

void simulation::add_occupancy(timeline_row& row, std::size_t running, std::uint64_t context,
                               double instances) {
  const auto& machine = options_.decode_profile();
  const double memory = static_cast<double>(context) / static_cast<double>(machine.device_kv_tokens);
  row.decode_batch += static_cast<double>(running) / machine.max_batch / instances;
  row.decode_memory += memory / instances;
  out_.decode_memory_most = std::max(out_.decode_memory_most, memory);
}

void simulation::sum_up() {
  out_.prefill_instances = options_.prefill;
  out_.decode_instances = static_cast<std::uint32_t>(decodes_.size());
  const double span = std::max(out_.span_s, 1e-9);
  const auto share = [&](ticks busy) {
    const double s = to_sec(busy) / span;
    out_.busiest = std::max(out_.busiest, s);
    return s;
  };
  sum_up_machines();
  // As many as there were on average.
  const bool elastic = options_.elastic.any();
  const double prefill = elastic ? out_.prefill_machine_s / options_.pipeline / span : options_.prefill;
  const double decode = elastic ? out_.decode_machine_s / span : options_.decode;
  for (const auto& p : prefills_) out_.prefill_busy += share(p.busy()) / prefill;
  for (const auto& c : coupled_) out_.prefill_busy += share(c.busy()) / prefill;
  for (const auto& d : decodes_) out_.decode_busy += share(d.busy()) / decode;
  for (std::uint32_t i = 0; i < options_.prefill; ++i) {
    out_.network_busy += to_sec(links_[i].worked) / span / prefill;
  }
  for (auto* mean : {&out_.decode_batch, &out_.decode_memory, &out_.decode_step}) {
    *mean /= static_cast<double>(std::max<std::uint64_t>(samples_, 1));
  }
  const auto add_device = [&](const auto& instances) {
    for (const auto& i : instances) {
      if (!i.tier()) continue;
      const auto s = i.tier()->stats();
      auto& sum = out_.device;
      sum.blocks += s.blocks, sum.blocks_used += s.blocks_used;
      sum.hit_tokens += s.hit_tokens, sum.loaded_tokens += s.loaded_tokens;
      sum.loaded_bytes += s.loaded_bytes, sum.stored_bytes += s.stored_bytes;
      sum.unwritten_blocks += s.unwritten_blocks, sum.lost_blocks += s.lost_blocks;
    }
  };
  add_device(prefills_);
  add_device(decodes_);
  add_device(coupled_);
  for (const auto& c : caches_) {
    out_.bytes_ssd_written +=
        static_cast<double>(c.ssd_written()) * static_cast<double>(options_.hardware.block_bytes());
    out_.blocks_evicted += c.evicted();
  }
}

}  // namespace mooncaf::sim
