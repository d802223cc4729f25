#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

namespace {

conductor_options conductor_options_of(const simulation_options& o) {
  conductor_options c;
  c.policy = o.policy;
  c.admission = o.admission;
  c.balancing_threshold = o.balancing_threshold;
  c.ttft_slo = from_seconds(o.ttft_slo_s);
  c.tbt_slo = from_seconds(o.tbt_slo_s);
  c.decode_span = from_seconds(o.decode_span_s);
  c.prefill_store = from_seconds(o.prefill_store_s);
  c.coupled = o.coupled != coupled_mode::off;
  c.block_tokens = o.hardware.block_tokens;
  c.bytes_per_token = o.hardware.kv_bytes_per_token;
  c.seed = o.seed;
  c.hot_copy_share = o.hot_copy_share;
  c.shadow.every = from_seconds(o.shadow_every_s);
  c.transfer = {o.hardware.nic_bytes_per_s * o.pipeline, from_seconds(o.hardware.network_latency_s),
                o.hardware.ssd_bytes_per_s};
  return c;
}

}  // namespace

world::world(const simulation_options& o)
    : options(o),
      layout(o),
      prefill_costs(o.hardware),
      decode_costs(o.decode_profile()),
      conductor(journal, conductor_options_of(o)),
      decisions(o.worker_journal),
      noise(o.seed) {
  if (o.journal) journal.begin(conductor.options(), queue_options(), o.journal);
  if (o.slo_share != 1) conductor.play_by({o.admission, o.slo_share}, {}, {});
}

}  // namespace mooncaf::sim
