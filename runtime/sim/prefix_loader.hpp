#pragma once
// How the prefix of a placed request gets to its node, and how long it is waited for.

#include <cstdint>
#include <vector>

#include "runtime/sched/load_plan.hpp"
#include "runtime/sched/piece_book.hpp"
#include "runtime/sched/prefetch_policy.hpp"
#include "runtime/sim/cluster.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// Acts as a worker when a job comes: looks for blocks, and loads where that beats computing.
class prefix_loader {
 public:
  /// Both outlive the loader.
  prefix_loader(world& w, cluster& c);

  /// From the node's disk, then from another node: each as far as it comes in the time that it is given.
  /// @returns whether the request may join the prefill queue at once; else an event will say so.
  bool load(std::uint32_t slot, const placement& where);
  /// The prefix is there, or its request waits for the rest of it no longer.
  void arrived(std::uint32_t slot);
  /// A device without other work does not wait for blocks on the way to it. @returns requests that join the
  /// queue with the blocks that came.
  std::vector<std::uint32_t> stop_if_idle(std::uint32_t instance);

 private:
  /// A request that waits for its prefix only while the device has something else to do.
  struct arriving_prefix {
    std::uint32_t slot = 0, stamp = 0;
    block_run disk, link;
    std::vector<link_share> shares;               ///< of the bytes over the link
    std::vector<learned_links::ticket> learning;  ///< of each share
    bool by_layers = false;                       ///< … beside the computation
  };

  load_plan plan(const request_state_record& r, const placement& where, const cache_hit& held);
  void fetch(request_state_record& r, const placement& where, ticks begin, arriving_prefix& a);
  std::vector<link_share> share_out(const request_state_record& r, const placement& where,
                                    std::uint32_t blocks, std::uint32_t pieces, bool by_layers, ticks begin);
  std::uint32_t pieces_of(std::uint32_t blocks, bool by_layers) const noexcept;
  ticks joins(const request_state_record& r, ticks began, const block_run& coming, std::uint32_t parts) const;
  ticks patience(std::uint32_t blocks, ticks since) const noexcept;
  void take_back(const arriving_prefix& a);

  world& w_;
  cluster& c_;
  prefetch_policy policy_;
  piece_options sizes_;
  std::vector<std::vector<arriving_prefix>> on_the_way_;  // by prefill instance, with `best_effort`
};

}  // namespace mooncaf::sim
