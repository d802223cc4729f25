#include "transport/outbound_book.hpp"

#include "transport/copy/stream_copy.hpp"

namespace mooncaf {

error end_cause(ec why) {
  return {why, why == ec::cancelled ? "cancelled by its owner" : "the deadline of the transfer passed"};
}

result<void> check_stated_sums(node_state& node, transfer_path path, const transfer& what) {
  if (!node.options.checksums) return {};
  for (std::size_t i = 0; i < what.slices.size(); ++i) {
    const auto& pair = what.slices[i];
    if (!pair.expected_checksum) continue;
    const auto at = node.regions.resolve(pair.local);
    if (!at) return fail(at.error());
    if (wide_checksum(*at, pair.local.length) == *pair.expected_checksum) continue;
    node.stats.update(what.peer, path, [](path_stats& s) { ++s.checksum_failures; });
    return fail(ec::corrupt, "slice " + std::to_string(i) + " does not have the checksum its owner states");
  }
  return {};
}

}  // namespace mooncaf
