#pragma once
// Questions of the HTTP front to a gateway.

#include <functional>
#include <memory>

#include "runtime/base/result.hpp"
#include "runtime/request/client_request.hpp"
#include "runtime/request/status.hpp"

namespace mooncaf {

/// A question how the cluster stands; answered once, with `ec::unavailable` if no conductor does.
struct cluster_query {
  std::function<void(const result<cluster_status>&)> answer;
};
using cluster_query_ptr = std::shared_ptr<cluster_query>;

}  // namespace mooncaf
