#pragma once
// Where gateways' questions wait for their answers: the conductor's side of `admission_queue`.

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/request/messages.hpp"
#include "runtime/sched/admission_queue.hpp"

namespace mooncaf {

/// A gateway asks for a place and is answered when there is one, or that it shall ask again: then it does so
/// at once and keeps its place meanwhile. So a conductor that restarts, or a gateway that dies, loses nothing
/// and leaks nothing: a gateway that does not ask again is forgotten, with its charge.
///
///   ask ──► answered at once: placed or refused
///    ▲ └──► waits ──► placed, or the queue is full
///    └─ queued ◄─┘ after `patience`                     not asked again for `absence`: forgotten
///
/// @thread  Owned by the conductor; not synchronised.
class schedule_core {
 public:
  /// Names a question, so that its answer finds the asker; unique, chosen by the caller.
  using ticket = std::uint64_t;
  /// Every question is answered exactly once.
  using answers = std::vector<std::pair<ticket, placement_msg>>;
  /// Called for every placement, before it is told.
  using placed_fn = std::function<void(const schedule_job&, const placement_msg&)>;

  /// @param core, queue  outlive the core.
  schedule_core(conductor_core& core, admission_queue& queue, placed_fn placed)
      : core_(core), queue_(queue), placed_(std::move(placed)) {}

  /// The answers that the calls so far led to; each is given once.
  answers take_answers() { return std::exchange(answers_, {}); }

  void ask(const schedule_job& job, ticket asked, time_point now);
  /// Something may have made room.
  void advance(time_point now);
  /// The attempt is over. @returns whether it waited here, and so was charged nowhere.
  bool withdraw(const attempt_id& id);
  /// Forgets all questions of this gateway: it is no member any more, and would never give back the charge of
  /// a later placement.
  void forget_gateway(node_id gateway);
  /// Another conductor answers from now on: every question is to be asked again.
  void forget_all();
  /// Tells gateways whose questions wait for long that they still do, and forgets gateways that are gone.
  void tick(time_point now);
  /// No question is answered after it.
  void close();

  /// Questions that wait for an answer, or whose askers are to ask again.
  std::size_t askers() const noexcept { return askers_.size(); }
  /// Under which an attempt is charged: a late word about an old try cannot release a new one.
  static request_id charge_id(const attempt_id& id) { return request_id{id.owner()}; }

 private:
  struct asker {
    schedule_job job;                    ///< without keys
    std::optional<ticket> question;      ///< empty: it was told that it waits
    time_point since;                    ///< asked, or told
    std::optional<placement_msg> ready;  ///< placed while no question of the gateway was open
  };
  void tell(std::vector<decision>& decided, time_point now);
  /// Answers the question that waits, if there is one.
  void answer(asker& who, placement_msg message);
  placement_msg message_of(const asker& who, const decision& d) const;

  conductor_core& core_;
  admission_queue& queue_;
  placed_fn placed_;
  std::unordered_map<request_id, asker> askers_;
  std::vector<decision> decided_;
  answers answers_;
};

}  // namespace mooncaf
