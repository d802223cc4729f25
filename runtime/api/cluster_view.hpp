#pragma once
// What /cluster, /health and /integrity make of the conductor's view of the cluster.

#include <string>

#include "runtime/base/result.hpp"
#include "runtime/request/status.hpp"

namespace mooncaf {

/// JSON of the whole cluster, as the page and scripts read it; its numbers have the keys of
/// runtime/request/status_fields.hpp.
result<std::string> cluster_json(const cluster_status& cluster);
/// @returns the body of a 200. @error `ec::unavailable` with what is missing for a request to be served.
result<std::string> health_of(const cluster_status& cluster);
/// What is still held for requests, all nodes added up, and whether that is nothing.
result<std::string> integrity_of(const cluster_status& cluster);

}  // namespace mooncaf
