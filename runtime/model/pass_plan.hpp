#pragma once
// A forward pass as its device sees it: the tokens of all items in one row each, and where each item's KV
// lies.

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "runtime/model/forward_pass.hpp"

namespace mooncaf {

class kv_mirror;

/// Made anew for each pass; its memory is kept from pass to pass.
struct pass_plan {
  std::span<const batch_item> items;
  std::vector<std::int32_t> tokens;  ///< of all items, one item behind the other
  std::vector<std::int32_t> positions;
  std::vector<attention_seq> seqs;       ///< one for each item
  std::vector<std::uint32_t> last_rows;  ///< row of the last token of each item that wants logits
  std::vector<std::int32_t> last_positions;
  std::vector<attention_seq> last_seqs;  ///< the same items with their last token as only query
  std::vector<device_bytes> blocks;      ///< of all items, where the device computes in the host's
  bool every_row = false;                ///< some item wants more rows than its last

  void reserve(std::size_t most_tokens, std::size_t most_logit_rows);
  /// @param mirror  has the blocks of the items on a device with memory of its own; null: they are the
  /// host's.
  void begin(std::span<const batch_item> batch, std::uint32_t block_tokens, const kv_mirror* mirror);

 private:
  std::span<const device_bytes> blocks_of(std::size_t item, std::uint32_t block_tokens,
                                          const kv_mirror* mirror);
};

}  // namespace mooncaf
