#pragma once
// What /health and /integrity make of the conductor's view of the cluster.

#include <string>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// @param cluster  JSON of /cluster; empty: no conductor answers.
/// @returns the body of a 200, or `ec::unavailable` with what is missing for a request to be served.
result<std::string> health_of(const std::string& cluster);
/// What is still held for requests, all nodes added up, and whether that is nothing.
result<std::string> integrity_of(const std::string& cluster);

}  // namespace mooncaf
