#pragma once
// The part of `decode_core` that holds the blocks of attempts, from the job to their end: where blocks come
// from, which side may write into them, and which side gives them back.
//
//         job               slots               all landed          (the core's batch)
//  (new) ─────► reserving ─────────► receiving ─────────────► ready ─────────────────────► ended
//          (prefill on this node: straight to receiving, its blocks are handed over as they lie)
//         any state ── cancel, error, lost peer ──► ended, once no step reads its blocks
//
// Whoever owns the blocks when an attempt ends releases them: until the hand-over a prefill worker of this
// node does. Slots that a remote prefill side may still write are released fenced, and confirmed when that
// side has stopped or its links are down.

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/request/decode_actions.hpp"

namespace mooncaf {

namespace attempt_action {
/// All of the prompt is in its blocks: the core may begin with it.
struct join {
  std::uint64_t owner = 0;
};
}  // namespace attempt_action

/// Orders, in order: the core carries out `join`, the worker all others.
using attempt_actions = std::vector<
    std::variant<attempt_action::join, decode_action::pin, decode_action::reserve, decode_action::receive,
                 decode_action::expect, decode_action::confirm, decode_action::commit,
                 decode_action::withdraw, decode_action::release, decode_action::stop_prefill,
                 decode_action::fence, decode_action::forget, attempt_failed>>;

/// @thread  Owned by the decode core; not synchronised.
class decode_attempts {
 public:
  enum class phase : std::uint8_t { reserving, receiving, ready };

  struct attempt {
    attempt_id id;
    node_id gateway;
    node_id prefill;
    phase at = phase::reserving;
    bool local = false;        ///< prefill runs on this node and hands its blocks over
    bool exposed = false;      ///< a remote prefill side may be writing into the slots
    std::uint64_t fences = 0;  ///< how often its node had been fenced by then
    block_claim claim;
    std::vector<slot_index> fresh;  ///< reserved while a step was reading the blocks
    std::optional<prefill_done> done;
    bool growing = false;  ///< a slot is being reserved
    bool busy = false;     ///< in the step that runs now
    bool over = false;
  };

  decode_attempts(node_id self, std::uint32_t block_tokens, std::size_t limit)
      : self_(self), block_tokens_(block_tokens), limit_(limit) {}

  /// The actions that the calls so far led to; each is given once.
  attempt_actions take_actions() { return std::exchange(actions_, {}); }
  /// Whether this job is new here, and wanted: it is neither known nor cancelled.
  bool wants(const attempt_id& id) const;

  // ---- events ----
  /// @pre `wants(job.id)`. @param connected  the data plane reaches the prefill node; of no matter for this
  /// one.
  void take(const work_order& job, bool connected);
  void pinned(std::uint64_t owner, std::uint32_t turn, const pinned_slots& held);
  /// @param fences  how often the data plane has fenced the prefill node until now.
  void reserved(std::uint64_t owner, std::span<const slot_index> slots, std::uint64_t fences);
  /// The shard refused the order of the attempt.
  void refused(std::uint64_t owner, const error& why);
  void prefill_finished(const prefill_done& message, time_point now);
  /// @param complete  false: a slice was corrupt.
  void landed(std::uint64_t owner, bool complete);
  void cancel(const attempt_id& id, time_point now);
  void peer_lost(node_id peer);
  /// Ends attempts that the gateway has lost sight of. @returns those of the call that are not here, and
  /// those that wait for their prompt.
  roll_answer answer_roll(const roll_call& call, time_point now);
  /// The answer to `stop_prefill`: whether it wrote its last.
  void prefill_stopped(const attempt_id& id, bool stopped);
  void fenced(std::uint64_t owner) { actions_.emplace_back(decode_action::confirm{owner}); }
  /// Gives up attempts whose job or target never came. @returns owners whose leases go on.
  std::vector<std::uint64_t> sweep(time_point now);

  // ---- the core's own ----
  /// A step reads its blocks.
  void step_begun(std::uint64_t owner);
  /// Adds the slots that came meanwhile. @returns whether the attempt goes on.
  bool step_ended(std::uint64_t owner);
  /// Asks for one more slot, unless that is under way.
  void grow(std::uint64_t owner);
  /// The slot came.
  void grown(std::uint64_t owner, std::span<const slot_index> slots);
  /// It did not. @returns whether the attempt is still there.
  bool not_grown(std::uint64_t owner);
  void fail(std::uint64_t owner, error cause, bool retriable);
  /// Nothing is computed here any more: every attempt is given back, now and whenever it comes. A step at
  /// work ends as ever.
  void device_lost(error why);
  /// The process leaves: the same, but no device is to blame.
  void leave(error why);
  /// Decode's own refusal: the prefill was for nothing.
  void refuse(std::uint64_t owner, error cause, duration retry_after);
  void end(std::uint64_t owner);
  /// Null if it is not here, or erased.
  attempt* find(std::uint64_t owner);
  const std::unordered_map<std::uint64_t, attempt>& attempts() const noexcept { return attempts_; }

 private:
  void complete(attempt& a);
  /// Adds slots that came, unless a step reads the blocks now.
  static void take_fresh(attempt& a);
  void fail(attempt& a, attempt_failed message);

  node_id self_;
  std::uint32_t block_tokens_;
  std::size_t limit_;                                                             ///< attempts at once
  std::unordered_map<std::uint64_t, attempt> attempts_;                           ///< by owner
  std::unordered_map<std::uint64_t, std::pair<prefill_done, time_point>> early_;  ///< overtook their job
  std::unordered_map<std::uint64_t, time_point> cancelled_early_;
  /// Prefill nodes that were asked to stop, and how often they had been fenced.
  std::unordered_map<std::uint64_t, std::pair<node_id, std::uint64_t>> stopping_;
  std::optional<error> lost_;  ///< why the device computes nothing any more
  bool leaving_ = false;       ///< … it is whole, and its process leaves
  attempt_actions actions_;
};

}  // namespace mooncaf
