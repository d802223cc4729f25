#pragma once
// Files of secrets.

#include <string>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// Reads a file of secrets that only this user, root and at most a group may read.
/// @param what  names the file in errors: "cluster secret file".
/// @error `ec::io_error` with path and errno; `ec::unauthenticated` if others may read or change the file, or
/// another user owns it; `ec::invalid_argument` for more than `bytes_max`.
result<std::string> read_kept_file(const std::string& path, std::size_t bytes_max, const std::string& what);

}  // namespace mooncaf
