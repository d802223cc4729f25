#pragma once
// Questions of the HTTP front to a gateway.

#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/request/client_request.hpp"
#include "runtime/request/status.hpp"

namespace mooncaf {

/// A question how the cluster stands; answered once, with `ec::unavailable` if no conductor does.
struct cluster_query {
  std::function<void(const result<cluster_status>&)> answer;
};
using cluster_query_ptr = std::shared_ptr<cluster_query>;

/// A question for the prefixes that nodes keep for a tenant; answered once, with those of all nodes that answer.
struct kept_query {
  std::uint64_t tenant = 0;
  block_key drop{};  ///< one that is to end, or `every_prefix`; zero: none
  std::function<void(std::vector<kept_status>)> answer;
};
using kept_query_ptr = std::shared_ptr<kept_query>;

}  // namespace mooncaf
