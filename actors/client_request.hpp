#pragma once
// What the HTTP front asks of a gateway.

#include <functional>
#include <memory>
#include <string>

#include "runtime/request/client_request.hpp"

namespace mooncaf {

/// Somebody wants to see the cluster; called once with its JSON, or with nothing if no conductor answers.
struct cluster_query {
  std::function<void(std::string)> answer;
};
using cluster_query_ptr = std::shared_ptr<cluster_query>;

}  // namespace mooncaf
