#pragma once
// The conductor: a mailbox around `conductor_core`, and the list of members. Soft state only: after a restart
// nodes join again and shards announce what they hold.

#include <caf/typed_event_based_actor.hpp>
#include <deque>
#include <string>
#include <unordered_map>

#include "actors/interfaces.hpp"
#include "actors/schedule_desk.hpp"
#include "runtime/sched/event_stream.hpp"
#include "runtime/sched/journal/recorded_core.hpp"

namespace mooncaf {

/// What the conductor needs to know of its own process.
struct conductor_setup {
  conductor_options core;
  admission_queue_options queue;
  block_key fingerprint;
  std::string model;
  std::string layout;
  journal::sink journal{};  ///< empty: nothing is recorded
};

class conductor final : public conductor_actor::base {
 public:
  conductor(caf::actor_config& config, conductor_setup setup);

  const char* name() const override { return "mooncaf.conductor"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  struct member {
    node_info info;
    node_report latest;
    time_point seen{};
    event_stream stream;  ///< what its shard announces
  };
  /// A recent placement, for the live page.
  struct recent {
    request_id id;
    placement_msg where;
    std::uint32_t prompt_tokens = 0;
    std::int64_t ttft_ns = 0;
    std::int64_t compute_ns = 0;
    std::uint32_t cached_tokens = 0;
    std::uint32_t output_tokens = 0;
    request_stage stage = request_stage::prefill_started;
  };

  caf::result<std::vector<node_info>> join(const node_info& node);
  void leave(node_id node);
  /// Forgets a member of which the core has dropped everything.
  void forget(node_id node);
  roster_msg report(const node_report& report);
  caf::result<placement_msg> schedule(const schedule_job& job);
  void remember(const schedule_job& job, const placement_msg& where);
  void event(const request_event& e);
  void over(const request_event& e);
  /// What the node learned of its links and its disk.
  void learn_prices(const node_report& report);
  void blocks(const block_event_batch& batch);
  /// Asks a shard for a snapshot of what it holds, and for the changes after it.
  void follow(const caf::actor& shard);
  /// Tells the pool which of these blocks to copy.
  void offer(const block_event_batch& batch);
  void tick();
  /// Has blocks that many requests use copied to nodes with little to do.
  void copy_hot_blocks();
  std::string status() const;
  std::string name_of(worker_id worker) const;

  conductor_setup setup_;
  recorded_core core_;
  schedule_desk desk_;
  std::unordered_map<node_id, member> members_;
  std::deque<recent> recent_;  ///< newest first
  std::uint64_t roster_ = 0;   ///< grows with every join and leave
  std::uint64_t gaps_ = 0;     ///< resyncs that were needed
  time_point started_{};
  std::uint64_t prompt_tokens_ = 0, cached_tokens_ = 0, output_tokens_ = 0, finished_ = 0, failed_ = 0,
                cancelled_ = 0;
  std::uint64_t refused_at_decode_ = 0, wasted_tokens_ = 0;
};

}  // namespace mooncaf
