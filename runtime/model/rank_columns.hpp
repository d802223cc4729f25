#pragma once
// Which columns of a pass's rows a rank of a tensor group computes, and how it gets the others'.

#include <memory>
#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "runtime/model/rank_exchange.hpp"
#include "runtime/model/tensor_part.hpp"

namespace mooncaf {

/// Of one runner, on the thread of its pass. A model that is no share has all columns, and gathering does nothing.
class rank_columns {
 public:
  /// @param part     the model's share.
  /// @param all      to the other ranks; null if there are none.
  /// @param swapped  room for the widest rows of a pass in the host's memory, if the host does not reach the device's.
  rank_columns(compute_queue& queue, const tensor_part& part, std::shared_ptr<rank_exchange> all,
               std::shared_ptr<std::vector<float>> swapped)
      : queue_(queue), part_(part), all_(std::move(all)), swapped_(std::move(swapped)) {}

  const tensor_part& part() const noexcept { return part_; }
  /// The columns that this rank computes.
  tensor own(tensor t) const noexcept;
  /// Completes rows of which each rank has computed its columns; of an empty tensor a barrier.
  /// @throws device_failure, as `rank_exchange::gather`.
  void gather(tensor t);
  /// Completes a tensor of which each rank has computed some rows. @param of  by rank.
  void gather_rows(tensor t, std::span<const part_range> of);

 private:
  template <class How>
  void swap(tensor t, tensor mine, const How& how);

  compute_queue& queue_;
  tensor_part part_;
  std::shared_ptr<rank_exchange> all_;
  std::shared_ptr<std::vector<float>> swapped_;
};

}  // namespace mooncaf
