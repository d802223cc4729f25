#pragma once
// What became of a request, step by step, as its gateway saw it. All times are the gateway's: durations that workers
// measured lie between them, so clocks of other nodes do not matter.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/request/messages.hpp"

namespace mooncaf {

/// One attempt: a place, a prefill, and tokens until the answer is complete or another attempt follows.
struct attempt_trace {
  std::uint32_t attempt = 0;
  time_point asked;                  ///< the conductor, for the first time
  std::optional<time_point> placed;  ///< its workers have the order
  placement_msg where;               ///< with `placed`
  std::optional<time_point> first;   ///< the attempt's first token
  prefill_stats stats;               ///< with `first`
  std::optional<time_point> over;    ///< it failed
  std::string failure;               ///< with `over`
};

/// One generation of a client's request, from its arrival to its end.
struct request_trace {
  request_id id;
  std::string traceparent;  ///< the client's header (W3C Trace Context); empty: none
  std::string name;         ///< the client's x-request-id, or ours
  std::string tenant;       ///< empty: none
  time_point arrived;
  time_point ended;
  std::string_view outcome;  ///< finished, cancelled, rejected or failed
  std::string failure;       ///< of one that failed or was rejected
  finish_reason finish = finish_reason::none;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t output_tokens = 0;
  duration ttft{};  ///< zero: no token came
  std::vector<attempt_trace> attempts;
};

}  // namespace mooncaf
