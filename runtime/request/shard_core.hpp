#pragma once
// What a cache shard decides, without its mailbox: which pins wait for the disk or the device and for how
// long, what the disk does next, what is answered and what the conductor is told.
//
//   pin ──► all is in memory ────────────────────────────────────────────────► answer
//    ├────► some is on SSD: a ticket of the store ── run_jobs ── ran ────────► answer
//    └────► some is on the device alone: waits for its way to memory, with patience ──► pin what is here
//
// The owner's end, or the end of its lease, answers all that it waits for with `ec::cancelled`.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/request/messages.hpp"
#include "runtime/sched/transfer_price.hpp"
#include "storage/kept_prefixes.hpp"
#include "storage/tiered_store.hpp"

namespace mooncaf {

/// Names a question that is answered once, now or later.
using shard_question = std::uint64_t;

/// Orders to the actor, in order.
namespace shard_action {
/// The answer to a question: pinned blocks for this node or for another one, blocks that a flush wrote, or
/// why there is none.
struct answer {
  shard_question asked = 0;
  std::variant<pinned_slots, remote_blocks, std::uint64_t, error> what;
};
/// Have the disk do these jobs and tell `ran`; none is under way.
struct run_jobs {
  std::vector<io_job> jobs;
  std::optional<shard_question> load;  ///< the `load` that they are read for, layer by layer
};
/// The device may have something to write: there is room again.
struct tell_device {};
/// How the disk takes writes. `turned`: it began or ceased to refuse them.
struct disk_state {
  std::optional<error> refusal;
  std::uint64_t write_failures = 0;
  bool turned = false;
};
/// The bytes at this offset of the shard's memory are not wanted any more.
struct give_pages_back {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
/// Tell the conductor that follows.
struct announce {
  block_event_batch batch;
};
/// Ask the conductor which of these blocks other nodes keep; tell `copies_are`, or `copies_unknown`.
struct ask_for_copies {
  block_keys_t keys;
};
}  // namespace shard_action

using shard_actions =
    std::vector<std::variant<shard_action::answer, shard_action::run_jobs, shard_action::tell_device,
                             shard_action::disk_state, shard_action::give_pages_back, shard_action::announce,
                             shard_action::ask_for_copies>>;

struct shard_core_options {
  node_id self;
  region_id region;           ///< the shard's memory, as peers address it
  bool disk = false;          ///< there is an SSD
  transfer_price disk_price;  ///< of reading it, as far as it was measured
  duration lease{};           ///< how long an owner that is not renewed keeps its blocks
  std::size_t jobs_max = 64;  ///< that the disk is given at once
  keep_limits keeps{};        ///< blocks that clients may have kept
  /// Has the device bring to memory what it alone holds of these keys behind the first `here`. @returns
  /// leading blocks that will be in memory or on SSD then. Empty: no device has memory of its own.
  std::function<std::uint32_t(std::span<const block_key> keys, std::uint32_t here)> bring{};
};

/// The KV blocks of one process, in DRAM and on SSD, and the pins that wait for some of them.
/// @thread  Owned by the cache shard; the tree of the store has a mutex of its own.
class shard_core {
 public:
  shard_core(tiered_store store, shard_core_options options);

  /// The actions that the calls so far led to; each is given once.
  shard_actions take_actions() { return std::exchange(actions_, {}); }

  /// The leading blocks of the keys that are held, and the present cost of reading the disk; changes nothing.
  prefix_view look(std::span<const block_key> keys, time_point now) const;

  // ---- pins: each question is answered once ----

  /// @param max_from_ssd  blocks to read from SSD at most. @returns to the asker `pinned_slots`.
  void pin(shard_question asked, std::uint64_t owner, const block_keys_t& keys, std::uint32_t max_from_ssd,
           time_point now);
  /// The same with all blocks on SSD, and with those that the device alone has if they come within a second.
  void pin_for_decode(shard_question asked, std::uint64_t owner, block_keys_t keys, time_point now);
  /// The same for a reader on another node, which gets `remote_blocks`. @param worth_ns  how long the SSD may
  /// take; 0: as long as it takes.
  void pin_remote(shard_question asked, std::uint64_t owner, block_keys_t keys, std::int64_t worth_ns,
                  time_point now);
  /// Reads blocks that are on SSD alone into reserved slots of the plan's owner: `remote_blocks`.
  void load(shard_question asked, const fetch_plan& plan, time_point now);

  // ---- slots and leases, as in `tiered_store` ----

  result<std::vector<slot_index>> reserve(std::uint64_t owner, std::uint32_t count, time_point now);
  void commit(std::uint64_t owner, std::span<const commit_item> items, time_point now);
  /// Blocks that a pin missed were found after all: on another node, or on the device alone.
  void found(std::uint64_t remote, std::uint64_t on_device);
  void renew(std::span<const std::uint64_t> owners, time_point now);
  void fence(std::uint64_t owner) { store_.fence(owner_id{owner}); }
  void confirm(std::uint64_t owner);
  void release(std::uint64_t owner);
  /// Ends leases and pins whose time is over, tries refused writes again, tells the conductor of changes. To
  /// be called every few tens of milliseconds.
  void tick(time_point now);

  // ---- prefixes that clients want kept ----

  /// Keeps leading parts of a prompt in memory for a tenant, as far as they are there and its share has room.
  /// @returns the blocks of each mark that are kept from now on.
  std::vector<std::uint32_t> keep(std::uint64_t tenant, std::span<const block_key> keys,
                                  std::span<const keep_mark> marks, time_point now);
  /// Those of a tenant. @param drop  one that is to end, or `every_prefix`; zero: none. They are the answer then.
  std::vector<kept_status> kept(std::uint64_t tenant, const block_key& drop, time_point now);

  // ---- the disk ----

  /// Outcomes of the jobs under way, in their order. @param took  the disk's time for all of them.
  void ran(std::span<const io_result> results, duration took, time_point now);
  /// Blocks that the SSD may hold: `tiered_store::fit_ssd`.
  void fits(std::size_t blocks) { store_.fit_ssd(blocks); }
  /// Writes to SSD the blocks that are in memory alone; answers with their number.
  void flush(shard_question asked);

  // ---- other nodes ----

  /// A conductor follows from now on: it gets a snapshot, then every change.
  void follow();
  void copies_are(const block_keys_t& asked, const block_keys_t& kept_elsewhere);
  void copies_unknown() { asks_for_copies_ = false; }

  // ---- memory that objects of the store may have ----

  /// Does without so many bytes, as far as it can now. @returns how it stands then.
  boundary_state withhold(std::uint64_t bytes);

  shard_status status(time_point now) const;
  const tiered_store& store() const noexcept { return store_; }

 private:
  /// A pin that waits for the disk.
  struct disk_wait {
    shard_question asked = 0;
    std::uint64_t owner = 0;
    bool remote = false;
  };
  /// A pin that waits for blocks that the device alone has.
  struct device_wait {
    shard_question asked = 0;
    std::uint64_t owner = 0;
    block_keys_t keys;
    bool remote = false;
    std::int64_t worth_ns = 0;  ///< of the blocks to the reader; 0: all that it takes
    std::uint32_t blocks = 0;   ///< leading ones of `keys` that it waits for
    time_point until{};
  };

  void answer(shard_question asked, const pinned_blocks& pinned, std::uint32_t from_ssd, bool remote);
  void refuse(shard_question asked, const error& why);
  /// Pins as much as memory and the disk have, now.
  void pin_held(const disk_wait& who, std::span<const block_key> keys, std::size_t max_from_ssd,
                time_point now);
  void pin_with_device(device_wait&& wanted, duration patience, time_point now);
  void pin_wanted(const device_wait& wanted, time_point now);
  /// Pins for which the device has done its part, or whose patience is over.
  void serve_wanted(time_point now);
  /// The end of every change: answers ready pins, and hands jobs to the disk.
  void pump();
  /// The store withdraws the tickets of an ended owner; pins that wait for them are answered.
  void withdraw(std::uint64_t owner);
  void watch_disk();
  /// What has come and gone since the last time, if a conductor follows.
  void announce_news();
  void announce(std::span<const block_event> events, bool snapshot, std::uint64_t sequence);
  void ask_for_copies();
  void let_go(std::span<const kept_prefixes::hold_id> over);

  tiered_store store_;
  shard_core_options options_;
  kept_prefixes kept_;
  std::unordered_map<kept_prefixes::hold_id, pin_id> holds_;
  ageing_price disk_price_;
  std::unordered_map<ticket_id, disk_wait> disk_waits_;
  std::vector<device_wait> device_waits_;
  std::vector<shard_question> flushing_;
  std::uint64_t written_before_ = 0;  ///< blocks, when the flush began
  bool disk_busy_ = false;
  std::uint64_t reading_bytes_ = 0;  ///< by the jobs under way; 0: they do not only read
  std::optional<shard_action::disk_state> disk_said_;
  bool followed_ = false;
  bool told_since_tick_ = false;  ///< news went at once; what comes until the tick goes with it
  bool asks_for_copies_ = false;
  std::uint64_t found_remote_ = 0;     ///< blocks
  std::uint64_t found_on_device_ = 0;  ///< … on the device alone
  shard_actions actions_;
};

}  // namespace mooncaf
