#pragma once
// The cluster on a virtual clock: production scheduling, batching and eviction, modelled machines.

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/sched/admission_queue.hpp"
#include "runtime/sched/conductor_core.hpp"
#include "runtime/sched/load_plan.hpp"
#include "runtime/sim/coupled_instance.hpp"
#include "runtime/sim/decode_instance.hpp"
#include "runtime/sim/event_queue.hpp"
#include "runtime/sim/node_cache.hpp"
#include "runtime/sim/options.hpp"
#include "runtime/sim/outcome.hpp"
#include "runtime/sim/prefill_instance.hpp"
#include "runtime/sim/request_table.hpp"
#include "runtime/sim/trace_source.hpp"

namespace mooncaf::sim {

/// The key under which a trace's block is known. Equal ids mean equal prefixes, so the chain is in the id.
block_key key_of(std::uint64_t hash_id) noexcept;

/// One run.
///
///   trace ─► admission_queue ─► conductor_core::schedule ─► node_cache (pin, fetch) ─► prefill_batch ─► KV
///   stream ─► decode_batch
///               ▲  block events, first tokens, ends, load reports ────────────────────────────────────┘
///
/// Links and disks are queues: a transfer ends when both its sender and its receiver have worked off what
/// they had before and it. Deterministic: the same options and trace give the same outcome, bit for bit.
/// @cost  a few microseconds per request; memory follows live requests and cached blocks.
class simulation {
 public:
  /// @param options  as checked by `check_options`.
  explicit simulation(const simulation_options& options);
  ~simulation();

  /// @param progress  called now and then with the number of requests that have arrived; may be empty.
  /// @error  of the source.
  result<outcome> run(trace_source& source, const std::function<void(std::uint64_t)>& progress = {});

  const conductor_core& conductor() const noexcept { return conductor_; }
  std::size_t live_requests() const noexcept { return requests_.live(); }

 private:
  struct node_links {
    ticks sends = 0, receives = 0, reads = 0;  ///< until when it is busy
    ticks worked = 0;                          ///< time spent sending
  };

  /// How a node fares.
  struct condition {
    double slower = 1;  ///< its steps take so many times as long
    double link = 1;    ///< its network has so many times its speed
    bool restarting = false, away = false;
  };

  bool is_coupled() const noexcept { return options_.coupled != coupled_mode::off; }
  void add_instances();
  void add_instance(worker_id id, node_id node, instance_role role);
  result<bool> take_next(trace_source& source);
  void take_keys();
  result<void> arrivals(trace_source& source, const event& e);
  void expect_arrival();
  void dispatch(const event& e);
  bool hopeless() const noexcept;

  void arrive();
  void act_on(std::vector<decision>& decided);
  void refuse(request_state_record& r, const rejection& why);
  void place(std::uint32_t slot, const placement& where);
  load_plan plan(const request_state_record& r, const placement& where, const cache_hit& held) const;
  ticks fetch(request_state_record& r, const placement& where);
  void copy_hot_blocks();
  void copy_arrived(std::uint32_t number);
  double link_speed(std::uint32_t node) const noexcept;
  ticks transfer(std::uint32_t from, std::uint32_t to, double bytes, ticks begin);
  ticks read_disk(std::uint32_t node, double bytes);

  void enter_prefill(std::uint32_t slot);
  void start_prefill(std::uint32_t instance);
  void prefill_exit(std::uint32_t instance);
  void stream_out(request_state_record& r, const prefill_chunk& chunk, const prefill_step& step);
  void first_token(std::uint32_t slot);

  void kv_arrived(std::uint32_t slot);
  void neighbour_changed(std::uint32_t instance);
  void decode_turn(std::uint32_t instance, std::uint32_t stamp);
  void enter_coupled(std::uint32_t slot);
  void coupled_turn(std::uint32_t instance, std::uint32_t stamp);

  void finish(std::uint32_t slot, double tbt);
  void close(std::uint32_t slot);
  void report(std::uint32_t worker, const instance_load& load);

  void expect_disturbances();
  void disturbed(std::uint32_t number, std::uint32_t stamp);
  void change_pace(std::uint32_t instance);
  worker_id id_of(const disturbance& d, std::uint32_t instance) const noexcept;
  void begin_restart(std::uint32_t number, std::uint32_t instance);
  void go_on_restarting(std::uint32_t number, std::uint32_t instance);
  bool is_needed(bool prefill, std::uint32_t instance) const;

  void sample();
  void add_occupancy(timeline_row& row, std::size_t running, std::uint64_t context, std::size_t instances);
  void sum_up();

  time_point clock() const noexcept { return time_point{duration{now_}}; }
  request_counts& counts(const request_state_record& r) { return out_.by_priority[r.priority]; }
  worker_id prefill_id(std::uint32_t i) const noexcept { return worker_id{i + 1}; }
  worker_id decode_id(std::uint32_t i) const noexcept { return worker_id{options_.prefill + i + 1}; }

  simulation_options options_;
  cost_model costs_, decode_costs_;
  prefill_model prefill_estimate_;  // what prefill instances know of their speed: as told, and as measured
  decode_model decode_estimate_;  // what decode instances know of their speed: as told, and as measured since
  conductor_core conductor_;
  admission_queue queue_;
  std::vector<decision> decided_;
  event_queue events_;
  request_table requests_;
  random_source random_, priority_random_;
  std::vector<prefill_instance> prefills_;
  std::vector<decode_instance> decodes_;
  std::vector<coupled_instance> coupled_;  // instead of both
  coupled_instance::news news_;
  std::vector<node_cache> caches_;     // of the prefill nodes
  std::vector<node_links> links_;      // of all nodes
  std::vector<condition> conditions_;  // likewise
  std::vector<ticks> reported_;        // by worker
  trace_source* source_ = nullptr;     // while `run` lasts
  ticks expected_ = 0;  // when the next request comes, if that follows from answers; 0: none is known
  workload_record upcoming_;
  std::vector<block_key> upcoming_keys_;                // of its full blocks
  std::unordered_map<std::uint32_t, hot_copy> copies_;  // on their way, by number
  std::uint32_t copies_made_ = 0;
  ticks copies_planned_ = 0;  // when, the last time
  ticks now_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t missed_ = 0;  // SLOs, or rejected
  std::vector<std::uint32_t> finished_;
  outcome out_;
  // At the latest sample.
  std::uint64_t samples_ = 0;  // while requests arrived
  bool arriving_ = true;
  std::uint64_t sampled_blocks_ = 0, sampled_missed_ = 0, sampled_rejected_ = 0;
  std::vector<ticks> sampled_busy_;
  ticks sampled_at_ = 0;
};

}  // namespace mooncaf::sim
