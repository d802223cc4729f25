#pragma once
// The KV blocks that one modelled node holds: the production eviction and write policies over keys alone.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/sched/conductor_core.hpp"
#include "storage/copy_survey.hpp"
#include "storage/prefix_tree.hpp"
#include "storage/write_policy.hpp"

namespace mooncaf::sim {

struct node_cache_options {
  eviction_options dram;
  eviction_options ssd;
  std::uint64_t dram_blocks = 0;
  std::uint64_t ssd_blocks = 0;  ///< 0: no disk
  write_policy write = write_policy::write_back;
  std::uint32_t selective_hits = 2;
  bool device_gives_back = false;  ///< see `tiered_store_options`
};

/// Leading blocks of a prompt that were found, by where they were.
struct cache_hit {
  std::uint32_t blocks = 0;
  std::uint32_t from_ssd = 0;
};

/// DRAM over SSD, in the tree that the node's device shares. Every change is announced to the conductor at
/// once, as a shard's events would be.
/// @thread  Owned by the simulation.
class node_cache {
 public:
  using pins = std::vector<prefix_tree::handle>;

  /// @param conductor  outlives the cache.
  node_cache(const node_cache_options& options, conductor_core& conductor, node_id node);

  const std::shared_ptr<prefix_tree>& tree() const noexcept { return tree_; }
  /// Memory and disk are lost; nothing may be pinned. The conductor has been told.
  void clear();
  /// The result that `pin` of all of them would have; changes nothing.
  cache_hit match(std::span<const block_key> keys) const noexcept;
  /// Takes the first `most` blocks as far as they are here, reads blocks on SSD into DRAM, counts a use of
  /// each and pins them until `unpin`.
  cache_hit pin(std::span<const block_key> keys, std::uint32_t most, std::uint64_t now, pins& held);
  void unpin(pins& held);
  /// Counts a use of blocks [from, to): they were sent elsewhere.
  void sent(std::span<const block_key> keys, std::uint32_t from, std::uint32_t to, std::uint64_t now);
  /// Puts in a copy of neighbouring blocks of one prompt; blocks without their parent are left out.
  void copy(std::span<const block_name> blocks, std::uint64_t now);
  /// Prefetches for an `insert` of the same, some time later.
  void prepare(std::span<const block_key> keys, std::uint32_t from) const noexcept;
  /// Puts blocks [from, keys.size()) in, in order; present ones count as used. Stops when nothing can give
  /// way. A block whose parent could not be put in is useless and left out.
  /// @param held  pins those that are here then, until `unpin`; null: nothing is pinned.
  /// @returns     leading blocks that are here, if the first `from` are.
  std::uint32_t insert(std::span<const block_key> keys, std::uint32_t from, std::uint64_t now,
                       pins* held = nullptr);

  /// The conductor hears of blocks that came to the node's device, or left it, and are nowhere else here.
  void tell_of_device();

  std::size_t dram_size() const noexcept { return dram_.size(); }
  std::size_t ssd_size() const noexcept { return ssd_.size(); }
  std::uint64_t ssd_written() const noexcept { return ssd_written_; }  ///< blocks
  std::uint64_t evicted() const noexcept { return evicted_; }          ///< blocks that left the node

 private:
  void hold(prefix_tree::handle h, pins& held);
  void hold_run(std::span<const block_key> run, pins& held);
  std::size_t make_room(std::size_t wanted);
  void save(prefix_tree::handle h);
  void ask_for_copies();
  void used(prefix_tree::handle h, std::uint64_t now);
  static const block_key& parent_of(std::span<const block_key> keys, std::uint32_t i) noexcept {
    return keys[i == 0 ? 0 : i - 1];
  }

  node_cache_options options_;
  conductor_core* conductor_;
  node_id node_;
  std::shared_ptr<prefix_tree> tree_;
  prefix_tree::tier &dram_, &ssd_;
  copy_survey survey_;
  pins chain_;                   // scratch
  std::vector<block_key> gone_;  // scratch
  std::uint64_t ssd_written_ = 0, ssd_evicted_ = 0, evicted_ = 0;
};

}  // namespace mooncaf::sim
