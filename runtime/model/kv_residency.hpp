#pragma once
// Which KV lies in the blocks of a device with memory of its own: prefixes by their blocks' keys, and the
// ends of sequences that fill no block yet.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/base/hash.hpp"

namespace mooncaf {

/// Lends a device's blocks to passes and keeps what they hold. A full block whose key is known is shared by
/// everybody with that prefix, whichever request or worker filled it; the blocks of a sequence behind those
/// are kept under its name. Blocks that nobody uses leave least recently used first, a child before its
/// parent, so that what stays is always a prefix.
///
/// Decides only; whoever asks moves the bytes. @thread One at a time. @cost O(blocks of the sequence) a call.
class kv_residency {
 public:
  /// @param blocks        of the device; >= 1.
  /// @param block_tokens  >= 1.
  kv_residency(std::uint32_t blocks, std::uint32_t block_tokens);

  /// What a pass needs room for: positions [0, end), of which those before `start` are settled.
  struct wish {
    /// Names who goes on with it from pass to pass; 0: nobody. Equal names mean equal positions before
    /// `start`.
    std::uint64_t sequence = 0;
    /// Of the leading blocks, as far as they are known; valid until `give_back`.
    std::span<const block_key> keys;
    std::uint32_t start = 0;
    std::uint32_t end = 0;  ///< > start
  };
  struct place {
    std::uint64_t ticket = 0;  ///< for `give_back`
    /// Indices in [0, blocks) of positions 0 to `end`; until `give_back`. Those with a position from `start`
    /// on are this ticket's alone.
    std::span<const std::uint32_t> blocks;
    std::uint32_t valid = 0;  ///< leading positions that the blocks hold already; at most `start`
  };

  /// @returns nothing if the blocks that no ticket uses do not suffice.
  std::optional<place> take(const wish& w);
  /// Of what was taken, positions before `valid` are held now: at least the place's own.
  void give_back(std::uint64_t ticket, std::uint32_t valid);

  /// Nothing that is not lent is held any longer.
  void forget();

  std::uint32_t blocks_for(std::uint32_t tokens) const noexcept;
  struct block_range {
    std::uint32_t first = 0, last = 0;  ///< [first, last)
    std::uint32_t size() const noexcept { return last - first; }
  };
  /// Blocks that must come from elsewhere before positions [0, start) can be read of a place that holds
  /// `valid` of them: whole ones, since where they come from holds their beginning, too.
  block_range missing(std::uint32_t valid, std::uint32_t start) const noexcept;
  std::uint32_t blocks() const noexcept { return static_cast<std::uint32_t>(cells_.size()); }
  /// Blocks that hold something or are lent.
  std::uint32_t used() const noexcept { return blocks() - static_cast<std::uint32_t>(free_.size()); }
  /// Whether tickets are out.
  bool lent() const noexcept { return !tickets_.empty(); }
  /// Every block is free, lent or kept, once, and every key leads to its block. For tests.
  bool consistent() const;

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;

  struct cell {
    std::uint32_t pins = 0;                    ///< tickets that use it
    std::uint32_t older = none, newer = none;  ///< among those that may leave
    bool idle = false;                         ///< it is among them
    std::optional<block_key> key;
    std::uint64_t sequence = 0;  ///< whose end it is part of, if it has no key
  };
  /// Blocks of a sequence behind its blocks with keys.
  struct tail {
    std::uint32_t first = 0;  ///< index of blocks[0] in the sequence
    std::vector<std::uint32_t> blocks;
    std::uint32_t valid = 0;
  };
  struct taken {
    wish what;
    std::vector<std::uint32_t> blocks;
    std::uint32_t shared = 0;  ///< leading blocks that had keys when they were taken
  };

  std::uint32_t adopt_tail(taken& t);
  void settle(const taken& t, std::uint32_t valid);
  bool make_room(std::uint32_t wanted);
  void release(std::uint32_t block);
  void evict(std::uint32_t block);
  void drop_tail(std::uint64_t sequence);
  void set_idle(std::uint32_t block);
  void set_busy(std::uint32_t block);

  std::uint32_t block_tokens_;
  std::vector<cell> cells_;
  std::vector<std::uint32_t> free_;
  std::uint32_t oldest_ = none, newest_ = none;  ///< of the idle
  std::unordered_map<block_key, std::uint32_t> keyed_;
  std::unordered_map<std::uint64_t, tail> tails_;
  std::unordered_map<std::uint64_t, taken> tickets_;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace mooncaf
