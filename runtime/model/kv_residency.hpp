#pragma once
// Which sequences' KV lies in a device's blocks.

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace mooncaf {

/// Gives a device's blocks to sequences, and keeps what they hold from pass to pass, so that a sequence that
/// goes on finds its context there. Who was not used for longest gives up blocks first, from its end: what
/// stays of it is a prefix.
///
/// Decides only; whoever asks moves the bytes. @thread One at a time.
class kv_residency {
 public:
  /// @param blocks        of the device; >= 1.
  /// @param block_tokens  >= 1.
  kv_residency(std::uint32_t blocks, std::uint32_t block_tokens);

  /// Names a taken sequence until it is given back.
  struct key {
    bool nameless = false;
    std::uint64_t id = 0;
    friend auto operator<=>(const key&, const key&) = default;
  };
  struct place {
    key who;
    /// Indices in [0, blocks) of positions 0 to `end`; until `give_back`.
    std::span<const std::uint32_t> blocks;
    std::uint32_t valid = 0;  ///< leading positions that the blocks hold already; at most `start`
  };

  /// Makes room for positions [0, end) of `sequence`, of which those before `start` are settled.
  /// @param sequence  0: nobody's; it is forgotten when it is given back. So is one that is taken already.
  /// @returns nothing if the blocks that no taken sequence uses do not suffice.
  std::optional<place> take(std::uint64_t sequence, std::uint32_t start, std::uint32_t end);
  /// Of what was taken, positions before `valid` are held now.
  void give_back(const key& who, std::uint32_t valid);

  std::uint32_t blocks_for(std::uint32_t tokens) const noexcept;
  std::uint32_t blocks() const noexcept { return blocks_; }
  /// Positions of `sequence` that are held.
  std::uint32_t held(std::uint64_t sequence) const;
  /// Every block is free or somebody's, and nobody's twice. For tests.
  bool consistent() const;

 private:
  struct held_sequence {
    std::vector<std::uint32_t> blocks;
    std::uint32_t valid = 0;
    std::uint64_t used = 0;  ///< when it was taken last
    bool taken = false;
  };
  bool make_room(std::uint32_t wanted);

  const std::uint32_t blocks_;
  const std::uint32_t block_tokens_;
  std::vector<std::uint32_t> free_;
  std::map<key, held_sequence> sequences_;
  std::uint64_t next_use_ = 0;
  std::uint64_t next_nameless_ = 0;
};

}  // namespace mooncaf
