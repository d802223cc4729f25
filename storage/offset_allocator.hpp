#pragma once
// Parts of any size of one span of bytes, in constant time. Knows offsets only: the bytes may lie in another
// process.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace mooncaf {

/// Two-level segregated fit: free runs hang in lists by size class, 16 classes to a power of two, and two
/// words of bits say which lists are not empty. A freed part joins its free neighbours at once.
///
/// Bookkeeping lies outside the span, 48 bytes a part, so nothing that a peer writes can damage it.
/// @source  M. Masmano et al., TLSF: a new dynamic memory allocator for real-time systems, ECRTS 2004.
/// @thread  not synchronised
class offset_allocator {
 public:
  /// Offsets and sizes are multiples of it.
  static constexpr std::uint64_t grain_bytes = 64;

  struct extent {
    std::uint64_t offset = 0;  ///< bytes from the start of the span
    std::uint32_t handle = 0;  ///< handed to `release`
  };

  /// @param bytes  of the span; less than a grain at its end is not used.
  explicit offset_allocator(std::uint64_t bytes);

  /// @param bytes  not zero; rounded up to whole grains. @returns nothing if no free run is found: one that
  /// is at most a sixteenth longer may be overlooked. @cost O(1)
  std::optional<extent> allocate(std::uint64_t bytes);
  /// A part at a given place, behind all that was ever handed out: how a span is filled again that an earlier
  /// allocator had divided. @returns nothing if the place is not free, or part of it lies outside. @cost O(1)
  std::optional<extent> claim(std::uint64_t offset, std::uint64_t bytes);
  /// @param handle  of an extent that was handed out and not released since. @cost O(1)
  void release(std::uint32_t handle);

  std::uint64_t total_bytes() const noexcept { return total_ * grain_bytes; }
  std::uint64_t free_bytes() const noexcept { return free_ * grain_bytes; }
  /// Bytes that an extent of this many takes up.
  static constexpr std::uint64_t rounded(std::uint64_t bytes) noexcept {
    return (bytes + grain_bytes - 1) / grain_bytes * grain_bytes;
  }
  /// Walks everything: parts tile the span, no two neighbours are free, lists and bits agree. For tests.
  bool consistent() const;

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  static constexpr unsigned steps_log2 = 4, steps = 1u << steps_log2;
  static constexpr unsigned levels = 64 - steps_log2 + 1;

  struct part {
    std::uint64_t begin = 0, grains = 0;
    std::uint32_t before = none, after = none;             ///< neighbours in the span
    std::uint32_t previous_free = none, next_free = none;  ///< in the list of its class
    bool used = false;
  };
  struct size_class {
    unsigned level, step;
  };

  static size_class class_of(std::uint64_t grains) noexcept;
  std::uint32_t find(std::uint64_t grains) const noexcept;
  std::uint32_t find_in_own_class(std::uint64_t grains) const noexcept;
  void hang(std::uint32_t index);
  void unhang(std::uint32_t index);
  void absorb_next(std::uint32_t index);
  void split(std::uint32_t index, std::uint64_t grains);
  std::uint32_t new_part();

  std::uint64_t total_, free_;
  std::uint32_t last_ = none;  ///< part of the span
  std::vector<part> parts_;
  std::vector<std::uint32_t> spare_;  ///< places of `parts_` that are not in use
  std::uint64_t level_bits_ = 0;
  std::array<std::uint32_t, levels> step_bits_{};
  std::array<std::array<std::uint32_t, steps>, levels> heads_;
};

}  // namespace mooncaf
