#pragma once
// Who waits for a place, and in what order they get one: admission `queue`.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
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

/// What became of a request that was submitted.
struct decision {
  request_id id;
  tl::expected<placement, rejection> outcome;
};

/// The only way to `conductor_core::schedule`, live and simulated. Under admission `queue` a request is
/// placed while instances have room for it (`conductor_core::has_room`), and waits here otherwise; under any
/// other admission it is placed or refused at once.
///
///   submit ──► room, and nobody before it: placed
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

  /// Appends to `out` what is decided by now: about this request unless it waits, and perhaps about others. A
  /// request that waits already keeps its place and is decided about by `advance`.
  void submit(const schedule_request& request, time_point now, std::vector<decision>& out);
  /// Places those for whom there is room by now. To be called after whatever may have made some.
  void advance(time_point now, std::vector<decision>& out);
  /// It is no longer wanted. @returns whether it waited.
  bool withdraw(request_id id);

  bool waits(request_id id) const { return where_.contains(id); }
  std::size_t size() const noexcept { return where_.size(); }
  const admission_queue_options& options() const noexcept { return options_; }
  /// Requests that found the queue full, or were pushed out of it by more urgent ones.
  std::uint64_t refused() const noexcept { return refused_; }

 private:
  using seat = std::pair<time_point, request_id>;
  /// Owns what a `schedule_request` only views.
  struct waiting {
    schedule_request what;
    std::vector<block_key> keys;
    std::vector<worker_id> avoid;
    schedule_request view() const;
  };
  using line = std::map<seat, waiting>;

  void enqueue(const schedule_request& request, time_point arrival);
  /// The line whose first (last) is the first (last) of all.
  line* first_line(time_point now);
  line* last_line(time_point now);
  void refuse_last(time_point now, std::vector<decision>& out);
  std::int64_t class_of(std::uint8_t priority, const seat& s, time_point now) const noexcept {
    return aged_class(priority, s.first, now, options_.aging);
  }

  conductor_core& core_;
  admission_queue_options options_;
  std::map<std::uint8_t, line> lines_;  // by priority; within one, order by class is order by arrival
  std::unordered_map<request_id, std::pair<std::uint8_t, seat>> where_;
  turnover places_;
  std::uint64_t refused_ = 0;
};

}  // namespace mooncaf
