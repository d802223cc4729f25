#pragma once
// The decisions of the worker in front of an engine of another make. To gateways and the conductor it is a prefill and a
// decode instance of one node (mode `engines`); the engine computes both parts of a request, and keeps its KV.
//
//   job ─► ask (POST, a stream) ─► tokens ─► the gateway          news of the prefix cache ─► told_blocks ─┐
//            │ refused, broken off: given back, placed elsewhere  (no news: assumed_blocks)                ├─► conductor
//            └ unreachable: away, nothing is placed here till it answers again       held_blocks ◄─────────┘
//
// An engine does not tell when it computed a prompt. Prompts are taken to be computed one after the other, in the order of
// their first tokens, so that one took from the later of its arrival and the first token before its own.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/engines/assumed_blocks.hpp"
#include "runtime/engines/completion_call.hpp"
#include "runtime/engines/completion_reader.hpp"
#include "runtime/engines/held_blocks.hpp"
#include "runtime/engines/kv_news.hpp"
#include "runtime/engines/told_blocks.hpp"

namespace mooncaf {

struct engine_core_options {
  node_id self;
  completion_terms terms;
  std::uint32_t block_tokens = 64;    ///< of our blocks
  std::vector<std::int32_t> end_ids;  ///< of the model, that end an answer
  std::size_t max_attempts = 1;       ///< at once
  bool told = true;                   ///< the engine publishes news of its cache
  std::size_t assumed_blocks = 0;     ///< without news: of ours, that its memory has room for
};

namespace engine_action {
/// Send it the question; tell `heard` and `ended`.
struct ask {
  std::uint64_t owner = 0;
  std::string body;
};
/// Nothing more of its answer is wanted.
struct hang_up {
  std::uint64_t owner = 0;
};
/// Tell all conductors.
struct announce {
  block_event_batch batch;
};
/// Nothing is known of it any more; always its last action.
struct forget {
  std::uint64_t owner = 0;
};
}  // namespace engine_action

/// Orders to the worker, in order; tokens and failures go to the attempt's gateway.
using engine_actions =
    std::vector<std::variant<engine_action::ask, engine_action::hang_up, engine_action::announce,
                             engine_action::forget, first_token, token_run, attempt_failed>>;

/// News that the engine published together.
struct engine_news {
  std::vector<kv_news> events;
  bool anew = false;  ///< before them: it began anew, or some before them were lost
};

// As they come from the threads that the engine's connections have, to the worker.
using engine_news_ptr = std::shared_ptr<const engine_news>;
using completion_piece_ptr = std::shared_ptr<const completion_piece>;

/// @thread  Owned by the engine's worker; not synchronised.
class engine_core {
 public:
  explicit engine_core(engine_core_options options);

  /// The actions that the calls so far led to; each is given once.
  engine_actions take_actions();
  bool wants(const attempt_id& id) const { return !attempts_.contains(id.owner()); }

  // ---- events ----
  /// @pre `wants(order.id)`
  void take(const work_order& order, time_point now);
  void heard(std::uint64_t owner, const completion_piece& piece, time_point now);
  /// Its call is over. @param why  code none: the stream came to its end. @param retriable  another engine may succeed.
  void ended(std::uint64_t owner, const error& why, bool retriable, time_point now);
  void cancel(const attempt_id& id, time_point now);
  /// A gateway's node is gone, and its requests with it.
  void peer_lost(node_id peer, time_point now);
  /// Ends all other attempts of that gateway. @returns those of the call that are not here.
  roll_answer answer_roll(const roll_call& call, time_point now);
  void news(const engine_news& news);
  /// Whether the engine answered when it was looked at; @param why  code none: it did.
  void looked(const error& why, time_point now);
  /// The engine says that so many requests run or wait there, ours among them.
  void counted(std::uint32_t requests);
  /// A conductor wants to know of all blocks from now on.
  void follow();
  /// The process leaves: gives its requests back and takes no more.
  void leave(const error& why, time_point now);

  /// Of the two instances that the engine is: prefill, then decode. Without their ids.
  std::pair<worker_load, worker_load> load(time_point now) const;
  std::size_t size() const noexcept { return attempts_.size(); }
  const held_blocks& held() const noexcept { return held_; }

 private:
  struct attempt {
    work_order order;
    std::uint32_t produced = 0;        ///< output tokens of the request, those of earlier attempts included
    std::uint32_t cached_tokens = 0;   ///< of the prompt, that the engine should have
    std::vector<std::int32_t> answer;  ///< of this attempt
    time_point asked;
    std::optional<time_point> latest;  ///< when its latest token came
  };

  void begun(attempt& a, const sampled_token& token, finish_reason finish, time_point now);
  void stepped(attempt& a, std::size_t tokens, time_point now);
  void fail(std::uint64_t owner, error cause, bool retriable, time_point now);
  void fail_all(const error& cause, time_point now);
  void end(std::uint64_t owner, time_point now);
  void used(const attempt& a);
  /// Context of all requests that decode there; what others have is not told, and taken to be like ours.
  std::uint64_t all_context() const noexcept { return context_tokens_ + others_ * usual_context_; }

  engine_core_options options_;
  std::unordered_map<std::uint64_t, attempt> attempts_;  ///< by owner
  held_blocks held_;
  told_blocks told_;
  assumed_blocks assumed_;
  bool followed_ = false;
  bool leaving_ = false;
  std::string away_;                  ///< why nothing can be placed here; empty: it can
  std::uint32_t missed_ = 0;          ///< looks in a row without an answer
  std::uint32_t decoding_ = 0;        ///< attempts with their first token
  std::uint64_t context_tokens_ = 0;  ///< … of all their contexts
  std::uint32_t others_ = 0;          ///< requests that came to the engine past us
  std::uint32_t beyond_ours_ = 0;     ///< … by its latest count alone
  std::uint64_t usual_context_ = 0;   ///< of a request of ours, as last known
  time_point latest_first_;           ///< first token, of any
  worker_load step_;                  ///< the latest step
  duration busy_{};                   ///< until now, but for
  time_point busy_since_;             ///< … while there are attempts
  engine_actions actions_;
};

}  // namespace mooncaf
