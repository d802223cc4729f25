#pragma once
// The ranks of this process's instances that are in other processes, as their leader has them.

#include <atomic>
#include <caf/actor_system.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/cluster/link.hpp"
#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "runtime/ranks/far_exchange.hpp"
#include "runtime/ranks/rank_host.hpp"
#include "runtime/ranks/rank_link.hpp"

namespace mooncaf {

/// Layers, and of a tensor group which rank shares them, for people.
std::string rank_text(const layer_range& layers, const tensor_part& part);

/// Stages in order, of a stage its tensor ranks in order; this process has the last stage, or is the first rank of it.
class far_group {
 public:
  struct surroundings {
    const node_context& context;
    caf::actor_system& system;
    cluster_link& link;
    std::string model;                             ///< and layout, for people
    std::function<void(const std::string&)> lost;  ///< names a rank that is gone; on a thread of the link
  };

  /// Notices that land from ranks.
  const std::shared_ptr<rank_notices>& notices() const noexcept { return notices_; }
  bool empty() const noexcept { return links_.empty(); }

  /// Greets the ranks, waits for late ones, and tells the ranks of a stage of each other.
  /// @returns their description for people. @error names the rank.
  result<std::vector<rank_status>> find(const surroundings& around);

  /// Makes this process's own pass, with its end of the stage's exchange; null: it has the stage alone.
  using make_own = std::function<result<std::unique_ptr<pass_stage>>(std::shared_ptr<rank_exchange>)>;
  /// All stages, for a worker.
  result<std::vector<std::unique_ptr<pass_stage>>> stages(const node_context& context,
                                                          const make_own& own) const;

  /// That links to ranks close is no loss from now on.
  void expect_end() noexcept { *ends_ = true; }
  /// Nothing is called any more, and the data plane may end. @pre no pass is under way
  void close();

 private:
  /// A rank that has been greeted.
  struct met {
    rank_actor handle;
    rank_welcome welcome;
  };

  /// A rank's place in the group.
  struct seat {
    std::uint32_t stage = 0, stages = 0;  ///< from 0
    tensor_part part;
  };
  seat seat_of(const node_context& context, std::uint32_t index) const;
  result<rank_actor> dial(const surroundings& around, std::uint32_t index) const;
  result<met> greet(const surroundings& around, const rank_actor& rank, std::uint32_t index);
  rank_greeting greeting(const surroundings& around, std::uint32_t index) const;
  rank_place place_of(const node_context& context, std::uint32_t index) const;
  /// @param ranks  of a stage
  result<void> join_all(const surroundings& around, std::span<const met> ranks, std::uint32_t stage);

  std::shared_ptr<std::atomic<bool>> ends_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<rank_notices> notices_ = std::make_shared<rank_notices>();
  std::uint32_t tensor_ = 1;  ///< ranks of a stage
  std::vector<std::shared_ptr<rank_link>> links_;
  std::vector<std::shared_ptr<group_exchange>> exchanges_;  ///< by stage, of tensor groups
  std::shared_ptr<far_exchange> own_;                       ///< this process's end of the last one
};

}  // namespace mooncaf
