#pragma once
// A notice with its bytes on its way to a peer, and the wait for its end.

#include <atomic>
#include <cstdint>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/ranks/rank_notices.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

/// Returns when the notice and its slices have landed, or cannot. @param ids  next id of a transfer of this node.
/// @error of the transfer.
result<void> send_notice(data_plane& plane, std::atomic<std::uint64_t>& ids, node_id to,
                         const rank_notices::notice& what, std::vector<slice_pair> slices = {});

}  // namespace mooncaf
