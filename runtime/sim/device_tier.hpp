#pragma once
// The KV in a modelled device's own memory (L1), above that of its node (L2): the production residency, and a
// link that takes time.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/device_kv_stats.hpp"
#include "runtime/model/kv_residency.hpp"
#include "runtime/sim/profile.hpp"

namespace mooncaf::sim {

/// Acts as `kv_mirror` on a live device, without the bytes: a pass loads the part of its prefix that is not
/// on the device, layer by layer before the layer that reads it, and writes its new rows back behind the
/// layer that made them.
///
///   load     ├a┼a┼a┼a┤          a step of `layers` layers takes as long as the slowest of the three, and
///   compute    ├─c─┼─c─┼─c─┼─c─┤    one layer of each of the others
///   store          ├s┤ ├s┤ ├s┤ ├s┤
///
/// Also of a pipeline group: every stage has its layers' memory and a link of its own.
/// @thread  One at a time. @cost  O(blocks of the sequences) a call.
class device_tier {
 public:
  static constexpr std::uint64_t most_blocks = 1u << 22;

  /// @param machine  with `device_link_bytes_per_s` > 0; holds `most_blocks` at most. @param stages  machines
  /// that share the layers. @param rule  of a machine that decodes its own prompts; else all is written
  /// through.
  /// @param tree  of the tiers of its node; null: one of its own.
  explicit device_tier(const profile& machine, std::uint32_t stages = 1, device_write_rule rule = {},
                       std::shared_ptr<prefix_tree> tree = {});

  /// A sequence's share of a pass.
  struct item {
    std::uint64_t sequence = 0;       ///< see `kv_residency::wish`; likewise the keys
    std::span<const block_key> keys;  ///< of its leading blocks
    std::uint32_t start = 0;          ///< positions before the new ones
    std::uint32_t tokens = 0;         ///< new ones; >= 1
    double seconds = 0;               ///< of computing, beyond the pass's constant
  };
  /// A pass, or several if the items do not fit together. One that does not fit alone reads all of its
  /// context over the link and leaves nothing behind; a live device refuses to start with such contexts.
  /// @param constant  seconds of computing that every pass takes. @returns seconds.
  double pass(std::span<const item> items, double constant);

  /// A sequence that keeps its place from step to step, as the members of a decode batch do.
  struct member {
    std::uint64_t ticket = 0;       ///< for `leave`; 0: it had no place
    std::uint32_t load_blocks = 0;  ///< that come over the link before its first step
    bool stays = false;             ///< memory gets nothing of it
  };
  /// @param w  from the settled tokens to its longest. Its keys live until `leave`. KV that had stayed before
  /// and may not any longer is written.
  member join(const kv_residency::wish& w);
  void leave(const member& m, std::uint32_t valid);
  /// Rows that decoding made, on their way back: a step's are too few to take time.
  void wrote(std::uint64_t tokens) noexcept { stats_.stored_bytes += tokens * bytes_per_token_; }

  /// Whether the KV of passes may stay. If not, the others below find nothing.
  bool keeps() const noexcept { return !rule_.through; }
  /// As `device_kv` has them on a live device.
  std::uint32_t match(std::span<const block_key> keys) const { return keeps() ? residency_.match(keys) : 0; }
  std::uint32_t adopt(std::uint64_t sequence, std::span<const block_key> keys, std::uint32_t from) {
    return keeps() ? residency_.adopt(sequence, keys, from, rule_.hits) : 0;
  }
  bool stays(std::uint64_t sequence) const { return residency_.stays(sequence); }
  void let_go(std::uint64_t sequence) {
    if (keeps()) residency_.let_go(sequence);
  }
  void want(std::span<const block_key> keys, std::uint32_t from) {
    if (keeps()) residency_.want(keys, from);
  }
  std::optional<kv_residency::write> next_write() {
    return keeps() ? residency_.next_write(rule_.ahead(blocks_)) : std::nullopt;
  }
  /// @param held  leading blocks of the chain that memory had before, @param now  that it has.
  void came_down(const kv_residency::write& chain, std::uint32_t held, std::uint32_t now) {
    wrote(std::uint64_t{now - held} * block_tokens_);
    residency_.wrote(chain.id, now);
  }
  /// A request uses these blocks, which follow memory's.
  void used(std::span<const block_key> keys, std::uint64_t now);
  /// A step of `compute` seconds that has to wait for so many blocks, layer by layer.
  double beside_loads(double compute, std::uint32_t load_blocks) const noexcept;

  /// The device died: nothing is held or lent. Counts stay.
  void clear();
  device_kv_stats stats() const;

 private:
  double overlapped(double compute, double load_bytes, double store_bytes) const noexcept;
  void count(std::uint32_t valid, std::uint32_t start, std::uint32_t blocks) noexcept;

  std::uint32_t blocks_, block_tokens_;
  std::uint64_t bytes_per_token_;
  double link_bytes_per_s_;
  double layers_, stages_;
  device_write_rule rule_;
  kv_residency residency_;
  device_kv_stats stats_;  ///< without the residency's counts
};

/// The tier of a machine that moves KV to where it computes; nothing if KV lies there.
std::optional<device_tier> tier_of(const profile& machine, std::uint32_t stages = 1,
                                   device_write_rule rule = {}, std::shared_ptr<prefix_tree> tree = {});

}  // namespace mooncaf::sim
