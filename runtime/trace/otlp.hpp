#pragma once
// Traces of requests as an OpenTelemetry collector reads them: OTLP 1 over HTTP, in JSON.
//
//   request                    arrival to end; a child of the client's span, if it sent `traceparent`
//   ├─ place                   each attempt: the conductor is asked, until workers have the order
//   ├─ prefill                 … until the first token is here
//   │  ├─ wait  ├─ fetch       … for the device, and for KV of other nodes or the SSD: both drawn from the order on
//   │  └─ compute              … drawn up to the first token
//   └─ decode                  … until the last token, or the attempt's end
//
// Workers tell durations, not times, so that their clocks need not agree with the gateway's.

#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/units.hpp"
#include "runtime/request/request_trace.hpp"

namespace mooncaf {

inline constexpr std::string_view otlp_path = "/v1/traces";

/// The process that tells.
struct trace_source {
  std::string name;   ///< of its node, as in logs
  std::string model;  ///< as clients call it
};

/// The same moment on a steady clock and on the wall.
struct wall_anchor {
  time_point steady;
  std::chrono::system_clock::time_point wall;
};

/// Whether a trace is kept: as the client says where it sent a span of its own, else for a share of all names.
/// @param share  0 to 1.
bool is_sampled(const request_trace& trace, double share);

/// The body of a POST to `otlp_path`.
std::string otlp_body(const trace_source& source, std::span<const request_trace> traces,
                      const wall_anchor& now);

}  // namespace mooncaf
