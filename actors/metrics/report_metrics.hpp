#pragma once
// A node's report as metrics.

#include <span>

#include "actors/metrics/metrics.hpp"
#include "runtime/request/status.hpp"

namespace mooncaf {

/// Shows a report; the series of a status are those of runtime/request/status_fields.hpp.
/// @param prefills  the workers of this node that prefill.
void show(metrics& meters, const node_report& report, std::span<const worker_id> prefills);

}  // namespace mooncaf
