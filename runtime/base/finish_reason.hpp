#pragma once
// Why an answer ended.

#include <cstdint>

namespace mooncaf {

/// `none`: it goes on; `stop`: an end token or a stop string; `length`: as many tokens as were allowed. The
/// values travel between nodes.
enum class finish_reason : std::uint8_t { none = 0, stop = 1, length = 2 };

}  // namespace mooncaf
