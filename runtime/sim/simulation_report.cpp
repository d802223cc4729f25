#include <algorithm>

#include "runtime/sim/simulation.hpp"

// What a simulation writes down.

namespace mooncaf::sim {

void simulation::sample() {
  timeline_row row;
  row.at = to_sec(now_);
  const double span = to_sec(now_ - sampled_at_);
  for (std::uint32_t i = 0; i < options_.prefill; ++i) {
    row.prefill_load += conductor_.load_of(prefill_id(i), clock()) / options_.prefill;
    const auto busy = is_coupled() ? coupled_[i].busy() : prefills_[i].busy();
    row.prefill_waiting += static_cast<double>(is_coupled() ? coupled_[i].waiting() : prefills_[i].waiting());
    row.busy.push_back(static_cast<float>(to_sec(busy - sampled_busy_[i]) / span));
    sampled_busy_[i] = busy;
  }
  for (const auto& c : coupled_) {
    row.decode_running += static_cast<double>(c.running());
    add_occupancy(row, c.running(), c.context_tokens(), coupled_.size());
    if (c.running() == 0) continue;
    row.decode_load += costs_.decode_step(c.running(), c.context_tokens()) / options_.tbt_slo_s /
                       static_cast<double>(coupled_.size());
  }
  for (std::uint32_t i = 0; i < decodes_.size(); ++i) {
    const auto& d = decodes_[i];
    if (d.running() > 0) {
      row.decode_load +=
          decode_costs_.decode_step(d.running(), d.context_tokens()) / options_.tbt_slo_s / options_.decode;
    }
    add_occupancy(row, d.running(), d.context_tokens(), options_.decode);
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

void simulation::add_occupancy(timeline_row& row, std::size_t running, std::uint64_t context,
                               std::size_t instances) {
  const auto& machine = options_.decode_profile();
  const double memory = static_cast<double>(context) / static_cast<double>(machine.device_kv_tokens);
  const auto n = static_cast<double>(instances);
  row.decode_batch += static_cast<double>(running) / machine.max_batch / n;
  row.decode_memory += memory / n;
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
  for (const auto& p : prefills_) out_.prefill_busy += share(p.busy()) / options_.prefill;
  for (const auto& c : coupled_) out_.prefill_busy += share(c.busy()) / options_.prefill;
  for (const auto& d : decodes_) out_.decode_busy += share(d.busy()) / options_.decode;
  for (std::uint32_t i = 0; i < options_.prefill; ++i) {
    out_.network_busy += to_sec(links_[i].worked) / span / options_.prefill;
  }
  for (auto* mean : {&out_.decode_batch, &out_.decode_memory, &out_.decode_step}) {
    *mean /= static_cast<double>(std::max<std::uint64_t>(samples_, 1));
  }
  for (const auto& c : caches_) {
    out_.bytes_ssd_written +=
        static_cast<double>(c.ssd_written()) * static_cast<double>(options_.hardware.block_bytes());
    out_.blocks_evicted += c.evicted();
  }
}

}  // namespace mooncaf::sim
