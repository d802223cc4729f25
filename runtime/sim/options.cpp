#include "runtime/sim/options.hpp"

#include <string>
#include <tuple>

#include "runtime/sim/device_tier.hpp"

namespace mooncaf::sim {

namespace {

result<void> check_elastic(const simulation_options& o) {
  const auto bad = [](const std::string& what) { return fail(ec::invalid_argument, what); };
  const auto& e = o.elastic;
  if (!e.any()) return {};
  const bool coupled = o.coupled != coupled_mode::off;
  if (coupled && e.switch_roles) return bad("coupled nodes have no roles to switch");
  if (coupled && (e.prefill.scales() || e.decode.scales()))
    return bad("coupled nodes are scaled together, not by role");
  if (!coupled && e.nodes.scales())
    return bad("only coupled nodes are scaled together; prefill and decode are by role");
  if (e.switch_roles && (o.decode_hardware || o.pipeline > 1))
    return bad("to switch roles, prefill and decode must be single machines of one kind");
  if (e.switch_roles && e.scales() && (e.prefill.most == 0 || e.decode.most == 0))
    return bad("machines that come and go and also switch roles need a range for both roles");
  if (e.switch_roles && o.prefill + o.decode > 8191) return bad("at most 8191 machines may switch roles");
  for (const auto& [range, now, name] : {std::tuple{e.prefill, o.prefill, "prefill"},
                                         {e.decode, o.decode, "decode"},
                                         {e.nodes, o.prefill + o.decode, "coupled nodes"}}) {
    if (range.scales() && (range.least > now || range.most < now)) {
      return bad("the cluster begins with " + std::to_string(now) + " " + name + ", which is not within " +
                 std::to_string(range.least) + " to " + std::to_string(range.most));
    }
  }
  return {};
}

}  // namespace

/// Refuses combinations that make no cluster: the command line checks one option at a time.
result<void> check_options(const simulation_options& o) {
  const auto bad = [](const std::string& what) { return fail(ec::invalid_argument, what); };
  constexpr std::uint32_t most = 8191;
  const bool split = o.coupled == coupled_mode::off;
  if (o.prefill == 0 || (split && o.decode == 0))
    return bad("at least one prefill and one decode instance are needed");
  if (o.prefill > most || o.decode > most) return bad("at most 8191 instances of each role");
  if (o.pipeline == 0 || o.pipeline > 64) return bad("a pipeline group has 1 to 64 nodes");
  if (!(o.speed > 0) || o.speed > 1e6) return bad("speed must be above 0, at most 10^6");
  if (!(o.jitter >= 0) || o.jitter > 1) return bad("jitter must be 0 to 1");
  for (const double told : {o.prefill_calibration, o.decode_calibration}) {
    if (!(told >= 0.1) || told > 10) return bad("a calibration must be told 0.1 to 10 times what it is");
  }
  if (!(o.ttft_slo_s > 0) || !(o.tbt_slo_s > 0)) return bad("SLOs must be above 0");
  if (!(o.high_share >= 0) || !(o.low_share >= 0) || o.high_share + o.low_share > 1) {
    return bad("shares of priorities must be 0 to 1 and together at most 1");
  }
  if (const auto& d = o.decode_hardware) {
    const auto& p = o.hardware;
    if (o.coupled != coupled_mode::off) return bad("coupled instances have one profile");
    if (d->kv_bytes_per_token != p.kv_bytes_per_token || d->layers != p.layers ||
        d->block_tokens != p.block_tokens || !serve_one_model(p, *d)) {
      return bad("'" + p.name + "' and '" + d->name +
                 "' differ in model, layers, KV bytes of a token or tokens of a block: prefill cannot hand "
                 "over to decode");
    }
  }
  for (const auto* p : {&o.hardware, &o.decode_profile()}) {
    const auto blocks = p->device_kv_tokens / p->block_tokens * o.pipeline;
    if (p->device_link_bytes_per_s > 0 && (blocks == 0 || blocks > device_tier::most_blocks))
      return bad("a device with a link holds 1 to " + std::to_string(device_tier::most_blocks) +
                 " KV blocks, '" + p->name + "' " + std::to_string(blocks));
  }
  if (!(o.hot_copy_share >= 0) || o.hot_copy_share > 0.5)
    return bad("hot copies may take 0 to 0.5 of memory");
  for (const auto& d : o.disturbances) {
    if (d.kind == disturbance_kind::burst) continue;
    if (split == (d.role == worker_role::node))
      return bad("'" + to_string(d) + "': " +
                 (split ? "there are prefill and decode instances, no node is both"
                        : "coupled nodes are called node"));
    const auto count = d.role == worker_role::prefill  ? o.prefill
                       : d.role == worker_role::decode ? o.decode
                                                       : o.prefill + o.decode;
    if (d.first >= count || (d.last >= count && d.last != all_of_them))
      return bad("'" + to_string(d) + "': there is no such instance: 0 to " + std::to_string(count - 1) +
                 " are there");
  }
  if (!(o.balancing_threshold >= 1)) return bad("the balancing threshold must be at least 1");
  return check_elastic(o);
}

}  // namespace mooncaf::sim
