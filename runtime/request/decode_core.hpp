#pragma once
// What a decode worker decides: which prompts it takes (`decode_attempts`), when they join the continuous
// batch, which answers the next step extends, what the blocks that fill up are called, and when an answer
// ends.
//
//   job ─► (decode_attempts) ─► prompt in memory ─► loading ─────────► batch: waiting ─► running ─► ended
//                                    │      (onto a device with          ▲                │ step: append a
//                                    token, │      memory of its own,           │                │ name and
//                                    publish full │      beside the steps)            │                │
//                                    blocks, ask for slots └── no such device, or no room ─────┘ │ half a
//                                    block ahead
//        any state ── cancel, failure, refusal by the check for its TBT SLO ──────────────┴─► ended
//
// A running request that needs a block when none is to be had gives its place back: the gateway places it
// again, and its published blocks make that cheap.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/request/decode_actions.hpp"
#include "runtime/request/decode_attempts.hpp"
#include "runtime/sched/decode_batch.hpp"
#include "runtime/sched/estimators.hpp"
#include "runtime/sched/journal/worker_journal.hpp"

namespace mooncaf {

struct decode_core_options {
  std::uint32_t block_tokens = 16;
  std::size_t max_attempts = 1;     ///< at once, running ones included
  std::uint64_t device_blocks = 0;  ///< of the device's own memory, where prompts are brought; 0: nowhere
  decode_batch_options batch;
  /// Whether the data plane reaches a node.
  std::function<bool(node_id)> reaches;
  /// How often the data plane has fenced a node until now.
  std::function<std::uint64_t(node_id)> fences_of;
  journal::sink journal{};  ///< gets its decisions; empty: nothing is written down
};

/// Every event comes with the time. @thread  Owned by the decode worker; not synchronised.
class decode_core {
 public:
  /// @param steps  how long a step takes, as calibrated.
  decode_core(node_id self, decode_core_options options, decode_model steps);

  /// The actions that the calls so far led to; each is given once.
  decode_actions take_actions() { return std::exchange(actions_, {}); }
  /// Whether this job is new here, and wanted: it is neither known nor cancelled.
  bool wants(const attempt_id& id) const { return attempts_.wants(id); }

  // ---- events; those of the prompt as `decode_attempts` has them ----
  /// @pre `wants(job.id)`
  void take(const work_order& job, time_point now);
  /// A job that is wanted, and that this worker can never decode.
  void turn_away(const attempt_id& id, error why);
  void pinned(std::uint64_t owner, std::uint32_t turn, const pinned_slots& held, time_point now);
  /// The answer to `reserve`, whether for the prompt or for one more block.
  void reserved(std::uint64_t owner, std::span<const slot_index> slots, time_point now);
  /// The shard refused the order of the attempt.
  void refused(std::uint64_t owner, const error& why, time_point now);
  void prefill_finished(const prefill_done& message, time_point now);
  void landed(std::uint64_t owner, bool complete, time_point now);
  void no_room(std::uint64_t owner);
  void loaded(std::uint64_t owner, time_point now);
  /// @param took  the whole step. @param failure  code none: all of it was computed.
  void step_ended(std::vector<decode_outcome> outcomes, duration took, const error& failure, time_point now);
  void cancel(const attempt_id& id, time_point now);
  void peer_lost(node_id peer, time_point now);
  roll_answer answer_roll(const roll_call& call, time_point now);
  void prefill_stopped(const attempt_id& id, bool stopped, time_point now);
  void fenced(std::uint64_t owner, time_point now);
  std::vector<std::uint64_t> sweep(time_point now);
  /// Nothing is computed here any more: every attempt is given back, now and whenever it comes. A step at
  /// work ends as ever.
  void device_lost(error why, time_point now);
  /// The process leaves: gives its requests back and takes no more. Tokens so far are out before that.
  void leave(error why, time_point now);

  /// The slots of an attempt's blocks, prompt order; more of them as it grows. @pre it is here.
  std::span<const slot_index> slots_of(std::uint64_t owner);
  /// All but the worker's id and its device's failure.
  worker_load load() const;
  /// Nothing more is written down.
  void close_journal() { decisions_.close(); }
  std::size_t size() const noexcept { return attempts_.attempts().size(); }

 private:
  /// State of an answer that is being decoded; `decode_attempts` has the rest of its attempt.
  struct answer {
    node_id gateway;
    decode_entry entry;
    duration tbt_slo{};
    bool checked = false;        ///< it may be refused when its prompt is there
    std::uint32_t produced = 0;  ///< tokens of the answer that are known, the first one included
    std::shared_ptr<decode_sequence> sequence;
    bool on_device = false;  ///< its prompt has room there, until its first step has begun
    bool running = false;
    time_point joined, began, latest;  ///< its prompt is there; its first step; its latest token
    duration longest{};                ///< between two tokens
  };
  using tokens_by_gateway = std::unordered_map<node_id, token_batch>;

  /// After every event: brings the batch up to date, and begins a step if the device is free.
  void settle(time_point now);
  /// Carries out the orders of `decode_attempts` to the core, and passes on its orders to the worker.
  void pass_on(time_point now);
  void pass(attempt_action::join& order, time_point now);
  void pass(decode_action::receive& order, time_point now);
  void pass(decode_action::withdraw& order, time_point now);
  void pass(decode_action::forget& order, time_point now);
  template <class Action>
  void pass(Action& order, time_point) {
    actions_.emplace_back(std::move(order));
  }

  void take_room(std::uint64_t owner, std::uint32_t have_blocks);
  bool fits_on_device(const answer& newcomer) const;
  void join(std::uint64_t owner, time_point now);
  void step(time_point now);
  bool has_room(std::uint64_t owner, const decode_sequence& sequence);
  void ask_ahead(std::uint64_t owner);
  void not_grown(std::uint64_t owner, const error& why);
  /// @returns the tokens to send.
  token_run extend(std::uint64_t owner, answer& of, const decode_outcome& outcome, time_point now);

  decode_core_options options_;
  decode_attempts attempts_;
  decode_batch batch_;
  decode_model steps_;  ///< refined by every step
  journal::worker_journal decisions_;
  std::unordered_map<std::uint64_t, answer> answers_;  ///< by owner; those that `decode_attempts` has
  bool computing_ = false;
  std::uint64_t context_tokens_ = 0;  ///< of the step at work
  worker_load latest_;                ///< report of the latest step
  decode_actions actions_;
};

}  // namespace mooncaf
