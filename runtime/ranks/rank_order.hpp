#pragma once
// An order to a rank: the sequences of a pass, as bytes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/forward_pass.hpp"

namespace mooncaf {

/// Some sequences' share of a pass. Behind it in the same bytes stand the rows that the stage before left.
struct rank_order {
  struct item {
    std::uint32_t start = 0, tokens = 0, reused = 0;
    bool logits = false, each_row = false, each_hidden = false;  ///< at the last stage alone
    std::uint64_t sequence = 0;
    std::vector<std::uint64_t> blocks;  ///< offsets in the leader's pages, of the first layer of its stage
    std::vector<block_key> keys;
  };
  bool tells_layers = false;  ///< the leader wants to hear of each layer whose KV is in its pages
  std::vector<item> items;
  std::vector<std::int32_t> ids;  ///< of all items' tokens; at the first stage alone

  std::size_t logit_rows() const noexcept;

  std::size_t tokens() const noexcept;
  friend bool operator==(const rank_order&, const rank_order&) = default;
};
bool operator==(const rank_order::item& a, const rank_order::item& b) noexcept;

/// @param pages  where the items' blocks are counted from. @param embeds  the rank is the first stage.
rank_order order_of(std::span<const batch_item> items, const std::byte* pages, bool embeds,
                    bool tells_layers);

/// Bounds of an order.
struct rank_limits {
  std::size_t tokens = 0;         ///< of a pass
  std::uint64_t pages_bytes = 0;  ///< of the leader
  std::size_t block_bytes = 0;    ///< of a rank's part of a block
};

void encode(const rank_order& order, std::vector<std::byte>& out);
/// @param bytes  becomes what stands behind the order.
/// @error `ec::corrupt` for what `encode` cannot have made, or what is beyond the limits.
result<rank_order> decode_rank_order(std::span<const std::byte>& bytes, const rank_limits& limits);

}  // namespace mooncaf
