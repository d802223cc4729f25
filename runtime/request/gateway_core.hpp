#pragma once
// The gateway's mind: every client request from submission to the last token, and what brings it through
// whatever happens to the workers on the way. What the gateway actor and a simulated cluster both call, with
// time as an argument.
//
//   submit ──► waiting for a place ──► placed ──► first token ──► streaming ──► finished
//                    ▲                   │            │               │
//                    └── worker lost, ───┴────────────┴───────────────┘
//                        retriable failure: attempt + 1, prompt + tokens so far
//
// Workers are asked what they know, when they come and every few seconds: what one side has lost sight of
// ends on the other, and where prefill and decode wait for each other another attempt begins, whatever the
// reason.
//
// A client sees a pause, never an error it could have been spared, and no token twice: tokens carry their
// position.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "runtime/base/kv_layout.hpp"
#include "runtime/base/request_ids.hpp"
#include "runtime/request/client_request.hpp"
#include "runtime/request/request_trace.hpp"
#include "runtime/sched/slowest_gaps.hpp"
#include "runtime/sched/turnover.hpp"

namespace mooncaf {

struct gateway_limits {
  std::size_t max_requests = 0;  ///< held at once
  duration request_timeout{};    ///< arrival to last token
  duration ttft_slo{};           ///< the cluster's
  duration tbt_slo{};
};

/// How often `gateway_core::tick` is due.
inline constexpr duration gateway_tick = std::chrono::milliseconds(50);
/// The conductor answers a question within this, or is taken not to have.
inline constexpr duration schedule_limit = std::chrono::seconds(5);

/// Stops one worker's part in an attempt.
struct stop_order {
  attempt_id id;
  worker_id worker;
  worker_role role = worker_role::prefill;
};

/// Compares the attempts of a worker with those of the gateway. The roll must reach the worker after all
/// orders before it.
struct worker_roll {
  worker_id worker;
  roll_call call;
};

/// What the core wants done, in order:
///   schedule_job   ask the conductor, and tell `answered` or, after `schedule_limit`, `unanswered`
///   request_event  tell the conductor
///   work_order     send it to both workers of its placement
///   stop_order     tell the worker, as far as it can be reached
///   worker_roll    ask the worker, and tell `rolled` what it answers
using gateway_action = std::variant<schedule_job, request_event, work_order, stop_order, worker_roll>;

/// Receives measurements. It is called while the core changes, so it must not call back.
class gateway_observer {
 public:
  virtual ~gateway_observer() = default;
  virtual void first_token(duration ttft, std::uint32_t prompt_tokens, std::uint32_t cached_tokens) = 0;
  /// @param gap  since the one before, if there was one.
  virtual void token(std::optional<duration> gap) = 0;
  virtual void prefill_wasted(std::uint32_t tokens) = 0;
  virtual void attempt_failed(request_id request, const error& cause) = 0;
  /// @param outcome  finished, cancelled, rejected or failed.
  /// @param tenant  its name; empty: none.
  virtual void over(std::string_view outcome, const std::string& tenant, duration elapsed) = 0;
  /// The same of one generation, step by step; before its sink is told.
  virtual void traced(const request_trace& /*trace*/) {}
  /// Requests without a place.
  virtual void waiting(std::size_t requests) = 0;
};

/// @thread  Owned by the gateway; not synchronised. Sinks are called from within and must not call back.
class gateway_core {
 public:
  /// @param root      parent of every first block without a tenant salt.
  /// @param observer  outlives the core.
  gateway_core(node_id self, block_key root, const kv_layout& layout, const gateway_limits& limits,
               gateway_observer& observer);

  /// The actions that the calls so far led to; each is given once.
  std::vector<gateway_action> take_actions() { return std::exchange(actions_, {}); }

  // ---- clients ----
  /// Takes the request's generations.
  void submit(const client_request_ptr& client, time_point now);
  /// The client is gone: its answers are not read any more.
  void client_gone(const client_request_ptr& client, time_point now);
  /// Every client is told that there will be no answer.
  void close();

  // ---- the conductor ----
  /// Another conductor is to be asked, or none can be, or the same under another term: what waits for a place
  /// is asked for again. @param term  placements of a lower one are void.
  void set_conductor(bool present, std::uint64_t term, time_point now);
  void answered(const attempt_id& id, const placement_msg& where, time_point now);
  /// It refused to answer, or did not in time. A late answer is dropped.
  void unanswered(const attempt_id& id, const error& why, time_point now);

  // ---- workers ----
  /// These workers of a node can be reached from now on, and no others of it.
  void peer_up(node_id peer, std::vector<worker_id> workers, time_point now);
  /// The node is gone, and its workers with it.
  void peer_down(node_id peer, time_point now);
  void first(const first_token& message, time_point now);
  void tokens(const token_run& run, time_point now);
  void attempt_over(const attempt_failed& message, time_point now);
  /// Attempts that a worker cannot go on with by itself.
  void rolled(worker_id worker, const roll_answer& answer, time_point now);

  /// Deadlines, and requests that wait for a place.
  void tick(time_point now);

  std::size_t size() const noexcept { return requests_.size(); }

 private:
  struct live {
    attempt_id id;
    client_request_ptr client;
    generation what;
    block_key root;
    std::vector<std::int32_t> output;  ///< tokens that the sink has
    std::optional<placement_msg> placed;
    bool dispatched = false;          ///< the workers of `placed` have it
    std::vector<worker_id> avoid;     ///< decode workers that attempts failed on
    std::uint32_t wasted_tokens = 0;  ///< of a prefill that decode refused
    std::uint32_t losses = 0;         ///< nodes and devices that died with it
    bool prefilled = false;           ///< the attempt's first token is here
    time_point heard;                 ///< when a worker last said something of it
    time_point called;                ///< when the workers were last asked for it
    bool missed = false;              ///< one of them did not know it, and nothing was heard since
    /// Whether prefill and decode stood still when they were last asked, and the time before.
    std::array<bool, 2> stands{}, stood{};
    bool decoding = false;         ///< the decode side has shown life: prefill's fate no longer matters
    std::vector<token_run> early;  ///< came before the first token, which takes another link
    bool scheduling = false;       ///< the conductor's answer is awaited
    prefill_stats stats;
    time_point retry_at;       ///< when waiting for a place
    time_point placing_since;  ///< when it came, or was last known to be placed or queued
    time_point last_token;
    slowest_gaps gaps;  ///< between tokens, as the client sees them
    duration ttft{};
    std::vector<generation> followers;    ///< same prompt; start when this one has its first token
    std::vector<attempt_trace> attempts;  ///< so far, for its trace
  };
  using live_ptr = std::shared_ptr<live>;

  /// The trace of the attempt under way; null before the conductor was asked.
  static attempt_trace* traced_attempt(live& request) {
    auto& all = request.attempts;
    return !all.empty() && all.back().attempt == request.id.attempt ? &all.back() : nullptr;
  }
  /// Whether the next attempt has to tell the log-probabilities of the prompt.
  static bool scores_prompt(const live& request) {
    return request.what.sampling.prompt_logprobs >= 0 && request.output.empty();
  }
  /// Whether the next attempt has to compute all of the prompt: cached blocks come without the outputs that
  /// the client wants.
  static bool computes_prompt(const live& request) {
    return scores_prompt(request) || request.what.sampling.pooling == pooling_kind::mean;
  }
  void start(const client_request_ptr& client, generation what, std::vector<generation> followers,
             time_point now);
  void schedule(const live_ptr& request, time_point now);
  /// Whether no place could be had for so long; an answer that has begun waits longer.
  static bool waited(const live& request, duration limit, time_point now);
  void rejected(const live_ptr& request, const error& cause, time_point now);
  void dispatch(const live_ptr& request, const placement_msg& where, time_point now);
  work_order order_for(const live& request, time_point now) const;
  void first_of_all(const live_ptr& request, const first_token& message, time_point now);
  bool deliver(const live_ptr& request, const token_msg& token, time_point now);
  void again(const live_ptr& request, const error& cause, time_point now);
  static void hear(live& request, time_point now);
  void call_roll(const std::vector<worker_id>& workers, time_point now);
  /// The worker waits for the other one with this attempt, or does not know it.
  void stands_still(worker_id worker, const attempt_id& id, bool unknown, time_point now);
  /// So many workers died with the request that the request itself may be the cause.
  void give_up_lost(const live_ptr& request, time_point now);
  void stop_workers(const live_ptr& request);
  void stop_decode(const live_ptr& request);
  void finish(const live_ptr& request, finish_reason reason, time_point now);
  /// No more tokens are wanted, but the workers do not know yet.
  void stop_early(const live_ptr& request, time_point now);
  void fail(const live_ptr& request, const error& cause, std::chrono::seconds retry_after, time_point now);
  /// Counts the request, and the followers that end with it. @param failure  null: it did not fail.
  void measure_end(const live_ptr& request, std::string_view outcome, finish_reason finish,
                   const error* failure, time_point now);
  void forget(const live_ptr& request, request_stage stage, time_point now);
  /// The conductor need not charge this attempt any more.
  void give_back(const attempt_id& id, request_stage stage);
  void tell(const request_event& event);
  live_ptr find(const attempt_id& id) const;

  node_id self_;
  block_key root_;
  kv_layout layout_;
  gateway_limits limits_;
  gateway_observer& observer_;
  bool conductor_ = false;
  std::uint64_t term_ = 0;
  bool had_workers_ = false;               ///< some worker could be reached once
  std::unordered_set<worker_id> workers_;  ///< of all peers and this node
  std::unordered_map<node_id, std::vector<worker_id>> workers_of_;
  std::unordered_map<request_id, live_ptr> requests_;
  turnover places_;  ///< of `max_requests`
  request_ids ids_;
  time_point roll_at_{};
  std::vector<gateway_action> actions_;
};

}  // namespace mooncaf
