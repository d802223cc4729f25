#pragma once
// The cluster on a virtual clock: production scheduling, batching and eviction, modelled machines.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/sched/admission_queue.hpp"
#include "runtime/sched/autoscaler.hpp"
#include "runtime/sched/conductor_core.hpp"
#include "runtime/sched/load_plan.hpp"
#include "runtime/sched/role_switch.hpp"
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

  /// Blocks on their way, one after the other.
  struct block_run {
    ticks begins = 0, ends = 0;
    std::uint32_t blocks = 0;
    std::uint32_t there(ticks now) const noexcept;
  };
  /// Bytes between two nodes: until when each works on them, and when they move.
  struct way {
    ticks begins = 0, sent = 0, received = 0, latency = 0;
    ticks ends() const noexcept { return std::max(sent, received) + latency; }
  };
  /// Of a request whose worker waits for it only while it has something else to do.
  struct arriving_prefix {
    std::uint32_t slot = 0, stamp = 0;
    block_run disk, link;
  };

  ///            restart                    over                      fail                 back
  ///   live ────────────► draining ──────────────► away ──► live   any ────► dead, unseen ─► dead ──► live
  ///                                                                that computes
  /// In a cluster that grows and shrinks also: off ──► starting ──► live ──► draining ──► off.
  enum class machine_state : std::uint8_t { live, draining, away, dead, starting, off };
  /// What a machine drains for, besides a restart.
  enum class machine_leaves : std::uint8_t { not_at_all, for_good, for_other_role };

  /// How a machine (or pipeline group) fares. Machines are numbered as workers are, less one; a coupled one
  /// as its prefill worker.
  struct condition {
    double slower = 1;  ///< its steps take so many times as long
    double link = 1;    ///< its network has so many times its speed
    machine_state state = machine_state::live;
    bool unseen = false;              ///< dead, and the conductor does not know it yet
    std::uint32_t line = no_line;     ///< of the disturbances: the restart that it goes through
    std::uint32_t lives = 0;          ///< that it lost: events of earlier ones are void
    ticks died = -1;                  ///< the last time
    ticks paid_since = -1, paid = 0;  ///< -1: it is not, being off; until then
    machine_leaves leaves = machine_leaves::not_at_all;
    bool computes() const noexcept { return state <= machine_state::draining; }
  };
  static constexpr std::uint32_t no_line = ~std::uint32_t{0};

  /// What an `event_kind::machine` is about: the stamp's low bits; those above are a line of the
  /// disturbances.
  enum class machine_event : std::uint32_t { dies, noticed, returns, serves, drains };
  static constexpr std::uint32_t machine_event_bits = 3;

  /// What decides over machines, and what it looked at the last time.
  struct elastic_pool {
    explicit elastic_pool(const elastic_options& options);
    autoscaler prefill, decode;
    role_switch roles;
    std::vector<ticks> busy;  ///< of prefill instances
    ticks looked = 0;
    double prefill_work = 0, decode_work = 0;  ///< loads of all instances together, means
    std::uint64_t looks = 0;
  };

  /// A request that was lost and tried again, beside what its record says of the attempt under way.
  struct past_attempts {
    token_gaps gaps;        ///< of its answer so far
    ticks first_token = 0;  ///< of the answer; 0: there is none yet
    ticks last_token = 0;
    ticks placing_since = 0;     ///< when it was last known to have a place
    double prefill_seconds = 0;  ///< spent in vain
    std::uint32_t attempt = 0, losses = 0;
  };

  bool is_coupled() const noexcept { return options_.coupled != coupled_mode::off; }
  void add_instances();
  void add_instance(worker_id id, node_id node, instance_role role);
  void join(std::uint32_t machine);
  result<bool> take_next(trace_source& source);
  void take_keys();
  result<void> arrivals(trace_source& source, const event& e);
  void expect_arrival();
  void dispatch(const event& e);
  bool hopeless() const noexcept;

  void arrive();
  void ask(std::uint32_t slot);
  void unplaced(std::uint32_t slot, const rejection& why);
  void act_on(std::vector<decision>& decided);
  void refuse(request_state_record& r, const rejection& why);
  void place(std::uint32_t slot, const placement& where);
  void copy_hot_blocks();
  void copy_arrived(std::uint32_t number);

  bool idle(std::uint32_t instance) const noexcept;
  ticks patience(std::uint32_t blocks, ticks since) const noexcept;
  std::span<const block_key> reusable_keys(const request_state_record& r) const;
  load_plan plan(const request_state_record& r, const placement& where, const cache_hit& held) const;
  void load(std::uint32_t slot, const placement& where);
  block_run fetch(request_state_record& r, const placement& where, ticks begin, bool& by_layers);
  ticks beside(const request_state_record& r, ticks loading, std::uint32_t blocks, std::uint32_t parts) const;
  void stop_loading(std::uint32_t instance);
  double link_speed(std::uint32_t node) const noexcept;
  way way_of(std::uint32_t from, std::uint32_t to, double bytes, ticks begin) const noexcept;
  ticks transfer(std::uint32_t from, std::uint32_t to, double bytes, ticks begin);
  block_run on_disk(std::uint32_t node, std::uint32_t blocks) const noexcept;
  void read_disk(std::uint32_t node, std::uint32_t blocks);

  void count_prefix(const request_state_record& r, std::uint32_t here);
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
  device_tier* device_of(std::uint32_t instance);
  bool stays_on_device(const request_state_record& r);
  std::uint32_t adopt_from_device(const request_state_record& r);
  void tend_device(std::uint32_t instance);
  ticks bring_down(std::uint32_t instance, std::span<const block_key> keys);

  void finish(std::uint32_t slot, double tbt);
  void close(std::uint32_t slot);
  void report(std::uint32_t worker, const instance_load& load);

  void expect_disturbances();
  void disturbed(std::uint32_t number, std::uint32_t stamp);
  void change_pace(std::uint32_t machine);
  std::uint32_t count_of(machine_role role) const noexcept;
  std::uint32_t machine_of(machine_role role, std::uint32_t instance) const noexcept;
  machine_role role_of(std::uint32_t machine) const noexcept;
  std::uint32_t instance_of(std::uint32_t machine) const noexcept;
  void set_state(std::uint32_t machine, instance_state state);
  void begin_restart(std::uint32_t number, std::uint32_t instance);
  void go_on_restarting(std::uint32_t number, std::uint32_t instance);
  bool is_needed(std::uint32_t machine) const;
  void empty_memory(std::uint32_t machine);

  void begin_failures(std::uint32_t number);
  void expect_failure(std::uint32_t number, std::uint32_t machine);
  random_source& failure_draws(std::uint32_t number, std::uint32_t machine);
  void machine_event_of(std::uint32_t machine, std::uint32_t stamp);
  void die(std::uint32_t number, std::uint32_t machine);
  void crash(std::uint32_t machine);
  void noticed(std::uint32_t machine);
  void returns(std::uint32_t number, std::uint32_t machine);
  void unfetch(request_state_record& r);
  bool is_lost_with(const request_state_record& r, std::uint32_t machine) const noexcept;
  void lose(std::uint32_t slot);
  void resumes(std::uint32_t slot);
  std::span<const token_gaps::value_type> gaps_before(std::uint32_t slot) const;
  double tbt_of_before(std::uint32_t slot) const;
  void try_later(std::uint32_t slot);
  void give_up(std::uint32_t slot);
  past_attempts& past_of(std::uint32_t slot);
  std::uint32_t max_tokens_of(const request_state_record& r) const noexcept;

  void make_room();
  void begin_with(std::uint32_t machine);
  void begin_paying();
  bool is_there_at_first(std::uint32_t machine) const noexcept;
  std::uint32_t machines_in(machine_role role, machine_state state) const;
  pool_load prefill_load();
  pool_load decode_load() const;
  void decide_on_machines();
  /// How many machines of a role there are, coming ones included, and how many there should be.
  struct pool_wish {
    machine_role role;
    std::uint32_t there = 0, wanted = 0;
  };
  pool_load coupled_load();
  double decode_occupancy(std::size_t running, std::size_t waiting, std::uint64_t context) const;
  std::uint32_t coming_to(machine_role role) const;
  pool_wish wish_of(machine_role role, autoscaler& scaler, const pool_load& load);
  void hand_over(pool_wish& one, pool_wish& other);
  void scale(pool_wish wish);
  void switch_roles(const pool_load& prefill, const pool_load& decode);
  bool stay(machine_role role);
  bool hire(machine_role role, double seconds);
  void serves(std::uint32_t machine);
  bool dismiss(machine_role role, machine_leaves why);
  void look_at_leaving(std::uint32_t machine);
  void changed(std::uint32_t machine, change_kind what);
  static void pay(condition& c, ticks until);
  void sum_up_machines();

  void sample();
  void count_machines(timeline_row& row) const;
  void add_occupancy(timeline_row& row, std::size_t running, std::uint64_t context, double instances);
  void sum_up();

  time_point clock() const noexcept { return time_point{duration{now_}}; }
  request_counts& counts(const request_state_record& r) { return out_.by_priority[r.priority]; }
  worker_id prefill_id(std::uint32_t i) const noexcept { return worker_id{i + 1}; }
  worker_id decode_id(std::uint32_t i) const noexcept { return worker_id{options_.prefill + i + 1}; }
  std::uint32_t decode_machine(std::uint32_t i) const noexcept { return options_.prefill + i; }

  simulation_options options_;
  prefetch_policy prefetch_;
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
  std::vector<node_cache> caches_;                        // of the prefill nodes
  std::vector<std::vector<arriving_prefix>> on_the_way_;  // by prefill instance, with best_effort
  std::vector<node_links> links_;                         // of all nodes
  std::vector<condition> conditions_;                     // likewise
  std::vector<ticks> reported_;                           // by worker
  trace_source* source_ = nullptr;                        // while `run` lasts
  ticks expected_ = 0;  // when the next request comes, if that follows from answers; 0: none is known
  workload_record upcoming_;
  std::vector<block_key> upcoming_keys_;  // of its full blocks
  struct copy_under_way {
    hot_copy what;
    ticks begun = 0;
  };
  std::unordered_map<std::uint32_t, copy_under_way> copies_;  // by number
  std::uint32_t copies_made_ = 0;
  ticks copies_planned_ = 0;  // when, the last time
  ticks began_ = 0, now_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t missed_ = 0;  // SLOs, or rejected
  elastic_pool elastic_;
  std::uint32_t started_prefill_ = 0, started_decode_ = 0;                     // instances at first
  std::unordered_map<std::uint32_t, past_attempts> past_;                      // by slot
  std::map<std::pair<std::uint32_t, std::uint32_t>, random_source> failures_;  // by line and machine
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
