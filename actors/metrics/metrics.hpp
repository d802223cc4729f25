#pragma once
// What Prometheus scrapes from one process: mooncaf's own names, and vLLM's, which dashboards and routers
// know.

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/device_kv_stats.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// @thread Safe. Recording is a few atomic operations.
class metrics {
 public:
  /// @param model  label `model_name` of every series.
  explicit metrics(const std::string& model);
  ~metrics();

  // ---- requests, at the gateway ----
  void first_token(duration ttft, std::uint32_t prompt_tokens, std::uint32_t cached_tokens);
  void token_gap(duration gap);
  /// The conductor answered where a request goes, or that it is refused, so long after it was asked; its wait
  /// for a place is part of it.
  void placed(duration elapsed);
  void tokens_generated(std::uint32_t count);
  /// @param outcome  "finished", "failed", "cancelled" or "rejected".
  void request_over(const std::string& outcome, duration elapsed);
  /// Prompt tokens that were computed for a request that decode refused.
  void prefill_wasted(std::uint32_t tokens);
  /// Requests of this gateway that have no place yet.
  void set_queued(double requests);

  // ---- state, set once per report ----
  void set_running(double requests);
  void set_waiting(double requests);
  void set_cache_usage(double share);  ///< of slots that are neither free nor evictable, [0, 1]
  /// Blocks of this process's shard in a state: "free", "reserved", "committed", "pinned", "private",
  /// "quarantined", "withheld", "ssd".
  void set_blocks(const std::string& state, double count);
  /// A worker's device failed. @param role  "prefill" or "decode".
  void device_failed(const std::string& role);
  /// Of a device with memory of its own.
  void set_device_kv(const device_kv_stats& s);
  /// The SSD tier. @param what  "repaired" (1: files were moved aside at start), "absent" (1: it could not be
  /// opened, blocks live in memory alone), "refuses_writes" (1: now) or "write_failures" (since the start).
  void set_ssd(const std::string& what, double value);
  /// Totals since the start that somebody else counts.
  void set_hits(const std::string& tier, double blocks);
  void set_transferred(const std::string& path, double bytes);
  /// What transfers to a peer cost, learned.
  void set_link(const std::string& peer, const std::string& path, double bytes_per_s, double latency_s);
  void set_ssd_read(double bytes_per_s);
  /// @param what  "bytes", "slices", "retries" or "failures" of an RDMA rail.
  void set_rail(const std::string& rail, const std::string& what, double total);
  void set_rail_state(const std::string& rail, bool up, double mean_latency_s);

  /// Everything in Prometheus's text format.
  std::string text() const;

 private:
  struct families;
  std::unique_ptr<families> f_;
};

}  // namespace mooncaf
