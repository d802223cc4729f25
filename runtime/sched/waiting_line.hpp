#pragma once
// Requests of one class that wait for a place, and whose turn it is among their owners.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/sched/conductor_core.hpp"
#include "runtime/sched/service_levels.hpp"

namespace mooncaf {

/// Owns the lists that a `schedule_request` only views.
struct waiting_request {
  /// Its seat: seats are in the order of arrivals.
  using seat = std::pair<time_point, request_id>;

  schedule_request what;
  std::vector<block_key> keys;
  std::vector<worker_id> avoid;
  std::optional<request_forecast> ahead;  ///< as it was when it came; none: it has not waited
  double cost = 0;                        ///< seconds of the line, by the latest plan
  bool stands_by = false;

  schedule_request view() const;
  seat came() const noexcept { return {what.arrival, what.id}; }
};

/// The seats of a class are those of its requests' arrivals. Who sits in which is a matter of shares: the owner that has had
/// the least service goes first, with the earliest of its requests. With one owner that is the order of arrivals.
/// @thread  Owned by the queue, as are the requests; not synchronised.
class waiting_line {
 public:
  using seat = waiting_request::seat;

  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }

  /// @param w  outlives its time in the line; what says its owner and seat stays as it is.
  void put(waiting_request& w);
  void take_out(const waiting_request& w);

  // Of a line that is not empty; @cost O(owners).
  seat first_seat() const;
  seat last_seat() const;
  waiting_request& earliest() const;
  /// Whose turn it is.
  waiting_request& next(const service_levels& levels) const;
  /// The latest request of the owner that has the most of them, over its weight.
  waiting_request& last(const service_levels& levels) const;

  /// Calls `visit` with every request, an owner's one after the other.
  template <class Visit>
  void each(Visit&& visit) const {
    for (const auto& [_, requests] : of_)
      for (const auto& [seat, w] : requests) visit(*w);
  }
  /// A request, and the seat that it has.
  using seated = std::pair<seat, waiting_request*>;
  /// All, by seat, as their turns would come.  @cost O(size × log size)
  std::vector<seated> in_order(const service_levels& levels) const;

 private:
  std::map<std::uint64_t, std::map<seat, waiting_request*>> of_;  // by owner, of whom each has some
  std::size_t size_ = 0;
};

}  // namespace mooncaf
