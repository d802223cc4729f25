#pragma once
// The object store's figures for Prometheus: mooncaf's names, and the names of Mooncake's master (METRICS.md
// of storage/objects).

#include <string>
#include <vector>

#include "storage/objects/client/store_client.hpp"

namespace mooncaf::store {

/// How long the HTTP endpoint's own calls of the store took, from question to last byte.
struct http_times {
  latency_counts get, put;
};

/// Prometheus's text of the store. @param http  null where no HTTP endpoint asks.
std::string metrics_text(const directory_figures& figures,
                         const std::vector<store_wire::mounted_segment>& segments,
                         const std::vector<tenant_view>& tenants, const http_times* http);

}  // namespace mooncaf::store
