#pragma once
// What a messenger decides about fetches: which nodes pin blocks, which of them sends which piece, what is
// verified when all has come, and when a fetch is over.
//
//            the source's blocks            nothing on its way,            as they should be
//   pinning ────────────────────► reading   nothing to come     verifying ─────────────────► answered
//      │                           │   ▲  ├────────────────────►    (pieces that were not
//      │ stop, or the source      ▼   │  │                          verified as they came)
//      │ has nothing              pieces │
//      └────────────────────────────────┴──────── nothing, or all was verified ────────────► answered
//
// A fetch comes in pieces, each a transfer of its own: **runs** of whole blocks, or **layers** of all blocks.
// The source says what is wanted. A piece comes from the source or from a node **beside** it, which has
// pinned the same blocks; a node that fails to deliver a piece is asked for nothing more, and the others
// deliver it. The pins are let go before the answer, and of every node that was asked.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/kv_layout.hpp"
#include "runtime/request/messages.hpp"
#include "runtime/sched/piece_book.hpp"

namespace mooncaf {

/// Which fetch: chosen by the caller, used once.
using fetch_ticket = std::uint64_t;

namespace fetch_action {
/// Ask the shard of `node` to pin these for `reader`; tell `pinned` or `not_pinned`.
struct pin {
  fetch_ticket fetch = 0;
  node_id node;
  std::uint64_t reader = 0;
  block_keys_t keys;
  std::int64_t worth_ns = 0;  ///< limit for reads of its SSD; 0: none
};
/// The reader gives up its pins at `node`, those too that are still being made.
struct release {
  node_id node;
  std::uint64_t reader = 0;
};
/// A block of a piece.
struct part {
  slot_index slot = 0;       ///< here
  std::uint64_t offset = 0;  ///< there: of the block in the sender's region
  /// Of the bytes read; nothing: they are not verified as they come.
  std::optional<std::uint64_t> checksum;
};
/// Read bytes [at, at + length) of each of these blocks from `from`; tell `ended`. Layers that are read may
/// be computed with before they are verified.
struct read {
  fetch_ticket fetch = 0;
  std::uint64_t id = 0;
  std::uint64_t reader = 0;
  node_id from;
  region_id region;
  std::uint64_t at = 0, length = 0;
  std::uint32_t first_layer = 0, layers = 0;  ///< of a fetch by layers
  std::vector<part> blocks;
};
/// The read is not wanted any more; `ended` follows all the same.
struct cancel {
  std::uint64_t id = 0;
};
/// Not all layers will come: whoever computes with them need not wait.
struct give_up {
  fetch_ticket fetch = 0;
};
/// Compare the content of these slots with the checksums, in order; tell `verified`.
struct verify {
  fetch_ticket fetch = 0;
  std::vector<slot_index> slots;
  std::vector<std::uint64_t> checksums;
};
/// The fetch is over: its last action. Blocks that arrived and verified, leading ones of those behind the
/// plan's `skip`; all or none of them if they came by layers.
struct answer {
  fetch_ticket fetch = 0;
  remote_blocks got;
  error failure;  ///< code none: the fetch brought all that could be had
};
}  // namespace fetch_action

/// Orders to the actor, in order.
using fetch_actions = std::vector<
    std::variant<fetch_action::pin, fetch_action::release, fetch_action::read, fetch_action::cancel,
                 fetch_action::give_up, fetch_action::verify, fetch_action::answer>>;

struct fetch_options {
  kv_layout layout;  ///< of the host's blocks, here and at every sender
  piece_options pieces;
  /// Time until so many bytes of a node are here. Empty: never too long.
  std::function<duration(node_id source, std::uint64_t bytes, time_point now)> link;
};

/// @thread  Owned by the messenger; not synchronised.
class fetch_core {
 public:
  explicit fetch_core(fetch_options options) : options_(std::move(options)) {}

  /// The actions that the calls so far led to; each is given once.
  fetch_actions take_actions() { return std::exchange(actions_, {}); }

  // ---- events ----
  /// Blocks of this node can be had from now on, or no longer; reads that are under way end by themselves.
  void peer_up(node_id peer) { peers_.insert(peer); }
  void peer_down(node_id peer) { peers_.erase(peer); }
  /// @param ticket  never used before. @param by_layers  the blocks are of use all together.
  void fetch(fetch_ticket ticket, const fetch_plan& plan, bool by_layers);
  void pinned(fetch_ticket ticket, node_id node, remote_blocks held, time_point now);
  void not_pinned(fetch_ticket ticket, node_id node, const error& why);
  /// @param failure  code none: the bytes are here.
  void ended(std::uint64_t read, const error& failure);
  /// The fetch of this attempt ends now, with the blocks that arrived. Its reads are cancelled and waited
  /// for; a source that has not pinned yet, which may read its SSD for seconds, is not.
  void stop(const attempt_id& id);
  /// @param good  leading slots whose content is right.
  void verified(fetch_ticket ticket, std::uint32_t good);

  /// Fetches that are not answered yet.
  std::size_t size() const noexcept { return fetches_.size(); }

 private:
  enum class phase : std::uint8_t { pinning, reading, verifying };
  struct work {
    fetch_ticket ticket = 0;
    fetch_plan plan;
    bool by_layers = false;
    phase at = phase::pinning;
    bool stopped = false;                   ///< no more reads are begun
    std::vector<node_id> asked;             ///< for pins
    std::map<node_id, remote_blocks> held;  ///< behind the plan's `skip`, by sender
    remote_blocks wanted;                   ///< as they lie at the source
    piece_book pieces;
    error failure;  ///< of the pin or read that failed last
  };
  struct reading {
    fetch_ticket fetch = 0;
    piece_book::share share;
  };

  work* find(fetch_ticket ticket);
  void ask(work& w, node_id node, block_keys_t keys, std::int64_t worth_ns);
  /// The source has pinned these.
  void begin(work& w, remote_blocks held, time_point now);
  void add_sender(work& w, node_id node, remote_blocks held);
  /// Begins as many reads as may be under way; ends the fetch when none is and none will follow.
  void go_on(work& w);
  void read(work& w, const piece_book::share& share);
  /// Nothing can arrive any more.
  void finish(work& w);
  void answer(work& w, error failure = {});

  std::uint32_t layers_at_once() const;
  std::uint32_t pieces_of(const work& w) const;

  fetch_options options_;
  std::unordered_set<node_id> peers_;
  std::unordered_map<fetch_ticket, work> fetches_;
  std::map<std::uint64_t, reading> reads_;  ///< under way, by id
  std::uint64_t next_read_ = 1;
  fetch_actions actions_;
};

}  // namespace mooncaf
