#pragma once
// The file with the store's tenants: their tokens and quotas.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "storage/objects/directory/directory_server.hpp"

namespace mooncaf::store {

/// TOML: a [section] for each tenant, with `token` and any of `quota` (of memory) and `ssd_quota`, which
/// are sizes, and `objects` (a number).
/// @param name  the file's, for errors. @error `ec::invalid_argument` with the file, and the line where there
/// is one.
result<std::vector<store_tenant>> parse_tenants(std::string_view text, const std::string& name);
/// Reads a file that only this user, root and at most a group may read. An empty path: no tenants.
/// @error those of `read_kept_file`
result<std::vector<store_tenant>> load_tenants(const std::string& path);

}  // namespace mooncaf::store
