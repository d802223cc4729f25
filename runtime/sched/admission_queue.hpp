#pragma once
// Requests that wait for a place, and the order in which they get one: admission `queue`.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/sched/conductor_core.hpp"
#include "runtime/sched/line_pace.hpp"
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
///          └─► in line ── advance: room ──► placed        withdraw ──► (nothing)
///               │   ▲ └── the queue is full, and it is the last in order ──► refused
///               ▼   │
///              stood by ── advance: room, and nobody in line ──► placed
///                     └── past twice its TTFT SLO, while places go to requests in time ──► refused
///
/// Order in line: priority class (one better per `aging` since arrival), then arrival, then id. The first in
/// order holds back the others, so that one that needs much memory does not starve.
///
/// The line is as long as its requests can be in time. Where one would not be, the dearest of those up to it
/// stands by, since that lets the most be in time; one that cannot be in time at all stands by, too. Nothing
/// is refused for a prediction: it decides about the order alone, and a request that stands by comes back
/// when predictions say so.
/// @source  Moore, "An n job, one machine sequencing algorithm for minimizing the number of late jobs" (1968).
/// @thread  Owned by the conductor; not synchronised.  @cost O(waiting) beside the placement itself.
class admission_queue {
 public:
  /// @param core  outlives the queue.
  admission_queue(conductor_core& core, admission_queue_options options)
      : core_(core),
        options_(options),
        pace_(std::max<duration>(2 * core.options().ttft_slo, least_memory)) {}
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
  /// Requests that were refused since they had waited too long, and others could still be in time.
  std::uint64_t shed() const noexcept { return shed_; }
  /// Requests of `size` that stand by.
  std::size_t standing_by() const noexcept { return by_.size(); }

 private:
  static constexpr duration least_memory = std::chrono::seconds(20);
  using seat = std::pair<time_point, request_id>;
  /// Owns the lists that a `schedule_request` only views.
  struct waiting {
    schedule_request what;
    std::vector<block_key> keys;
    std::vector<worker_id> avoid;
    std::optional<request_forecast> ahead;  ///< as it was when it came; none: it has not waited
    double cost = 0;                        ///< seconds of the line, by the latest plan
    schedule_request view() const;
  };
  using line = std::map<seat, waiting>;
  enum class place { in_line, by };
  struct position {
    std::uint8_t priority;
    seat at;
    place is;
  };

  void enqueue(const schedule_request& request, time_point arrival);
  void foresee(waiting& w, time_point now);
  void look(time_point now);
  /// Decides anew who is in line and who stands by.
  void plan(time_point now);
  /// When the first token of a request would come, in seconds from now, if it were placed after `wait`.
  double begins_in(const waiting& w, double wait) const noexcept;
  /// Seconds until its SLO is missed.
  double left(const waiting& w, time_point now) const noexcept;
  bool is_in_time(const waiting& w, double wait, time_point now) const noexcept;
  bool spares_room(time_point now) const;
  /// Of late some place went to a request in line.
  bool serves_in_time(time_point now) const { return now - in_time_at_ < 2 * core_.options().ttft_slo; }
  bool hopeless(const waiting& w, time_point now) const noexcept;
  void stand_by(line& from, line::iterator who);
  void give_up_late(time_point now, std::vector<decision>& out);
  void decide_all(time_point now, std::vector<decision>& out);
  bool place_first(time_point now, std::vector<decision>& out);
  void learn(const waiting& w, const placement& where, time_point now);
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
  line by_;                             // all that stand by
  std::unordered_map<request_id, position> where_;
  turnover places_;
  line_pace pace_;
  double store_ = 0;          // seconds between a place and the begin of the computation, of late
  time_point in_time_at_{};   // a request in line got a place
  double share_in_time_ = 0;  // of the latest places, that went to requests in line
  std::uint64_t refused_ = 0, shed_ = 0;
};

}  // namespace mooncaf
