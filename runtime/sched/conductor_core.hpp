#pragma once
// The conductor's mind: instances, their load, the prefix index, and the placement of requests. What the conductor
// actor and a simulator both call, with time as an argument.
//
//   schedule ──► charged to prefill (and decode) at once
//      first_token ──► prefill charge released      finished / failed / node lost ──► all charges released, once

#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/sched/estimators.hpp"
#include "runtime/sched/prefix_index.hpp"

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <unordered_map>
#include <vector>

namespace mooncaf {

/// How a prefill instance is chosen. F25 compares these four.
enum class placement_policy : std::uint8_t { random, load_balancing, cache_aware, kvcache_centric };

/// When a request is refused instead of placed. Load of an instance = predicted TTFT (TBT) over the SLO.
enum class admission_policy : std::uint8_t {
  none,        ///< never
  baseline,    ///< prefill load now; decode load is checked by the decode worker after prefill
  early,       ///< both loads now, before prefill
  predictive,  ///< prefill load now, decode load as it will be when this prefill ends
};

struct conductor_options {
  placement_policy policy = placement_policy::kvcache_centric;
  admission_policy admission = admission_policy::early;
  duration ttft_slo = std::chrono::seconds(30);
  duration tbt_slo = std::chrono::milliseconds(100);
  double balancing_threshold = 4;       ///< > 1: a remote prefix this many times longer is worth fetching
  duration decode_span = std::chrono::seconds(20);  ///< t_d: how long a request is taken to decode (predictive)
  std::uint32_t block_tokens = 64;
  std::uint64_t bytes_per_token = 0;    ///< of KV, for transfer times
  std::uint64_t seed = 1;
};

enum class instance_role : std::uint8_t { prefill, decode };

/// A worker, as it registers.
struct instance_desc {
  worker_id id;
  node_id node;
  instance_role role = instance_role::prefill;
  std::uint32_t capacity = 1;           ///< decode: largest batch
  std::vector<timing_point> samples;    ///< calibration of its device
};

struct schedule_request {
  request_id id;                        ///< of the attempt: unique per try
  std::span<const block_key> keys;      ///< full blocks, prompt order
  std::uint32_t prompt_tokens = 0;
  std::uint32_t max_tokens = 0;
  std::uint8_t priority = 1;            ///< 0 high, 1 normal, 2 low: higher classes may use more of the SLO's room
  duration ttft_slo{};                  ///< zero: the cluster's
  duration tbt_slo{};
};

struct placement {
  worker_id prefill;
  worker_id decode;
  node_id prefill_node;
  node_id decode_node;
  std::uint32_t local_blocks = 0;       ///< leading blocks at the prefill node
  node_id source;                       ///< whom to fetch a longer prefix from; none: 0
  std::uint32_t source_blocks = 0;
  holder_tier source_tier = holder_tier::dram;
  duration predicted_ttft{};
  duration predicted_tbt{};
};

/// Why a request was refused, and when another try makes sense.
struct rejection {
  error cause;                          ///< `unavailable`, `overloaded` or `slo_unreachable`
  duration retry_after{};
};

/// What a worker reports about itself now and then.
struct instance_load {
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  std::uint64_t context_tokens = 0;
  duration step{};                      ///< decode: the latest step
};

/// Placements and rejections so far.
struct conductor_counts {
  std::uint64_t placed = 0;
  std::uint64_t rejected_ttft = 0;
  std::uint64_t rejected_tbt = 0;
  std::uint64_t rejected_unavailable = 0;
  std::uint64_t fetches = 0;            ///< placements that bring a prefix from another node
};

/// @thread  Owned by the conductor; not synchronised.
class conductor_core {
 public:
  explicit conductor_core(conductor_options options);

  // ---- instances ----
  /// @error `ec::out_of_space` beyond `prefix_index::max_nodes` nodes.
  result<void> add_node(node_id node);
  void add_instance(const instance_desc& desc);
  /// Removes a node, its instances, its blocks, and the charges on them. @returns requests that were placed there.
  std::vector<request_id> remove_node(node_id node);
  void report(worker_id worker, const instance_load& load);

  // ---- blocks ----
  void block_held(node_id node, const block_key& key, holder_tier tier);
  void block_gone(node_id node, const block_key& key);
  /// Forgets what a node holds; its snapshot follows.
  void forget_blocks(node_id node);

  // ---- requests ----
  tl::expected<placement, rejection> schedule(const schedule_request& request, time_point now);
  /// The prompt is computed: prefill's charge ends, decode's becomes real. `compute` refines the estimate.
  void first_token(request_id id, std::uint32_t new_tokens, std::uint32_t cached_tokens, duration compute,
                   time_point now);
  /// Any terminal path; releases what is still charged. Idempotent.
  void release(request_id id);

  const conductor_counts& counts() const noexcept { return counts_; }
  const prefix_index& index() const noexcept { return index_; }
  std::size_t charged_requests() const noexcept { return charges_.size(); }
  /// Predicted TTFT of an empty prompt at this instance, or the step time of a decode instance, over the SLO.
  double load_of(worker_id worker, time_point now) const;

 private:
  struct instance {
    instance_desc desc;
    node_index node = 0;
    prefill_model prefill;
    decode_model decode;
    duration queued{};                  ///< prefill: predicted cost of what is charged
    time_point head_since{};            ///< prefill: when the request at the head of the queue was begun, at the latest
    std::uint32_t charged = 0;          ///< decode: requests placed here and not finished
    std::uint64_t charged_context = 0;  ///< decode: their context tokens
    instance_load latest;
  };
  struct charge {
    worker_id prefill_id;
    worker_id decode_id;
    duration prefill_cost{};
    time_point prefill_end{};
    std::uint64_t context_tokens = 0;
    bool prefill_done = false;
  };
  /// A prefill instance weighed for a request.
  struct candidate {
    std::size_t at = 0;
    std::uint32_t local_blocks = 0;
    bool fetch = false;
    duration cost{};                    ///< transfer plus computation
    duration ttft{};
  };

  candidate weigh(std::size_t at, const schedule_request& request, std::uint32_t local_blocks,
                  const holder_match* best, time_point now) const;
  candidate select_prefill(const schedule_request& request, const holder_match* best, time_point now);
  std::size_t select_decode(time_point now) const;
  duration queue_of(const instance& i, time_point now) const;
  duration step_time(const instance& i, std::uint32_t extra, std::uint64_t extra_context) const;
  duration predicted_step(const schedule_request& request, time_point prefill_end) const;
  std::optional<rejection> admit(const schedule_request& request, const candidate& p, std::size_t d,
                                 duration tbt, time_point now);

  conductor_options options_;
  prefix_index index_;
  std::vector<node_id> nodes_;                         // by node_index; zero: unused
  std::unordered_map<node_id, node_index> node_of_;
  std::vector<instance> prefill_;
  std::vector<instance> decode_;
  std::unordered_map<request_id, charge> charges_;
  transfer_model transfer_;
  std::vector<holder_match> matches_;                  // of the request at hand
  std::vector<std::uint32_t> blocks_at_;               // by node_index, of the request at hand
  conductor_counts counts_;
  std::mt19937_64 random_;
};

}  // namespace mooncaf
