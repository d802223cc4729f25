#pragma once
// The token with which a tenant's clients prove themselves.

#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// The secret of a tenant's connections, made from its token. @error `ec::invalid_argument` for a token that
/// is too short to be one (`cluster_secret::bytes_min`).
result<std::string> tenant_key(std::string_view token);
/// Reads the token from a file that only this user, root and at most a group may read.
/// @error as `read_kept_file`
result<std::string> tenant_key_from_file(const std::string& path);

}  // namespace mooncaf
