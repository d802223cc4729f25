#pragma once
// The trace that a request belongs to: the header `traceparent` of W3C Trace Context, level 1.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/hash.hpp"

namespace mooncaf {

/// A span of the client, of which ours are children.
struct trace_parent {
  hash128 trace;
  std::uint64_t span = 0;
  bool sampled = false;  ///< the client's own spans are kept
  friend bool operator==(const trace_parent&, const trace_parent&) = default;
};

/// Nothing if the specification calls the header invalid: the request begins a trace of its own.
std::optional<trace_parent> parse_traceparent(std::string_view header);

/// 16 lower-case hexadecimal digits; those of a trace are its `to_string`.
std::string hex_of(std::uint64_t span);

}  // namespace mooncaf
