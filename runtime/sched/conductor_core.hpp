#pragma once
// The conductor's mind: instances, their load, the prefix index, and the placement of requests. The conductor
// actor and a simulator both call it, with time as an argument.
//
//   schedule ──► charged to prefill and decode at once
//      first_token ──► prefill charge released      finished / failed / node lost ──► all charges released,
//      once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/sched/admission_judge.hpp"
#include "runtime/sched/admission_rule.hpp"
#include "runtime/sched/broken_links.hpp"
#include "runtime/sched/cluster_room.hpp"
#include "runtime/sched/cluster_state.hpp"
#include "runtime/sched/conductor_options.hpp"
#include "runtime/sched/hot_blocks.hpp"
#include "runtime/sched/instance.hpp"
#include "runtime/sched/line_pace.hpp"
#include "runtime/sched/past_minutes.hpp"
#include "runtime/sched/placement.hpp"
#include "runtime/sched/policy.hpp"
#include "runtime/sched/prefix_index.hpp"
#include "runtime/sched/transfer_board.hpp"

namespace mooncaf {

/// Placements and rejections so far.
struct conductor_counts {
  std::uint64_t placed = 0;
  std::uint64_t rejected_ttft = 0;
  std::uint64_t rejected_tbt = 0;
  std::uint64_t rejected_memory = 0;  ///< decode's memory would be full, or never holds it
  std::uint64_t rejected_unavailable = 0;
  std::uint64_t fetches = 0;     ///< placements that bring a prefix from another node
  std::uint64_t hot_copies = 0;  ///< blocks that were copied ahead of need
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;        ///< … or cancelled
  std::uint64_t lost = 0;          ///< their instance left
  std::uint64_t expired = 0;       ///< their end was never told
  std::uint64_t role_changes = 0;  ///< nodes that took up a role that they had not played
};

/// What a request would ask of the cluster if it were placed now.
struct request_forecast {
  request_work work;
  double begins_s = 0;    ///< wait at the prefill instance before its own computation
  bool keeps_tbt = true;  ///< alone on a decode instance it keeps its TBT SLO
};

/// The nodes and requests that `conductor_core::expire` dropped.
struct expiry {
  std::vector<node_id> nodes;        ///< silent for too long: removed
  std::vector<request_id> requests;  ///< released: their instance left, or their end was never told
};

/// @thread  Owned by the conductor; not synchronised.
class conductor_core {
 public:
  explicit conductor_core(conductor_options options);
  /// With a policy of the caller's own.
  conductor_core(conductor_options options, std::unique_ptr<prefill_selector> selector);
  conductor_core(conductor_core&&) = default;
  virtual ~conductor_core() = default;

  // Virtual calls change the core, and their answers follow from the calls before and the arguments alone: no
  // clock, no address, no order of a hash table. `recorded_core` writes them down (runtime/sched/journal).

  // ---- instances ----
  /// @error `ec::out_of_space` beyond `prefix_index::max_nodes` nodes.
  virtual result<void> add_node(node_id node, time_point now = {});
  /// @error `ec::not_found` if its node has not been added, `ec::already_exists` if its id is in use.
  virtual result<void> add_instance(const instance_desc& desc);
  /// Removes a node, its instances, its blocks, the charges on them, and the charges of its own clients.
  /// @returns the requests that were charged.
  virtual std::vector<request_id> remove_node(node_id node);
  /// Removes one instance and the charges on it. @returns requests that were placed there.
  virtual std::vector<request_id> remove_instance(worker_id worker);
  /// E.g. `draining`: it gets no new requests and finishes the ones it has. @error `ec::not_found`.
  virtual result<void> set_state(worker_id worker, instance_state state);
  /// A worker's report about itself; unknown workers are ignored. Without a time only the estimates are
  /// refined.
  virtual void report(worker_id worker, const instance_load& load, time_point now = {});
  /// Has nodes with workers of both roles change theirs (`elastic_roles::decide`); nothing unless the options say
  /// so. @returns the changes since the last call, those included that a node's coming or going brought.
  virtual std::vector<role_change> assign_roles(time_point now, bool leads);
  /// Whether there should be more or fewer nodes (`elastic_nodes::decide`): one wish, or none.
  virtual std::vector<scale_wish> wish_nodes(time_point now);
  /// A sign of life of a node.
  virtual void heartbeat(node_id node, time_point now);
  /// To be called several times per `heartbeat_limit`: drops silent nodes and forgotten requests, cleans the
  /// index. A late caller was away and heard no node: that time counts against none.
  virtual expiry expire(time_point now);
  /// The node cannot reach these others at present, and no more than these; nothing is placed across such a
  /// link.
  virtual void unreachable(node_id node, std::span<const node_id> peers);

  // ---- blocks ----
  /// Many at once come as fast as memory allows.
  virtual void blocks_held(node_id node, std::span<const block_key> keys, storage_tier tier);
  virtual void blocks_gone(node_id node, std::span<const block_key> keys);
  /// Brings the entries near that placing a prompt of these blocks will look up.
  void prefetch(std::span<const block_key> keys) const noexcept {
    for (const auto& k : keys) index_.prefetch(k);
  }
  /// Forgets the blocks of a node; its snapshot follows.
  virtual void forget_blocks(node_id node);
  /// The node's blocks, in their order, that another node keeps (`prefix_index::kept_elsewhere`).
  /// @param keys  in pairs: of a block, and of the one before it that draws its lot (`copy_survey`).
  std::vector<block_key> kept_elsewhere(node_id node, std::span<const block_key> keys) const;
  // ---- hot blocks ----
  /// Blocks that the node's memory holds: `hot_copy_share` of them may be copies. On nodes that told nothing
  /// none are made.
  virtual void memory_of(node_id node, std::uint64_t blocks);
  /// Copies to be made now, ahead of need: to be called now and then. Their bytes are charged to the sources.
  virtual std::vector<hot_copy> copy_hot_blocks(time_point now);

  // ---- prices, as nodes learned them; unknown nodes and rates that are not positive are ignored ----
  /// Transfers between two nodes, in either direction.
  virtual void link_measured(node_id one, node_id other, double bytes_per_s, duration latency);
  /// Reads of a node's disk.
  virtual void disk_measured(node_id node, double bytes_per_s);

  // ---- requests ----
  /// Places a request and charges it, or says why not. An id that is charged already is released first. Under
  /// admission `queue` a request that there is no room for is turned away with `reject_stage::queue`: call
  /// this through an `admission_queue`.
  /// @param tbt_room  `queue`: of what the TBT SLO leaves to others' steps, the share that may be taken.
  virtual tl::expected<placement, rejection> schedule(const schedule_request& request, time_point now,
                                                      double tbt_room = 1);
  // ---- admission `adaptive` ----
  /// A request asks for its place, for the first time or again. A part of a call of the queue.
  void came(const schedule_request& request, time_point now);
  /// The rule of admission in force: that of the options, or the one chosen last.
  const admission_rule& rule() const noexcept { return rule_; }
  /// Another rule is in force from now on. @param played  by which it was chosen, for the journal.
  virtual void play_by(const admission_rule& rule, std::span<const played_rule> played, time_point now);
  const past_minutes& memory() const noexcept { return memory_; }

  /// @returns nothing where no instance could take the request.
  std::optional<request_forecast> foresee(const schedule_request& request, time_point now);
  /// Whether the next request would start soon. A request that is placed later is placed by the caches and
  /// loads of then, and holds no memory meanwhile. Without instances there is room: no request waits for one.
  cluster_room room_at(time_point now) const;
  /// Some prefill instance has nothing to do.
  bool prefill_is_idle(time_point now) const;
  virtual void prefill_started(request_id id, time_point now);
  /// The prompt is computed: prefill's charge ends, decode's becomes real. `compute` refines the estimate.
  virtual void first_token(request_id id, std::uint32_t new_tokens, std::uint32_t cached_tokens,
                           duration compute, time_point now);
  // Terminal: all charges left are released, once; ids that are not charged are ignored.
  /// @param output_tokens  of the answer; 0: not known. What is learned from it serves later predictions.
  /// @param tbt  its time between tokens, as SLOs count it; zero: not known.
  virtual void finished(request_id id, time_point now, std::uint32_t output_tokens = 0, duration tbt = {}) {
    end(id, request_state::finished, now, output_tokens, tbt);
  }
  /// Its prompt was computed in vain: the decode side would have missed its TBT SLO.
  virtual void refused_at_decode(request_id id, time_point now) { end(id, request_state::failed, now); }
  virtual void failed(request_id id, time_point now) { end(id, request_state::failed, now); }
  virtual void cancelled(request_id id, time_point now) { end(id, request_state::cancelled, now); }

  // ---- views ----
  const conductor_options& options() const noexcept { return options_; }
  const conductor_counts& counts() const noexcept { return counts_; }
  const prefix_index& index() const noexcept { return index_; }
  const cluster_state& cluster() const noexcept { return cluster_; }
  const transfer_board& transfers() const noexcept { return transfers_; }
  /// How long after the first token the last KV of a prompt that `from` computes would be at decode instance
  /// `to`, behind the bytes that both ends' links are to move before it.
  duration hand_over_wait(const schedule_request& request, const prefill_choice& from, instance_slot to,
                          time_point now) const;
  const broken_links& broken() const noexcept { return broken_; }
  /// How wrong predictions turned out to be.
  const admission_judge& judge() const noexcept { return judge_; }
  std::size_t charged_requests() const noexcept { return cluster_.charged_requests(); }
  /// Predicted TTFT of an empty prompt at this instance, or the step time of a decode instance, over the SLO.
  double load_of(worker_id worker, time_point now) const;

 private:
  std::optional<rejection> refuse_outright(const schedule_request& request) const;
  struct pair_choice {
    prefill_choice prefill;
    decode_choice decode;
  };
  /// … looks up what the cluster holds of the prompt, first.
  pair_choice look_and_choose(const schedule_request& request, time_point now);
  pair_choice choose(const schedule_request& request, time_point now);
  std::span<const block_key> usable_keys(const schedule_request& request) const;
  std::size_t answer_of(const schedule_request& request) const;
  pair_choice choose_coupled(const schedule_request& request, time_point now);
  instance_slot decode_beside(instance_slot prefill) const;
  pair_choice choose_linked(const schedule_request& request, time_point now);
  prefill_choice choose_prefill(const schedule_request& request, const node_set& barred, time_point now);
  std::optional<rejection> refuse_too_long(const schedule_request& request) const;
  conductor_view view() const noexcept { return {options_, cluster_, transfers_, broken_, rule_}; }
  placement commit(const placement_candidate& c);
  std::vector<prefix_holder> holders_beside(const prefill_choice& p, node_id to, time_point now) const;
  void end(request_id id, request_state how, time_point now, std::uint32_t output_tokens = 0,
           duration tbt = {});

  conductor_options options_;
  admission_rule rule_;
  prefix_index index_;
  cluster_state cluster_;
  transfer_board transfers_;
  admission_judge judge_;
  elastic_roles roles_;
  elastic_nodes nodes_;
  std::unique_ptr<prefill_selector> selector_;
  broken_links broken_;
  hot_blocks hot_{{}};
  std::unordered_map<node_id, std::size_t> copy_budget_;  // blocks
  prefix_match match_;                                    // of the request at hand
  past_minutes memory_;
  conductor_counts counts_;
  time_point now_{};     // the latest time that we were told
  time_point looked_{};  // when `expire` was called last
};

}  // namespace mooncaf
