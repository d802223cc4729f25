#pragma once
// Failures that can be foreseen before anything is loaded: taken addresses, files and folders that cannot be
// used, memory that is not there. Each error names the thing, its place and the remedy.

#include <optional>
#include <string>
#include <vector>

#include "config/exit_codes.hpp"
#include "config/options.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

struct preflight_error {
  exit_code code = exit_code::failed;
  error what;
};

/// @param warnings  gets doubts that need not stop the process. @returns nothing if the process may go on.
/// Another program may still take a port afterwards: opening it fails then.
std::optional<preflight_error> check_before_loading(const options& values,
                                                    std::vector<std::string>& warnings);

}  // namespace mooncaf
