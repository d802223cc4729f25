#pragma once
// The work of a worker: prefill, decode or both.

#include <cstdint>

#include "runtime/base/words.hpp"

namespace mooncaf {

/// Of a worker: prompts, or answers. Of a simulated machine also `node`: both, as a coupled cluster has them.
/// The values travel between nodes.
enum class worker_role : std::uint8_t { prefill = 1, decode = 2, node = 3 };

constexpr auto words_of(worker_role) noexcept {
  using enum worker_role;
  return words<worker_role, 3>{{{prefill, "prefill"}, {decode, "decode"}, {node, "node"}}};
}

}  // namespace mooncaf
