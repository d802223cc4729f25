#pragma once
// Hands finished traces to an OpenTelemetry collector (`--otlp`).

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "runtime/base/host_port.hpp"
#include "runtime/base/result.hpp"
#include "runtime/trace/otlp.hpp"

namespace mooncaf {

/// Gathers traces for a while and sends them over a connection of their own. While the collector does not take them, up to
/// `most_waiting` wait; no request waits for that.
///
/// @thread  `add` and the counts from any; the collector is spoken to in a thread of its own.
class trace_exporter {
 public:
  static constexpr std::size_t most_waiting = 4096;

  /// @param share   of the traces that no client asked for, 0 to 1.
  /// @param gather  how long the first of a batch waits for others.
  trace_exporter(host_port collector, trace_source source, double share,
                 duration gather = std::chrono::seconds(1));
  /// Sends what waits, for two seconds at most behind a batch that is under way.
  ~trace_exporter();
  trace_exporter(const trace_exporter&) = delete;
  trace_exporter& operator=(const trace_exporter&) = delete;

  void add(const request_trace& trace);

  std::uint64_t sent() const noexcept { return sent_; }
  /// Traces that were thrown away because the collector did not take them.
  std::uint64_t dropped() const noexcept { return dropped_; }

 private:
  void keep();
  /// Sends traces from the front on. @returns how many were taken, or refused for good.
  std::size_t send(std::span<const request_trace> traces, time_point until);
  /// @error  what the collector said, or why it could not be asked.
  result<void> post(std::span<const request_trace> traces, time_point until) const;

  const host_port collector_;
  const trace_source source_;
  const double share_;
  const duration gather_;
  std::atomic<std::uint64_t> sent_ = 0, dropped_ = 0;
  duration pause_{};  ///< until the collector is tried again; zero: it took the last batch
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<request_trace> waiting_;
  bool stopping_ = false;
  std::thread keeper_;
};

}  // namespace mooncaf
