#pragma once
// What one owner holds of a chain of blocks on its node, and how it comes by them: the same way at a prefill
// worker, at a decode worker and at a pool keeper.
//
//           slots of what is here      slots for the rest       what arrived and verified
//   pin ─────────────────────► reserve ─────────────────► fetch ─────────────────► commit        release
//    ▲  (again, with less of the SSD:      (whoever computes or receives the rest      once no fetch may
//    write └── an answer to the first is stale)   leaves this out)                           into the slots
//    any more

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/request/messages.hpp"

namespace mooncaf {

/// The full blocks of a job.
std::vector<block_name> chain_of(const work_order& job);

/// A question to the shard: pin the leading run of `keys`.
struct pin_order {
  block_keys_t keys;
  std::uint32_t from_ssd = 0;  ///< blocks to read at most
  std::uint32_t turn = 0;      ///< to be told with the answer
};

/// Each step returns the next question to the shard (or the messenger); the caller sends it, and brings the
/// answer. @thread  not synchronised
class block_claim {
 public:
  block_claim() = default;
  /// @param chain     names of the full blocks, in order.
  /// @param reusable  leading ones that may be taken from elsewhere; the others are made here.
  /// @param total     blocks in all; one behind the chain may be partly filled, and has no name.
  block_claim(attempt_id id, std::vector<block_name> chain, std::uint32_t reusable, std::uint32_t total);

  const attempt_id& id() const noexcept { return id_; }
  std::uint64_t owner() const noexcept { return id_.owner(); }

  /// Asks for the blocks that are here. Asking again gives up the answer to the question before.
  pin_order pin(std::uint32_t from_ssd);
  /// @returns how many slots to reserve; nothing if the answer is stale.
  std::optional<std::uint32_t> pinned(std::uint32_t turn, const pinned_slots& held);
  /// Whether a failure to pin concerns the question that waits.
  bool awaits(std::uint32_t turn) const noexcept { return turn == turn_; }
  void reserved(std::span<const slot_index> slots);
  /// Slots of a prompt that another worker of this node filled.
  void take_over(std::vector<slot_index> slots, std::vector<std::uint64_t> checksums);

  /// Asks for the blocks behind those that are here, up to `until`. Until `fetched` the slots may be written.
  fetch_plan fetch(node_id source, std::uint32_t until, std::int64_t worth_ns = 0);
  /// The fetch is over; nothing arrives any more.
  void fetched() noexcept { loading_ = false; }
  bool loading() const noexcept { return loading_; }
  /// One more block was made here behind those that have a name.
  void extend(const block_key& key, const block_key& root);
  /// Fetched blocks, which were verified, as the shard is to commit them.
  std::vector<commit_item> adopt(const remote_blocks& got);
  /// Blocks that were made, or received, here as the shard is to commit them: [first, first +
  /// checksums.size()).
  std::vector<commit_item> name(std::uint32_t first, std::span<const std::uint64_t> checksums);

  /// Of the leading blocks that may be taken from elsewhere.
  block_keys_t reusable_keys() const;
  /// Leading blocks that were here before.
  std::uint32_t have() const noexcept { return have_; }
  /// Of all blocks, prompt order.
  const std::vector<slot_index>& slots() const noexcept { return slots_; }
  /// Of each full block, as far as known; else 0.
  const std::vector<std::uint64_t>& checksums() const noexcept { return checksums_; }

 private:
  attempt_id id_;
  std::vector<block_name> chain_;
  std::uint32_t reusable_ = 0;
  std::uint32_t total_ = 0;
  std::uint32_t turn_ = 0;
  std::uint32_t have_ = 0;
  bool loading_ = false;
  std::vector<slot_index> slots_;
  std::vector<std::uint64_t> checksums_;
};

}  // namespace mooncaf
