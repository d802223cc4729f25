#pragma once
// Prompts on their way to a device with memory of its own, on a thread beside the steps, so that no request
// of the batch waits for another one's load.
//
//   landing_board ── piece ──► thread: kv_arrival ──► device            step: takes the blocks over
//                 └─ all ────► decode worker ── finish ──► (same) ── loaded ──► batch ──┘

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "actors/worker_request.hpp"
#include "runtime/compute/landing_board.hpp"
#include "runtime/model/kv_arrival.hpp"

namespace mooncaf {

/// @thread  Owned by the decode worker; its tasks run on the thread that it was given.
class prompt_loads {
 public:
  /// @param thread  invalid, or a device without memory of its own: there is nothing to do.
  prompt_loads(context_ptr context, executor_actor thread);

  /// Takes room for a prompt, and begins with the blocks of it that are in memory already.
  /// @returns false if the device has no room.
  bool make_room(const worker_request& request, std::uint32_t have_blocks);
  /// Passes on pieces of a prompt as they land; empty if the prompt has no room, or all of it is there.
  landing_board::piece_callback on_piece(std::uint64_t owner) const;
  /// Null if no copy of this prompt is outstanding.
  std::shared_ptr<kv_arrival> under_way(std::uint64_t owner) const;
  /// For the prompt's first step; null if it had no room.
  std::shared_ptr<kv_arrival> take(std::uint64_t owner);
  /// Forgets the prompt. @returns the load that has to stop before its slots are free; null: none.
  std::shared_ptr<kv_arrival> let_go(std::uint64_t owner);
  void close();

 private:
  context_ptr context_;
  executor_actor thread_;
  std::shared_ptr<copy_queue> queue_;  ///< of tasks on the thread; null: nothing is brought to the device
  std::unordered_map<std::uint64_t, std::shared_ptr<kv_arrival>> arrivals_;  ///< until the first step begins
};

}  // namespace mooncaf
