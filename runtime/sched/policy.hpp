#pragma once
// Where a prompt is computed: Algorithm 1 and the policies it is compared with.

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/sched/placement.hpp"
#include "runtime/sched/placement_policy.hpp"
#include "runtime/sched/prefill_pool.hpp"
#include "runtime/sched/prefix_match.hpp"
#include "runtime/sched/scheduler_defaults.hpp"
#include "runtime/sched/transfer_board.hpp"

namespace mooncaf {

struct policy_options {
  placement_policy policy = defaults::scheduler::policy;
  double balancing_threshold =
      defaults::scheduler::balancing_threshold;  ///< > 1: a remote prefix this many times longer is worth
                                                 ///< fetching; may be infinite
  std::uint32_t block_tokens = 64;
  std::uint64_t bytes_per_token = 0;               ///< of KV
  std::uint64_t seed = defaults::scheduler::seed;  ///< of `random`
};

/// All that a choice depends on. `match` is of the request's usable keys.
struct selection_input {
  const schedule_request& request;
  const prefix_match& match;
  const prefill_pool& pool;
  const transfer_board& transfers;
  time_point now;
  const node_set* barred = nullptr;  ///< instances on these nodes must not be chosen; none: null
  bool may_fetch = true;             ///< a longer prefix may be brought from another node
};

/// A prefill instance, with the blocks that it will reuse and the time that it will take.
struct prefill_choice {
  instance_slot slot = no_slot;
  std::uint32_t local_blocks = 0;
  bool fetch = false;
  node_index source = 0;  ///< of a fetch
  std::uint32_t source_blocks = 0;
  storage_tier source_tier = storage_tier::dram;
  duration cost{};  ///< loading, fetching, computing
  duration ttft{};  ///< queue and cost
};

/// Chooses a prefill instance of `pool.live()`, which is not empty, that is not on a barred node. Derive from
/// it for a policy of your own.
class prefill_selector {
 public:
  virtual ~prefill_selector() = default;
  /// @returns a choice with `no_slot` if all are barred.
  virtual prefill_choice select(const selection_input& in) = 0;
};

std::unique_ptr<prefill_selector> make_selector(const policy_options& options);

/// The cost of a prompt on instances of some speed that hold some of it: the body of Algorithm 1's loop.
class prefill_costs {
 public:
  prefill_costs(const policy_options& options, const selection_input& in);

  /// Cost of the prompt on `slot`, with `held` on its node. A longer prefix on another node is fetched if it
  /// is more than `balancing_threshold` times longer and fetching it takes less time than computing it;
  /// blocks on the own disk are read if reading takes less time than computing.
  /// @source  Mooncake, FAST '25, section 4.1, Algorithm 1.
  prefill_choice on(instance_slot slot, const holder_match& held) const;
  /// … on an idle instance of this speed, without a measured link with the source; `held` is in memory.
  duration least(std::size_t speed, const holder_match& held) const {
    return price(speed, held, source_link_).cost;
  }
  /// Nodes to which a fetch has a price of its own.
  std::span<const node_index> priced_apart() const noexcept {
    return has_source_ ? in_.transfers.measured_with(source_.node) : std::span<const node_index>{};
  }

 private:
  struct priced {
    duration cost{};
    std::uint32_t local_blocks = 0;
    bool fetch = false;
  };
  priced price(std::size_t speed, const holder_match& held, const transfer_model& link) const;
  duration compute(std::size_t speed, std::uint32_t blocks) const;
  void find_source();

  const policy_options& options_;
  const selection_input& in_;
  // The holder of the longest prefix that could have sent it the soonest, as its links are on the whole.
  bool has_source_ = false;
  holder_match source_;
  duration source_wait_{};
  transfer_model source_link_{};
  // The latest price: neighbours in the match hold the same, more often than not.
  mutable std::size_t last_speed_ = ~std::size_t{0};
  mutable std::uint32_t last_blocks_ = 0, last_dram_blocks_ = 0;
  mutable node_index last_node_ = 0;
  mutable priced last_;
};

}  // namespace mooncaf
