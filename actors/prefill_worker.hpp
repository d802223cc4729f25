#pragma once
// A prefill worker: reuses what it can of a prompt, computes the rest in chunks, streams the KV out.
//
//          job            weighed           pinned           slots            fetched         chunks done
//   (new) ─────► looking ────────► pinning ───────► reserving ─────► fetching ──────► queued ◄──► computing
//                             (reads the SSD,                   (only what is         ▲               │ last
//                             chunk
//                              where it pays)                    worth it) ───────────┘               ▼
//        any state ── cancel, error ──► ended        early, while layers come in         handed over (same
//        node): forgotten
//                                                                                        sending (other node)
//                                                                                        ──► ended
//
// A request that computes early is not believed before its whole prefix is verified: until then its outcomes
// are held, and if the prefix turns out bad they are thrown away and computed again.
//
// "Ended" is one function: it frees the slots once nothing can write from them any more and answers whoever
// waits.

#include <algorithm>
#include <caf/response_promise.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "actors/compute_step.hpp"
#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "runtime/request/block_claim.hpp"
#include "runtime/sched/estimators.hpp"
#include "runtime/sched/layer_arrival.hpp"
#include "runtime/sched/load_plan.hpp"
#include "runtime/sched/prefetch_policy.hpp"
#include "runtime/sched/prefill_batch.hpp"

namespace mooncaf {

/// Local actors that a worker talks to.
struct worker_links {
  worker_id id;
  cache_shard_actor shard;
  messenger_actor messenger;
  executor_actor executor;
  prefill_model passes;  ///< prefill: how long a pass takes, as calibrated
  decode_model steps;    ///< decode: how long a step takes, as calibrated
};

class prefill_worker final : public prefill_worker_actor::base {
 public:
  /// Prompts that one step may end, and so the rows of logits that its runner needs: with prompts shorter
  /// than 16 tokens a step is not filled, which costs less than room for logits that are hardly ever wanted.
  static constexpr std::uint32_t requests_per_step(std::uint32_t budget_tokens) {
    return std::max(1u, budget_tokens / 16);
  }

  prefill_worker(caf::actor_config& config, context_ptr context, worker_links links,
                 std::shared_ptr<engine> machine);

  const char* name() const override { return "mooncaf.prefill_worker"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  enum class phase : std::uint8_t { looking, pinning, reserving, fetching, queued, sending };

  /// One attempt, from the job to the last slice.
  struct live {
    generate_job job;
    phase at = phase::looking;
    time_point arrived;
    load_plan plan;         ///< what is loaded, and what that may take
    time_point load_began;  ///< of the stage at work: SSD, then the other node
    block_claim claim;      ///< what it holds here, and fetches
    prefix_load_ptr load;   ///< set while its prefix comes layer by layer
    layer_arrival arrival;
    bool early = false;  ///< computes behind a prefix that is not verified
    bool again = false;  ///< … which failed: computed anew when nothing touches its blocks
    std::vector<std::pair<step_item, duration>> held;  ///< outcomes that nobody may see before that
    std::vector<std::byte*> blocks;                    ///< addresses of the blocks of `job.tokens`
    std::uint32_t computed = 0;                        ///< positions [0, computed) are in the blocks
    std::vector<token_msg> scores;  ///< log-probabilities of the prompt, as far as it is computed
    std::vector<double> pooled;     ///< of its hidden states, as far as it is computed
    prefill_stats stats;
    std::shared_ptr<kv_stream> stream;  ///< null: decode is on this node
    bool targeted = false;              ///< … which has said where it goes
    std::shared_ptr<sampler> sample;
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
    bool busy = false;  ///< a step writes its blocks
    bool over = false;  ///< cancelled or failed; waits until nothing touches its blocks
    std::vector<caf::response_promise> waiting;  ///< cancels to answer
  };
  using live_ptr = std::shared_ptr<live>;

  void take(const generate_job& job);
  /// Leading blocks that need not be computed. The last token always is: its logits are what the client waits
  /// for; and all of them if their logits are wanted, too.
  std::uint32_t reusable_blocks(const generate_job& job) const;
  // What is reused (actors/prefill_reuse.cpp).
  void look(const live_ptr& request);
  void weigh(const live_ptr& request, const prefix_view& here);
  void pin(const live_ptr& request, std::uint32_t from_ssd);
  void reserve(const live_ptr& request, std::uint32_t count);
  void fetch(const live_ptr& request);
  void fetched(const live_ptr& request, const remote_blocks& got);
  void adopt(const live_ptr& request, const remote_blocks& got);
  /// Whether nothing is being computed and nothing waits to be.
  bool idle() const noexcept { return !computing_ && queue_.size() == 0; }
  /// Tokens that the stage at work loads; 0: none is.
  std::uint32_t tokens_loading(const live_ptr& request) const;
  /// Ends loading if its time is over.
  void maybe_stop(const live_ptr& request);
  /// Stops whom the idle device does not wait for, and begins with the most urgent whose layers come in fast
  /// enough.
  void use_idle_device();
  void begin_early(const live_ptr& request);
  /// The prefix of an early request is verified (true), or is not to be had.
  void settle(const live_ptr& request, const remote_blocks& got);
  void compute_again(const live_ptr& request);
  void stop_loading(const live_ptr& request);

  void enqueue(const live_ptr& request);
  /// Whether KV leaves while it is being computed.
  bool layerwise() const;
  void open_stream(const live_ptr& request);

  void step();
  step_item make_item(const live_ptr& request, const prefill_chunk& chunk);
  void step_done(const std::shared_ptr<compute_step>& task);
  void item_done(const live_ptr& request, step_item& item, duration elapsed);
  void learn(const compute_step& task);
  void commit(const live_ptr& request, const step_item& item);
  void prompt_done(const live_ptr& request, const sampled_token& token);

  caf::result<void> cancel(const attempt_id& id);
  roll_answer answer_roll(const roll_call& call);
  void fail(const live_ptr& request, error cause, bool retriable);
  void end(const live_ptr& request);
  std::vector<live_ptr> requests_of(node_id gateway) const;
  /// Those whose KV is to go to this node.
  std::vector<live_ptr> bound_for(node_id decode) const;
  void sweep();

  context_ptr context_;
  worker_links links_;
  std::shared_ptr<engine> machine_;
  prefill_model computing_model_;  ///< as calibrated, refined by every pass
  prefetch_policy prefetch_;
  prefill_batch queue_;
  std::unordered_map<std::uint64_t, live_ptr> requests_;  ///< by owner
  std::unordered_map<std::uint64_t, std::pair<kv_target, time_point>> early_targets_;
  std::unordered_map<std::uint64_t, time_point> cancelled_early_;  ///< cancels that overtook their job
  bool computing_ = false;
};

}  // namespace mooncaf
