#pragma once
// What people and scrapers see of a status: a line for every member that they do, with its key in the JSON of
// /cluster and the series of Prometheus that shows it. The page reads these keys; the lines are in their
// order.

#include <optional>
#include <tuple>
#include <type_traits>

#include "runtime/base/series.hpp"
#include "runtime/request/status.hpp"

namespace mooncaf {

/// One member, as it is shown.
template <class S, class T>
struct shown {
  const char* key;
  T S::*member;
  std::optional<series> in{};  ///< null: no scraper sees it
  const char* label = "";      ///< which one of the series: its last label; empty: it has no label of its own
  bool time = false;           ///< nanoseconds, shown to people as milliseconds and to scrapers as seconds
};
template <class S, class T, class... More>
shown(const char*, T S::*, More...) -> shown<S, T>;

constexpr auto shown_of(std::type_identity<index_status>) {
  using s = index_status;
  return std::tuple{shown{"blocks", &s::blocks}, shown{"bytes", &s::bytes}, shown{"resyncs", &s::resyncs}};
}

constexpr auto shown_of(std::type_identity<request_counts>) {
  using s = request_counts;
  return std::tuple{shown{"placed", &s::placed},
                    shown{"finished", &s::finished},
                    shown{"failed", &s::failed},
                    shown{"cancelled", &s::cancelled},
                    shown{"rejected_queue_full", &s::rejected_queue_full},
                    shown{"rejected_at_decode", &s::rejected_at_decode},
                    shown{"wasted_prefill_tokens", &s::wasted_prefill_tokens},
                    shown{"rejected_ttft", &s::rejected_ttft},
                    shown{"rejected_tbt", &s::rejected_tbt},
                    shown{"rejected_memory", &s::rejected_memory},
                    shown{"rejected_unavailable", &s::rejected_unavailable},
                    shown{"fetches", &s::fetches},
                    shown{"hot_copies", &s::hot_copies},
                    shown{"prompt_tokens", &s::prompt_tokens},
                    shown{"cached_tokens", &s::cached_tokens},
                    shown{"output_tokens", &s::output_tokens},
                    shown{"role_changes", &s::role_changes},
                    shown{"charged_requests", &s::charged_requests},
                    shown{"wanted_prefill", &s::wanted_prefill},
                    shown{"wanted_decode", &s::wanted_decode},
                    shown{"wanted_nodes", &s::wanted_nodes}};
}

constexpr auto shown_of(std::type_identity<queue_status>) {
  using s = queue_status;
  return std::tuple{shown{"waiting", &s::waiting}, shown{"standing_by", &s::standing_by},
                    shown{"shed", &s::shed}, shown{"limit", &s::limit}};
}

constexpr auto shown_of(std::type_identity<worker_load>) {
  using s = worker_load;
  return std::tuple{shown{"reason", &s::failure},
                    shown{"running", &s::running},
                    shown{"waiting", &s::waiting},
                    shown{"context_tokens", &s::context_tokens},
                    shown{"step_ms", &s::step_ns, std::nullopt, "", true},
                    shown{"away", &s::away},
                    shown{"others", &s::others}};
}

constexpr auto shown_of(std::type_identity<shard_status>) {
  using s = shard_status;
  constexpr auto state = series::kv_blocks;
  constexpr auto hits = series::kv_hit_blocks;
  return std::tuple{shown{"slots_total", &s::slots_total},
                    shown{"slots_free", &s::slots_free, state, "free"},
                    shown{"slots_reserved", &s::slots_reserved, state, "reserved"},
                    shown{"slots_committed", &s::slots_committed, state, "committed"},
                    shown{"slots_pinned", &s::slots_pinned, state, "pinned"},
                    shown{"slots_private", &s::slots_private, state, "private"},
                    shown{"slots_quarantined", &s::slots_quarantined, state, "quarantined"},
                    shown{"slots_withheld", &s::slots_withheld, state, "withheld"},
                    shown{"owners", &s::owners},
                    shown{"kept_prefixes", &s::kept_prefixes},
                    shown{"slots_kept", &s::slots_kept, state, "kept"},
                    shown{"ssd_blocks", &s::ssd_blocks, state, "ssd"},
                    shown{"ssd_bytes", &s::ssd_bytes},
                    shown{"ssd_capacity_bytes", &s::ssd_capacity_bytes},
                    shown{"ssd_written_bytes", &s::ssd_written_bytes},
                    shown{"ssd_copies", &s::ssd_copies},
                    shown{"ssd_evictions", &s::ssd_evictions},
                    shown{"ssd_copies_dropped", &s::ssd_copies_dropped},
                    shown{"ssd_last_copies_kept", &s::ssd_last_copies_kept},
                    shown{"evictions", &s::evictions},
                    shown{"evictions_lost", &s::evictions_lost},
                    shown{"ssd_read_bytes", &s::ssd_read_bytes},
                    shown{"hits_device", &s::hits_device, hits, "device"},
                    shown{"hits_dram", &s::hits_dram, hits, "dram"},
                    shown{"hits_ssd", &s::hits_ssd, hits, "ssd"},
                    shown{"hits_remote", &s::hits_remote, hits, "remote"},
                    shown{"misses", &s::misses},
                    shown{"ssd_read_bytes_per_s", &s::ssd_read_bytes_per_s},
                    shown{"consistent", &s::consistent}};
}

constexpr auto shown_of(std::type_identity<device_kv_stats>) {
  using s = device_kv_stats;
  constexpr auto tokens = series::device_kv_tokens;
  constexpr auto bytes = series::device_kv_bytes;
  return std::tuple{shown{"blocks", &s::blocks},
                    shown{"blocks_used", &s::blocks_used, series::device_kv_blocks, "used"},
                    shown{"hit_tokens", &s::hit_tokens, tokens, "device"},
                    shown{"loaded_tokens", &s::loaded_tokens, tokens, "host"},
                    shown{"loaded_bytes", &s::loaded_bytes, bytes, "loaded"},
                    shown{"stored_bytes", &s::stored_bytes, bytes, "stored"},
                    shown{"unwritten_blocks", &s::unwritten_blocks},
                    shown{"lost_blocks", &s::lost_blocks},
                    shown{"sent_bytes", &s::sent_bytes, bytes, "sent"},
                    shown{"unreached", &s::unreached}};
}

/// Its series have the labels of its peer and its path.
constexpr auto shown_of(std::type_identity<path_status>) {
  using s = path_status;
  return std::tuple{shown{"path", &s::path},
                    shown{"bytes", &s::bytes},
                    shown{"transfers", &s::transfers},
                    shown{"retries", &s::retries},
                    shown{"checksum_failures", &s::checksum_failures},
                    shown{"control_messages", &s::control_messages},
                    shown{"slices", &s::slices},
                    shown{"failures", &s::failures},
                    shown{"mean_ms", &s::latency_ns, std::nullopt, "", true},
                    shown{"learned_bytes_per_s", &s::learned_bytes_per_s, series::link_rate},
                    shown{"learned_latency_ms", &s::learned_latency_ns, series::link_latency, "", true}};
}

/// Its series have the label of its name.
constexpr auto shown_of(std::type_identity<rail_status>) {
  using s = rail_status;
  return std::tuple{shown{"rail", &s::name},
                    shown{"address", &s::address},
                    shown{"up", &s::up, series::rail_up},
                    shown{"bytes", &s::bytes, series::rail, "bytes"},
                    shown{"slices", &s::slices, series::rail, "slices"},
                    shown{"retries", &s::retries, series::rail, "retries"},
                    shown{"failures", &s::failures, series::rail, "failures"},
                    shown{"mean_ms", &s::latency_ns, series::rail_latency, "", true},
                    shown{"last_error", &s::last_error}};
}

constexpr auto shown_of(std::type_identity<rank_status>) {
  using s = rank_status;
  return std::tuple{shown{"process", &s::name}, shown{"at", &s::at}, shown{"layers", &s::layers},
                    shown{"device", &s::device}};
}

/// Calls `visit` with each line of `S` and the member's value.
template <class S, class Visit>
void for_each_shown(const S& status, Visit&& visit) {
  std::apply([&](const auto&... line) { (visit(line, status.*(line.member)), ...); },
             shown_of(std::type_identity<S>{}));
}

}  // namespace mooncaf
