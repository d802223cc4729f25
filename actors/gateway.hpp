#pragma once
// The gateway: holds client requests from submission to the last token, and brings them through whatever
// happens to the workers on the way.
//
//   submit ──► waiting for a place ──► placed ──► first token ──► streaming ──► finished
//                    ▲                   │            │               │
//                    └── worker lost, ───┴────────────┴───────────────┘
//                        retriable failure: attempt + 1, prompt + tokens so far
//
// A client sees a pause, never an error it could have been spared, and no token twice: tokens carry their
// position.

#include <caf/typed_event_based_actor.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/client_request.hpp"
#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "runtime/base/request_ids.hpp"
#include "runtime/sched/turnover.hpp"

namespace mooncaf {

class gateway final : public gateway_actor::base {
 public:
  gateway(caf::actor_config& config, context_ptr context);

  const char* name() const override { return "mooncaf.gateway"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  struct live {
    attempt_id id;
    client_request_ptr client;
    generation what;
    block_key root;
    std::vector<std::int32_t> output;  ///< tokens that the sink has
    std::optional<placement_msg> placed;
    caf::actor prefill;
    caf::actor decode;
    std::vector<worker_id> avoid;     ///< decode workers that attempts failed on
    std::uint32_t wasted_tokens = 0;  ///< of a prefill that decode refused
    std::uint32_t losses = 0;         ///< workers that died with it
    bool decoding = false;            ///< the decode side has shown life: prefill's fate no longer matters
    std::vector<token_run> early;     ///< came before the first token, which takes another link
    bool scheduling = false;          ///< the conductor's answer is awaited
    bool over = false;
    prefill_stats stats;
    time_point retry_at;       ///< when waiting for a place
    time_point placing_since;  ///< when it came, or was last known to be placed or queued
    time_point last_token;
    duration ttft{};
    std::vector<generation> followers;  ///< same prompt; start when this one has its first token
  };
  using live_ptr = std::shared_ptr<live>;

  /// Whether the next attempt has to tell the log-probabilities of the prompt.
  static bool scores_prompt(const live& request) {
    return request.what.sampling.prompt_logprobs && request.output.empty();
  }
  void submit(const client_request_ptr& client);
  void start(const client_request_ptr& client, generation what, std::vector<generation> followers);
  void schedule(const live_ptr& request);
  void rejected(const live_ptr& request, const caf::error& why);
  void dispatch(const live_ptr& request, const placement_msg& where);
  void first(const first_token& message);
  void tokens(const token_run& run);
  bool deliver(const live_ptr& request, const token_msg& token);
  void attempt_over(const attempt_failed& message);
  void again(const live_ptr& request, const error& cause);
  void stop_workers(const live_ptr& request, bool prefill, bool decode);
  void finish(const live_ptr& request, finish_kind reason);
  /// No more tokens are wanted, but the workers do not know yet.
  void stop_early(const live_ptr& request);
  void client_gone(const client_request_ptr& client);
  void fail(const live_ptr& request, const error& cause, std::chrono::seconds retry_after);
  /// Counts the request, and the followers that end with it.
  void measure_end(const live_ptr& request, const std::string& outcome);
  void forget(const live_ptr& request, request_stage stage);
  /// The conductor need not charge this attempt any more.
  void give_back(const attempt_id& id, request_stage stage);
  void peer_lost(node_id peer);
  void tick();
  live_ptr find(const attempt_id& id) const;

  context_ptr context_;
  conductor_actor conductor_;
  std::unordered_map<worker_id, caf::actor> workers_;  ///< of all peers and this node
  std::unordered_map<node_id, std::vector<worker_id>> workers_of_;
  std::unordered_map<request_id, live_ptr> requests_;
  turnover places_;  ///< of `max_requests`
  request_ids ids_;
};

}  // namespace mooncaf
