#pragma once
// What can be known to go wrong before anything is loaded: taken addresses, files and folders that cannot be
// used, memory that is not there. Each error names what, where and what to do.

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

/// @param warnings  gets what is worth saying although it may go well.
/// @returns nothing if the process may go on. Somebody may still take a port afterwards: who opens it says so
/// then.
std::optional<preflight_error> check_before_loading(const options& values,
                                                    std::vector<std::string>& warnings);

}  // namespace mooncaf
