#pragma once
// Every series that a process shows to Prometheus: its name, its kind, its meaning, and its labels beside
// `model_name`. Said here and nowhere else; actors/metrics keeps their values.

#include <array>
#include <cstddef>
#include <cstdint>

namespace mooncaf {

enum class series : std::uint8_t {
  ttft,
  token_gap,
  request_time,
  placement_time,
  prompt_tokens,
  generation_tokens,
  prefix_queries,
  prefix_hits,
  running,
  waiting,
  cache_usage,
  requests,
  tenant_requests,
  tenant_tokens,
  wasted_prefill_tokens,
  queued,
  kv_blocks,
  ssd,
  kv_hit_blocks,
  transfer_bytes,
  device_failures,
  device_kv_blocks,
  device_kv_tokens,
  device_kv_bytes,
  link_rate,
  link_latency,
  ssd_read_rate,
  rail,
  rail_up,
  rail_latency,
  leader_term,
  leads,
  wanted_nodes,
  played_share,
  traces,
};

enum class series_kind : std::uint8_t { counter, gauge, histogram };

struct series_info {
  series id;
  series_kind kind;
  const char* name;
  const char* help;
  std::array<const char*, 2> labels{};  ///< null: there is none
  bool from_start = true;               ///< without labels: shown before it has a value
};

// clang-format off
/// In the order of `series`. Dashboards and routers know the names of vLLM.
inline constexpr std::array series_table{
    series_info{series::ttft, series_kind::histogram, "vllm:time_to_first_token_seconds", "Arrival to first token."},
    series_info{series::token_gap, series_kind::histogram, "vllm:inter_token_latency_seconds",
                "Gap between neighbouring tokens."},
    series_info{series::request_time, series_kind::histogram, "vllm:e2e_request_latency_seconds",
                "Arrival to last token."},
    series_info{series::placement_time, series_kind::histogram, "mooncaf_placement_seconds",
                "Asking the conductor for a place to its answer, waiting for one included."},
    series_info{series::prompt_tokens, series_kind::counter, "vllm:prompt_tokens_total",
                "Prompt tokens, reused ones included."},
    series_info{series::generation_tokens, series_kind::counter, "vllm:generation_tokens_total",
                "Tokens generated."},
    series_info{series::prefix_queries, series_kind::counter, "vllm:prefix_cache_queries_total",
                "Prompt tokens looked up in the cache."},
    series_info{series::prefix_hits, series_kind::counter, "vllm:prefix_cache_hits_total",
                "Prompt tokens found in the cache."},
    series_info{series::running, series_kind::gauge, "vllm:num_requests_running", "Requests in a batch."},
    series_info{series::waiting, series_kind::gauge, "vllm:num_requests_waiting", "Requests that wait."},
    series_info{series::cache_usage, series_kind::gauge, "vllm:kv_cache_usage_perc",
                "Share of KV slots that cannot be had, even by eviction; 0 to 1."},
    series_info{series::requests, series_kind::counter, "mooncaf_requests_total", "Requests by outcome.",
                {"outcome"}},
    series_info{series::tenant_requests, series_kind::counter, "mooncaf_tenant_requests_total",
                "Requests of each tenant by outcome.", {"tenant", "outcome"}},
    series_info{series::tenant_tokens, series_kind::counter, "mooncaf_tenant_tokens_total",
                "Tokens of each tenant: prompt (cached ones included), cached, output.", {"tenant", "kind"}},
    series_info{series::wasted_prefill_tokens, series_kind::counter, "mooncaf_wasted_prefill_tokens_total",
                "Prompt tokens computed for requests that decode refused."},
    series_info{series::queued, series_kind::gauge, "mooncaf_requests_queued",
                "Requests of this gateway that wait for a place."},
    series_info{series::kv_blocks, series_kind::gauge, "mooncaf_kv_blocks", "KV blocks of this process by state.",
                {"state"}},
    series_info{series::ssd, series_kind::gauge, "mooncaf_ssd",
                "Health of the SSD tier: repaired, absent, refuses_writes, write_failures.", {"what"}},
    series_info{series::kv_hit_blocks, series_kind::counter, "mooncaf_kv_hit_blocks_total",
                "KV blocks reused, by tier: device (alone), dram, ssd, remote.", {"tier"}},
    series_info{series::transfer_bytes, series_kind::counter, "mooncaf_transfer_bytes_total",
                "KV bytes moved, by path.", {"path"}},
    series_info{series::device_failures, series_kind::counter, "mooncaf_device_failures_total",
                "Workers that ended since their device failed, by role: prefill, decode.", {"role"}},
    series_info{series::device_kv_blocks, series_kind::gauge, "mooncaf_device_kv_blocks",
                "KV blocks in the device's own memory by state: free, used.", {"state"}},
    series_info{series::device_kv_tokens, series_kind::counter, "mooncaf_device_kv_tokens_total",
                "Context that passes read, by where it was: device, or loaded from host memory.", {"from"}},
    series_info{series::device_kv_bytes, series_kind::counter, "mooncaf_device_kv_bytes_total",
                "KV bytes over the device's link: loaded, stored; sent: read there by NICs, for other nodes.",
                {"way"}},
    series_info{series::link_rate, series_kind::gauge, "mooncaf_link_bytes_per_second",
                "Rate of transfers with a peer, learned from them.", {"peer", "path"}},
    series_info{series::link_latency, series_kind::gauge, "mooncaf_link_latency_seconds",
                "What a transfer with a peer takes whatever its size, learned.", {"peer", "path"}},
    series_info{series::ssd_read_rate, series_kind::gauge, "mooncaf_ssd_read_bytes_per_second",
                "Rate of reads of the SSD tier, measured at the start and refined since.", {}, false},
    series_info{series::rail, series_kind::counter, "mooncaf_rdma_rail_total",
                "Bytes, slices, retries and failures of an RDMA rail.", {"rail", "what"}},
    series_info{series::rail_up, series_kind::gauge, "mooncaf_rdma_rail_up", "1: the port is active.", {"rail"}},
    series_info{series::rail_latency, series_kind::gauge, "mooncaf_rdma_rail_latency_seconds",
                "Mean time of a slice, posted to completed.", {"rail"}},
    series_info{series::leader_term, series_kind::gauge, "mooncaf_leader_term",
                "Term of the conductor that this process obeys; 0 where there is one alone."},
    series_info{series::leads, series_kind::gauge, "mooncaf_leads",
                "1: this process's conductor places requests; 0: it stands by, or there is none here."},
    series_info{series::wanted_nodes, series_kind::gauge, "mooncaf_wanted_nodes",
                "Nodes that the load asks for, as this process last told its scale-command.", {"part"}},
    series_info{series::played_share, series_kind::gauge, "mooncaf_played_share",
                "Requests of the last minutes that a rule of admission would have kept inside both SLOs, as last "
                "played again (admission adaptive).", {"rule"}},
    series_info{series::traces, series_kind::counter, "mooncaf_traces_total",
                "Traces of requests that a collector took (sent), or did not in time (dropped).", {"outcome"}},
};
// clang-format on

constexpr const series_info& info_of(series s) { return series_table[static_cast<std::size_t>(s)]; }

static_assert([] {
  for (std::size_t i = 0; i < series_table.size(); ++i) {
    if (series_table[i].id != static_cast<series>(i)) return false;
  }
  return true;
}());

}  // namespace mooncaf
