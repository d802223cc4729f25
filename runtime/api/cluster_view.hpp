#pragma once
// The conductor's view of the cluster, as /cluster, /health and /integrity show it.

#include <string>

#include "runtime/base/result.hpp"
#include "runtime/request/status.hpp"

namespace mooncaf {

/// JSON of the whole cluster, as the page and scripts read it; its numbers have the keys of
/// runtime/request/status_fields.hpp.
result<std::string> cluster_json(const cluster_status& cluster);
/// @returns the body of a 200. @error `ec::unavailable` with the part that is missing to serve a request.
result<std::string> health_of(const cluster_status& cluster);
/// The resources still held for requests, all nodes added up, and whether there are none.
result<std::string> integrity_of(const cluster_status& cluster);
/// Where Prometheus scrapes the members, in the form of its `http_sd`.
result<std::string> scrape_targets(const cluster_status& cluster);

}  // namespace mooncaf
