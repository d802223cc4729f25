#pragma once
// What the ranks of a tensor group tell each other in the middle of a pass.

#include <algorithm>
#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "runtime/model/tensor_part.hpp"

namespace mooncaf {

/// One rank's end. All ranks call the same functions in the same order, each on the thread of its pass. Tensors lie in
/// the host's memory and have one shape at all ranks. A call returns once the others have given theirs; they may take
/// this rank's later, so its tensor is free at once.
class rank_exchange {
 public:
  virtual ~rank_exchange() = default;

  virtual tensor_part part() const noexcept = 0;
  /// Each rank has its share of the columns of every row; afterwards each has all of them. Of an empty tensor: a
  /// barrier, where ranks share blocks.
  /// @param t  [rows, cols]. @throws device_failure if another rank has failed.
  void gather(tensor t);
  /// Each rank has some of the rows; afterwards each has all of them.
  /// @param of  by rank. @throws device_failure, as `gather`.
  void gather_rows(tensor t, std::span<const part_range> of);
  /// The first rank's word whether the pass goes on. It does not wait; the others wait for it, and what they say does
  /// not count. @throws device_failure, as `gather`.
  virtual bool goes_on(bool said) = 0;

 protected:
  /// A turn: each rank has `parts[rank]`, of at most `room` floats, and afterwards all of them.
  virtual void swap(std::span<const tensor> parts) = 0;
  virtual std::size_t room() const noexcept = 0;

  /// Floats of a rank's slot: rows of a long prompt go in turns that stay in the second-level cache.
  static std::size_t slot_for(std::size_t widest_row, std::uint32_t ranks) noexcept {
    return std::max<std::size_t>(128 * 1024, (widest_row + ranks - 1) / ranks);
  }
  /// Rows that may lie apart, to and from a slot, where they lie one behind the other.
  static void pack(tensor from, float* to) noexcept;
  static void unpack(const float* from, tensor to) noexcept;

 private:
  std::vector<tensor> parts_;  ///< of the turn at hand, by rank
};

/// The least of what all ranks say, below 2^24: how much of a pass they compute; 0 of one that refuses it.
/// @throws device_failure, as `gather`.
inline std::size_t least_of(rank_exchange& all, std::size_t mine) {
  const auto part = all.part();
  std::vector<float> said(part.of);
  said[part.rank] = static_cast<float>(mine);
  all.gather({said.data(), 1, part.of, part.of});
  return static_cast<std::size_t>(*std::ranges::min_element(said));
}

}  // namespace mooncaf
