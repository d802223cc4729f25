#pragma once
// Which blocks many requests use, and on which nodes further copies of them belong.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/base/block_name.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/tag_index.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

struct hot_options {
  double uses_per_holder = 8;  ///< uses within about a minute that are worth a holder
  std::size_t most_tracked = 1 << 16;
};

/// A node that computes prompts, and so profits from the blocks it holds.
struct hot_node {
  node_id id;
  duration queue{};               ///< until it could begin with something new
  std::size_t budget_blocks = 0;  ///< copies that may be made there, in all
};

/// One chain, in order.
struct hot_copy {
  node_id source;
  node_id target;
  std::vector<block_name> blocks;
};

/// Heat of a block: its uses, fading to a half within 30 s. Where a block has more heat than its holders are
/// worth, one more is made, on the node with the shortest queue and room in its budget: one per chain and
/// plan, so that the next plan sees the effect of the last one. A copy is a block like any other: it is found
/// by the next request, and goes with the others when it has not been used for longest, which ends its place
/// in the budget.
/// @thread  Owned by the conductor; not synchronised.
/// @cost `used`: a lookup per block, of the first 128; `plan`: the blocks that were hot lately, not all that
/// are tracked.
class hot_blocks {
 public:
  using holds_fn = std::function<bool(node_id, const block_key&)>;

  explicit hot_blocks(hot_options options) : options_(options) {}

  /// A request with this prompt was placed.
  void used(std::span<const block_key> keys, time_point now);
  /// The copies to make now; they count as made.
  std::vector<hot_copy> plan(std::span<const hot_node> nodes, const holds_fn& holds, time_point now);
  double heat(const block_key& key, time_point now) const;
  /// Copies that were made on a node and are there, or on their way.
  std::size_t copies_on(node_id node) const;
  void forget(node_id node) { copies_.erase(node); }

 private:
  struct entry {
    block_key key;
    double heat = 0;  ///< at `at`
    time_point at{};
    block_key parent;
    std::uint32_t depth = 0;
  };
  using chain = std::vector<block_name>;

  static double faded(const entry& e, time_point now);
  const entry* find(const block_key& key) const;
  void forget_the_coldest(time_point now);
  std::vector<chain> hot_chains(time_point now);
  bool has(node_id node, const block_key& key, const holds_fn& holds) const;
  void copy(const chain& c, std::span<const hot_node> nodes, const holds_fn& holds, time_point now,
            std::vector<hot_copy>& out);
  void forget_what_is_gone(const holds_fn& holds, time_point now);

  hot_options options_;
  std::vector<entry> blocks_;           // all that are tracked, in no order
  tag_index places_;                    // of their keys in `blocks_`
  std::unordered_set<block_key> warm_;  // all that may be hot: heat only fades until the next use
  std::unordered_map<node_id, std::unordered_map<block_key, time_point>> copies_;  // made when
};

}  // namespace mooncaf
