#pragma once
// The folder of the SSD tier: which process has it, which users may read it, and where files that cannot be
// opened go.

#include <functional>
#include <optional>
#include <string>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// Makes the folder, readable by its owner alone: blocks hold people's questions. A folder of ours that an
/// earlier version left open to others is closed with its files; one that holds something else keeps its
/// mode.
/// @error `ec::io_error` with the folder and the reason.
result<void> prepare_tier_folder(const std::string& path);

/// Process that has the tier in this folder open, if another one has.
std::optional<int> lock_holder(const std::string& path);

/// Moves the tier's files into the folder `damaged` within, where a person may look at them; files of an
/// earlier repair there are replaced. @returns that folder.
/// @error `ec::io_error` with file and reason.
result<std::string> move_aside(const std::string& path);

}  // namespace mooncaf
