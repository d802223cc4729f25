#pragma once
// Requests that wait for a place, and the order in which they get one: admission `queue`.

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "runtime/sched/conductor_core.hpp"
#include "runtime/sched/line_pace.hpp"
#include "runtime/sched/service_levels.hpp"
#include "runtime/sched/turnover.hpp"
#include "runtime/sched/urgency.hpp"
#include "runtime/sched/waiting_line.hpp"

namespace mooncaf {

struct admission_queue_options {
  std::size_t max_queued = defaults::scheduler::max_queued;
  duration aging = default_aging;  ///< waiting this long counts as one priority class
  /// What places became free by is remembered for twice the TTFT SLO, and at least for so long.
  duration least_memory = std::chrono::seconds(20);
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
/// Order in line: priority class (one better per `aging` since arrival), then turns by owners' shares, then
/// arrival, then id. The first in order holds back the others, so that one that needs much memory does not starve.
///
/// The line is as long as its requests can be in time. Where one would not be, a request up to it stands by: the dearest, since
/// that lets the most be in time, of the owner that would have had the most service for its weight, since nobody shall fall
/// below its share while another has more than its own. One that cannot be in time at all stands by, too. Nothing
/// is refused for a prediction: it decides about the order alone, and a request that stands by comes back
/// when predictions say so. Of a line that is full the last request of the owner that has the most there is refused.
/// @source  Moore, "An n job, one machine sequencing algorithm for minimizing the number of late jobs" (1968).
/// @thread  Owned by the conductor; not synchronised.  @cost O(waiting) beside the placement itself.
class admission_queue {
 public:
  /// @param core  outlives the queue.
  admission_queue(conductor_core& core, admission_queue_options options)
      : core_(core),
        options_(options),
        pace_(std::max<duration>(2 * core.options().ttft_slo, options.least_memory)) {}
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

  bool waits(request_id id) const { return all_.contains(id); }
  std::size_t size() const noexcept { return all_.size(); }
  /// Requests that get a place before this one if none comes; none waits before one that does not wait.
  /// @cost O(waiting × log waiting)
  std::size_t before(request_id id, time_point now) const;
  const admission_queue_options& options() const noexcept { return options_; }
  /// Requests that found the queue full, or were pushed out of it by more urgent ones.
  std::uint64_t refused() const noexcept { return refused_; }
  /// Requests that were refused since they had waited too long, and others could still be in time.
  std::uint64_t shed() const noexcept { return shed_; }
  /// Requests of `size` that stand by.
  std::size_t standing_by() const noexcept { return by_.size(); }

 private:
  void enqueue(const schedule_request& request, time_point arrival);
  void foresee(waiting_request& w, time_point now);
  void look(time_point now);
  /// Decides anew who is in line and who stands by.
  void plan(time_point now);
  /// When the first token of a request would come, in seconds from now, if it were placed after `wait`.
  double begins_in(const waiting_request& w, double wait) const noexcept;
  /// Seconds until its SLO is missed.
  double left(const waiting_request& w, time_point now) const noexcept;
  bool is_in_time(const waiting_request& w, double wait, time_point now) const noexcept;
  bool spares_room(time_point now) const;
  /// Of late some place went to a request in line.
  bool serves_in_time(time_point now) const { return now - in_time_at_ < 2 * core_.options().ttft_slo; }
  bool hopeless(const waiting_request& w, time_point now) const noexcept;
  void stand_by(waiting_request& w);
  /// The line in which it waits.
  waiting_line& line_of(const waiting_request& w) { return w.stands_by ? by_ : lines_.at(w.what.priority); }
  void forget_empty_lines();
  void give_up_late(time_point now, std::vector<decision>& out);
  void decide_all(time_point now, std::vector<decision>& out);
  bool place_first(time_point now, std::vector<decision>& out);
  void learn(const waiting_request& w, const placement& where, time_point now);
  /// Where a seat of a class is in the order at `now`: whichever is less goes first.
  using rank = std::tuple<std::int64_t, waiting_request::seat>;
  rank rank_of(std::uint8_t priority, const waiting_request::seat& s, time_point now) const noexcept {
    return {aged_class(priority, s.first, now, options_.aging), s};
  }
  /// All in line, as they would go.
  std::vector<waiting_request*> in_order(time_point now) const;
  /// The class whose first seat goes first of all, and the one whose last seat goes last.
  const waiting_line& first_line(time_point now) const;
  const waiting_line& last_line(time_point now) const;
  void refuse_last(time_point now, std::vector<decision>& out);
  conductor_core& core_;
  admission_queue_options options_;
  std::unordered_map<request_id, waiting_request> all_;  // its elements stay where they are
  std::map<std::uint8_t, waiting_line> lines_;           // by priority; none is empty between calls
  waiting_line by_;                                      // all that stand by
  service_levels levels_;
  turnover places_;
  line_pace pace_;
  double store_ = 0;          // seconds between a place and the begin of the computation, of late
  time_point in_time_at_{};   // a request in line got a place
  double share_in_time_ = 0;  // of the latest places, that went to requests in line
  std::uint64_t refused_ = 0, shed_ = 0;
};

}  // namespace mooncaf
