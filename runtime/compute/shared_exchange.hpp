#pragma once
// The exchange of a tensor group whose ranks are in one process.
//
//   rank 0   own columns -> its slot | raises its flag n | awaits the other flags n | others' slots -> its rows
//   rank 1   own columns -> its slot | raises its flag n | …
//
// Slots are there twice, for even and odd n: a rank that raises n has read all of n - 1, so who sees that may write
// into the slots of n - 1 again. One wait for each gather.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/turn_flag.hpp"
#include "runtime/model/group_exchange.hpp"
#include "runtime/model/rank_exchange.hpp"

namespace mooncaf {

/// Owns the slots; its ends share ownership of it.
class shared_exchange : public group_exchange, public std::enable_shared_from_this<shared_exchange> {
 public:
  /// @param widest_row  columns of the widest tensor that is gathered.
  /// @param far  see `group_exchange::far`.
  static std::shared_ptr<shared_exchange> make(std::uint32_t ranks, std::size_t widest_row, bool far = false);

  /// The end of a rank, for one thread at a time.
  std::shared_ptr<rank_exchange> end(std::uint32_t rank);

  void abandon(const std::string& why) override;
  void renew() override;
  bool far() const noexcept override { return far_; }

 private:
  friend class shared_end;

  shared_exchange(std::uint32_t ranks, std::size_t widest_row, bool far);
  float* slot(std::uint32_t turn, std::uint32_t rank) noexcept {
    return slots_.data() + ((turn & 1) * ranks_ + rank) * slot_floats_;
  }
  void await(turn_flag& f, std::uint32_t at_least) const;

  const std::uint32_t ranks_;
  const std::size_t slot_floats_;
  const bool far_;
  std::vector<float> slots_;            ///< [2, ranks, slot]
  std::unique_ptr<turn_flag[]> given_;  ///< by rank: gathers for which its columns are there
  turn_flag word_;                      ///< of the first rank: how often it has spoken
  std::atomic<bool> goes_on_{true};
  std::vector<std::uint32_t> words_;  ///< by rank: words that it has said or heard
  std::mutex mutex_;                  ///< of ranks that fail at once
  std::string why_;                   ///< written before the flags end; empty: they have not
};

}  // namespace mooncaf
