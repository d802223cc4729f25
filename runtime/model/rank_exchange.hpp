#pragma once
// What the ranks of a tensor group tell each other in the middle of a pass.

#include <algorithm>
#include <vector>

#include "gpu/device.hpp"
#include "runtime/model/tensor_part.hpp"

namespace mooncaf {

/// One rank's end. All ranks call the same functions in the same order, each on the thread of its pass.
class rank_exchange {
 public:
  virtual ~rank_exchange() = default;

  virtual tensor_part part() const noexcept = 0;
  /// Each rank has its share of the columns of every row; afterwards each has all of them. Returns once the others have
  /// given theirs; they may take this rank's later, so `t` is free at once. Of an empty tensor: a barrier, where ranks
  /// share blocks.
  /// @param t  [rows, cols] in the host's memory, of one shape at all ranks.
  /// @throws device_failure if another rank has failed.
  virtual void gather(tensor t) = 0;
  /// The first rank's word whether the pass goes on. It does not wait; the others wait for it, and what they say does
  /// not count. @throws device_failure, as `gather`.
  virtual bool goes_on(bool said) = 0;
};

/// The least of what all ranks say, below 2^24: how much of a pass they compute; 0 of one that refuses it.
/// @throws device_failure, as `gather`.
inline std::size_t least_of(rank_exchange& all, std::size_t mine) {
  const auto [rank, of] = all.part();
  std::vector<float> said(of);
  said[rank] = static_cast<float>(mine);
  all.gather({said.data(), 1, of, of});
  return static_cast<std::size_t>(*std::ranges::min_element(said));
}

}  // namespace mooncaf
