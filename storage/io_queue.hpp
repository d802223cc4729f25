#pragma once
// Disk work of a node's cache: the jobs queued, the jobs running, and which job runs next.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/base/ids.hpp"
#include "storage/io_job.hpp"

namespace mooncaf {

/// Reads and writes take turns. The order among writes and erasures matters, their order with reads does not:
/// a read depends on no queued job, since its block is on SSD already and held there until it is done.
/// @thread  not synchronised
class io_queue {
 public:
  struct entry {
    io_job job;
    pin_id hold;  ///< keeps the slot of a write
  };

  void add(io_job job, pin_id hold = {});
  /// Jobs of one turn, in their order: reads of one load, or reads that are none's, or writes and erasures.
  /// @param max  jobs of a turn; a load's reads come all together. @param block_bytes  bounds a turn of
  /// writes.
  std::vector<io_job> take(std::size_t max, std::size_t block_bytes);
  /// The job has run. @returns nothing for an id that is not running.
  std::optional<entry> finish(std::uint64_t id);
  /// Removes queued reads for which `drop(job)` says so; it must not add reads.
  template <class F>
  void drop_reads(F drop) {
    std::erase_if(reads_, [&](const io_job& job) {
      if (!drop(job)) return false;
      forget(job.id);
      return true;
    });
  }

  /// Queued or running jobs of a kind.
  std::size_t reads() const noexcept { return reads_pending_; }
  std::size_t writes() const noexcept { return writes_pending_; }
  std::size_t queued() const noexcept { return reads_.size() + writes_.size(); }
  std::size_t running() const noexcept { return running_; }
  /// Calls `tell(job)` for all that are queued or running, in no order.
  template <class F>
  void each(const F& tell) const {
    for (const auto& [id, e] : jobs_) tell(e.job);
  }

 private:
  std::size_t& pending(io_job::kind what);
  std::optional<entry> forget(std::uint64_t id);

  std::deque<io_job> reads_;
  std::deque<io_job> writes_;  // and erasures
  bool reads_went_last_ = false;
  std::unordered_map<std::uint64_t, entry> jobs_;  // queued and running
  std::size_t reads_pending_ = 0, writes_pending_ = 0, erasures_pending_ = 0;
  std::size_t running_ = 0;
  std::uint64_t next_ = 1;
};

}  // namespace mooncaf
