#pragma once
// Where gateways' questions wait for their answers: the conductor's side of `admission_queue`.

#include <caf/typed_response_promise.hpp>
#include <functional>
#include <unordered_map>
#include <vector>

#include "actors/serialization.hpp"
#include "runtime/sched/admission_queue.hpp"

namespace mooncaf {

/// A gateway asks for a place and is answered when there is one, or that it shall ask again: then it does so
/// at once and keeps its place meanwhile. So a conductor that restarts, or a gateway that dies, loses nothing
/// and leaks nothing: who does not ask again is forgotten, with what it was charged.
///
///   ask ──► answered at once: placed or refused
///    ▲ └──► waits ──► placed, or the queue is full
///    └─ queued ◄─┘ after `patience`                     not asked again for `absence`: forgotten
///
/// @thread  Owned by the conductor; not synchronised.
class schedule_desk {
 public:
  using promise = caf::typed_response_promise<placement_msg>;
  /// Called for every placement, before it is told.
  using placed_fn = std::function<void(const schedule_job&, const placement_msg&)>;

  /// @param core  outlives the desk.
  schedule_desk(conductor_core& core, admission_queue_options options, placed_fn placed)
      : core_(core), queue_(core, options), placed_(std::move(placed)) {}

  void ask(const schedule_job& job, promise answer, time_point now);
  /// Something may have made room.
  void advance(time_point now);
  /// The attempt is over. @returns whether it waited here, and so was charged nowhere.
  bool withdraw(const attempt_id& id);
  /// Tells those who wait for long that they still do, and forgets who is gone.
  void tick(time_point now);
  /// Nobody is answered any more.
  void close();

  const admission_queue& queue() const noexcept { return queue_; }
  /// Under which an attempt is charged: a late word about an old try cannot release a new one.
  static request_id charge_id(const attempt_id& id) { return request_id{id.owner()}; }

 private:
  struct asker {
    schedule_job job;                    ///< without keys
    promise answer;                      ///< empty: it was told that it waits
    time_point since;                    ///< asked, or told
    std::optional<placement_msg> ready;  ///< placed while nobody listened
  };
  void tell(std::vector<decision>& decided, time_point now);
  placement_msg message_of(const asker& who, const decision& d) const;

  conductor_core& core_;
  admission_queue queue_;
  placed_fn placed_;
  std::unordered_map<request_id, asker> askers_;
  std::vector<decision> decided_;
};

}  // namespace mooncaf
