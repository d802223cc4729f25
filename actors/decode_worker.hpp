#pragma once
// A decode worker: receives the KV of prompts, runs the continuous batch, publishes the blocks that it fills.
//
//         job               slots               all landed, local check        a place is free
//  (new) ─────► reserving ─────────► receiving ─────────────────────► ready ───────────────► running
//          (prefill on this node: straight to receiving,                                       │ last token
//           its blocks are handed over as they lie)                                            ▼
//         any state ── cancel, error, lost peer, lease ──────────────────────────────────► ended
//
// A running request that needs a block when none is to be had gives its place back: the gateway places it
// again, and its published blocks make that cheap.

#include <caf/typed_event_based_actor.hpp>
#include <memory>
#include <unordered_map>
#include <vector>

#include "actors/cluster/guarded_request.hpp"
#include "actors/compute_step.hpp"
#include "actors/interfaces.hpp"
#include "actors/landing_board.hpp"
#include "actors/node_context.hpp"
#include "actors/prefill_worker.hpp"
#include "runtime/sched/block_hash.hpp"
#include "runtime/sched/decode_batch.hpp"
#include "runtime/sched/instance.hpp"

namespace mooncaf {

class decode_worker final : public decode_worker_actor::base {
 public:
  decode_worker(caf::actor_config& config, context_ptr context, worker_links links,
                std::shared_ptr<engine> machine, std::shared_ptr<landing_board> board);

  const char* name() const override { return "mooncaf.decode_worker"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  enum class phase : std::uint8_t { reserving, receiving, ready, running };

  struct live {
    generate_job job;
    phase at = phase::reserving;
    time_point arrived;
    bool local = false;             ///< prefill runs on this node and hands its blocks over
    bool exposed = false;           ///< a remote prefill side may be writing into the slots
    std::uint64_t fences = 0;       ///< how often its node had been fenced by then
    std::uint32_t have_blocks = 0;  ///< leading blocks that were here before
    std::vector<slot_index> slots;
    std::vector<std::byte*> blocks;  ///< their addresses
    std::vector<slot_index> fresh;   ///< reserved while a step was reading `blocks`
    std::optional<prefill_done> done;
    std::int32_t next = -1;             ///< the token that the next step appends
    std::uint32_t position = 0;         ///< tokens in the blocks
    std::vector<std::int32_t> unnamed;  ///< tokens of the block that is filling up
    block_key last_key;                 ///< its parent
    std::shared_ptr<sampler> sample;
    bool busy = false;     ///< in the step that runs now
    bool growing = false;  ///< a slot is being reserved
    bool over = false;
  };
  using live_ptr = std::shared_ptr<live>;

  void take(const generate_job& job);
  void pin(const live_ptr& request);
  void reserve(const live_ptr& request);
  void reserved(const live_ptr& request, const std::vector<slot_index>& slots);
  void add_slots(const live_ptr& request, const std::vector<slot_index>& slots);
  void prefill_finished(const prefill_done& done);
  void kv_landed(const attempt_id& id, bool complete);
  void publish_prompt(const live_ptr& request);
  void join(const live_ptr& request);
  decode_entry entry_of(const live& request) const;
  void refuse(const live_ptr& request, const rejection& why);

  void step();
  bool has_room(const live_ptr& request);
  void grow(const live_ptr& request);
  void take_fresh(const live_ptr& request);
  void step_done(const std::shared_ptr<compute_step>& task);
  /// @returns whether this was the request's last token.
  bool item_done(const live_ptr& request, step_item& item, token_run& run);
  void publish_block(const live_ptr& request, std::uint64_t checksum);

  void cancel(const attempt_id& id);
  void fail(const live_ptr& request, error cause, bool retriable);
  void end(const live_ptr& request);
  /// The prefill side may still write into the slots: they are free once it stopped or its links are down.
  void fence(const live_ptr& request);
  void peer_lost(node_id peer);
  void sweep();
  worker_load load() const;

  context_ptr context_;
  worker_links links_;
  std::shared_ptr<engine> machine_;
  std::shared_ptr<landing_board> board_;
  request_guard<decode_worker> guard_{this};  ///< of requests to prefill workers
  decode_batch batch_;
  std::unordered_map<std::uint64_t, live_ptr> requests_;                          ///< by owner
  std::unordered_map<std::uint64_t, std::pair<prefill_done, time_point>> early_;  ///< overtook their job
  std::unordered_map<std::uint64_t, time_point> cancelled_early_;
  bool computing_ = false;
  timed_step latest_step_;
};

}  // namespace mooncaf
