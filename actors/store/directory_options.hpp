#pragma once
// The directory's options: declared once, in config, for the conductor and for `mooncaf store directory`.

#include <string_view>
#include <vector>

#include "config/command_line.hpp"
#include "config/options.hpp"
#include "runtime/base/result.hpp"
#include "storage/objects/directory/directory_server.hpp"

namespace mooncaf::store {

/// An option of a process of the cluster as `mooncaf store` takes it: without the "store-" before its name.
/// @param into  where it puts its value; must outlive it.
cli::argument argument_of(std::string_view declared, options& into);
/// All arguments that the conductor's directory takes, but for its address.
std::vector<cli::argument> directory_arguments(options& into);

/// The options of a directory, but for address and key. Reads the tenants' file.
/// @error those of `load_tenants`
result<directory_server_options> directory_settings(const store_options& chosen);

}  // namespace mooncaf::store
