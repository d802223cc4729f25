#pragma once
// Requests that wait for a place, and the order in which they get one: admission `queue`.

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/sched/conductor_core.hpp"
#include "runtime/sched/turnover.hpp"
#include "runtime/sched/urgency.hpp"

namespace mooncaf {

struct admission_queue_options {
  std::size_t max_queued = defaults::scheduler::max_queued;
  duration aging = default_aging;  ///< waiting this long counts as one priority class
};

/// The answer to a submitted request.
struct decision {
  request_id id;
  tl::expected<placement, rejection> outcome;
};

/// The only way to `conductor_core::schedule`, live and simulated. A request of a gateway that is no member
/// is refused, since no gateway would give back its charges. Under admission `queue` a request is placed
/// while instances have room for it (`conductor_core::room_at`), and waits here otherwise; under any other
/// admission it is placed or refused at once.
///
///   submit ──► room, and no request before it: placed
///          └─► waiting ── advance: room ──► placed        withdraw ──► (nothing)
///                 └── the queue is full, and it is the last in order ──► refused
///
/// Order: priority class (one better per `aging` since arrival), then arrival, then id. The first in order
/// holds back the others, so that one that needs much memory does not starve.
/// @thread  Owned by the conductor; not synchronised.  @cost O(log waiting) beside the placement itself.
class admission_queue {
 public:
  /// @param core  outlives the queue.
  admission_queue(conductor_core& core, admission_queue_options options) : core_(core), options_(options) {}
  virtual ~admission_queue() = default;
  admission_queue(const admission_queue&) = delete;
  admission_queue& operator=(const admission_queue&) = delete;

  // Virtual calls change the queue; `recorded_queue` writes them down (runtime/sched/journal).

  /// Appends decisions to `out`: about this request unless it waits, and perhaps about others. A request that
  /// waits already keeps its place and is decided about by `advance`.
  virtual void submit(const schedule_request& request, time_point now, std::vector<decision>& out);
  /// Places waiting requests while there is room. To be called after each event that may have made some.
  virtual void advance(time_point now, std::vector<decision>& out);
  /// The request is no longer wanted. @returns whether it waited.
  virtual bool withdraw(request_id id);

  bool waits(request_id id) const { return where_.contains(id); }
  std::size_t size() const noexcept { return where_.size(); }
  /// Requests that get a place before this one if none comes; none waits before one that does not wait.
  /// @cost O(waiting)
  std::size_t before(request_id id, time_point now) const;
  const admission_queue_options& options() const noexcept { return options_; }
  /// Requests that found the queue full, or were pushed out of it by more urgent ones.
  std::uint64_t refused() const noexcept { return refused_; }

 private:
  using seat = std::pair<time_point, request_id>;
  /// Owns the lists that a `schedule_request` only views.
  struct waiting {
    schedule_request what;
    std::vector<block_key> keys;
    std::vector<worker_id> avoid;
    schedule_request view() const;
  };
  using line = std::map<seat, waiting>;

  void enqueue(const schedule_request& request, time_point arrival);
  /// Where a request stands in the order at `now`: whichever is less goes first.
  using rank = std::tuple<std::int64_t, seat>;
  rank rank_of(std::uint8_t priority, const seat& s, time_point now) const noexcept {
    return {aged_class(priority, s.first, now, options_.aging), s};
  }
  /// The line of the request that goes first of all, and of the one that goes last.
  line* first_line(time_point now);
  line* last_line(time_point now);
  void refuse_last(time_point now, std::vector<decision>& out);
  conductor_core& core_;
  admission_queue_options options_;
  std::map<std::uint8_t, line> lines_;  // by priority; within one, order by class is order by arrival
  std::unordered_map<request_id, std::pair<std::uint8_t, seat>> where_;
  turnover places_;
  std::uint64_t refused_ = 0;
};

}  // namespace mooncaf
