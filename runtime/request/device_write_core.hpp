#pragma once
// What a device writer decides: which chain of blocks comes from the device to memory next, how much of it
// memory lacks, and when to wait.
//
//         a chain is unwritten       memory lacks a part       slots           copied
//   idle ────────────────────► looking ────────────► reserving ────► copying ─────────┐
//    ▲ ▲                          │ memory has it all    │ no room       │ device failed│
//    │ └── so much of it is written ◄────────────────────┴───────────────┴─────────────┘
//    │                            │ nothing is
//    └── woken ──── resting ◄─────┘   (while it flushes: the flush ends)

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/model/kv_residency.hpp"
#include "runtime/request/claim_actions.hpp"

namespace mooncaf {

namespace write_action {
/// Ask the shard which of these blocks it holds; tell `looked` or `refused`.
struct look {
  block_keys_t keys;
};
using claim_action::commit;
using claim_action::release;
using claim_action::reserve;
/// Copy the device's blocks to these slots, one each; tell `copied`.
struct copy {
  std::vector<kv_residency::write::item> blocks;
  std::vector<slot_index> slots;
};
/// Tell `wake` after a while: memory has no room, or the shard no time.
struct rest {};
/// The flush is over: so many blocks came to memory.
struct flushed {
  std::uint64_t blocks = 0;
};
}  // namespace write_action

/// Orders to the actor, in order.
using write_actions = std::vector<
    std::variant<write_action::look, write_action::reserve, write_action::copy, write_action::commit,
                 write_action::release, write_action::rest, write_action::flushed>>;

/// The device's blocks, as `device_kv` has them.
struct unwritten_blocks {
  /// The next chain to write; `all`: of all blocks that memory lacks, not only of those that are due.
  std::function<std::optional<kv_residency::write>(bool all)> next;
  /// The first `count` of the chain are in memory, the others are not.
  std::function<void(std::uint64_t id, std::uint32_t count)> wrote;
};

/// One chain at a time, beside computing. @thread  Owned by the device writer; not synchronised.
class device_write_core {
 public:
  explicit device_write_core(unwritten_blocks device) : device_(std::move(device)) {}

  /// The actions that the calls so far led to; each is given once.
  write_actions take_actions() { return std::exchange(actions_, {}); }

  /// There may be something to write, or room for it.
  void wake();
  /// All that there is is written now; ends with `flushed`.
  void flush();
  /// @param held  leading blocks of the chain that memory or the disk has.
  void looked(std::uint32_t held);
  void reserved(std::span<const slot_index> slots);
  /// The shard refused the order.
  void refused() { done(held_); }
  /// @param checksums      of the leading blocks that were copied.
  /// @param device_failed  it gives nothing any more; its workers say so and end.
  void copied(std::span<const std::uint64_t> checksums, bool device_failed);

 private:
  void go_on();
  /// The chain's first `count` are in memory.
  void done(std::uint32_t count);
  void end_flush();

  unwritten_blocks device_;
  std::optional<kv_residency::write> chain_;  ///< at work
  std::uint32_t held_ = 0;                    ///< leading blocks of it that memory has
  std::vector<slot_index> slots_;             ///< for the parts behind it
  bool resting_ = false;
  bool failed_ = false;  ///< the device did
  bool flushing_ = false;
  std::uint64_t flushed_ = 0;  ///< blocks, since `flush`
  write_actions actions_;
};

}  // namespace mooncaf
