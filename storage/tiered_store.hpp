#pragma once
// DRAM and SSD as one cache that never blocks: work on the disk becomes a job, and a pin that waits for it
// gets a ticket.

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "storage/block_store.hpp"
#include "storage/copy_survey.hpp"
#include "storage/io_job.hpp"
#include "storage/io_queue.hpp"
#include "storage/memory_boundary.hpp"
#include "storage/use_clock.hpp"
#include "storage/write_policy.hpp"
#include "storage/write_refusal.hpp"

namespace mooncaf {

struct tiered_store_options {
  block_store_options dram;
  bool ssd = false;  ///< false: DRAM alone, and no job is ever made
  eviction_options ssd_eviction;
  std::uint64_t ssd_capacity_blocks = 0;  ///< blocks kept on SSD; beyond it blocks leave leaf-first
  write_policy write = write_policy::write_back;
  std::uint32_t selective_hits = 2;  ///< uses that make a block worth writing (write_through_selective)
  std::size_t max_writes = 64;       ///< blocks queued for or in writing; each keeps its slot pinned
  std::size_t max_reads = 256;       ///< blocks queued for or in reading; each holds a slot
  /// Blocks that the node's device alone holds are written to memory before the device lets go of them.
  bool device_gives_back = false;
  /// write_back: free slots to keep ready by evicting ahead, so that a reservation does not have to drop
  /// blocks that were not written yet. 0: a sixteenth of all slots.
  std::size_t free_ahead = 0;
};

/// Answer to a pin: complete (no ticket), or a ticket, for `take_ready` to deliver its outcome.
struct pin_reply {
  ticket_id ticket;      ///< zero: `pinned` is the final answer
  pinned_blocks pinned;  ///< with a ticket: the part that is in DRAM already, pinned under the final pin id
};

/// A ticket's outcome.
struct ready_pin {
  ticket_id ticket;
  owner_id owner;
  pinned_blocks pinned;        ///< a leading run of the keys asked for; shorter than hoped if a block was bad
  std::uint32_t from_ssd = 0;  ///< how many of the blocks were read for it
};

struct tier_stats {
  std::uint64_t ssd_blocks = 0;  ///< on SSD now
  std::uint64_t writes = 0;      ///< blocks written
  std::uint64_t write_failures = 0;
  std::uint64_t writes_skipped = 0;      ///< not written because the queue or the SSD was full
  std::uint64_t promotions = 0;          ///< blocks read back into DRAM
  std::uint64_t promotion_failures = 0;  ///< read back bad or not at all: each became a miss
  std::uint64_t promotions_shared = 0;   ///< pins that joined a read under way
  std::uint64_t copies = 0;              ///< blocks on SSD that another node is known to keep
  std::uint64_t ssd_evictions = 0;       ///< blocks that left the SSD
  std::uint64_t copies_dropped = 0;      ///<   another node keeps
  std::uint64_t last_copies_kept = 0;    ///<   … and a colder one, which no other node has, stayed instead
  std::size_t jobs_queued = 0;
  std::size_t jobs_running = 0;
  std::size_t reads_pending = 0;  ///< blocks queued for or in reading
};

/// The cache of one node in both tiers. A state machine like `block_store`, whose rules all hold here:
/// ```
///   pin ──► ready at once                      take_io_jobs ──► I/O thread: execute(jobs, tier)
///     └───► ticket ── take_ready ──► ready           complete ◄──┘
/// ```
/// **The SSD is closed under prefixes**: a block is written after its parent and evicted before it, so blocks
/// that a restart finds are usable from the first on. Where blocks are written when they leave DRAM, blocks
/// that DRAM or the device has, too, leave the SSD first: they come again if they have to. Blocks that other
/// nodes keep leave before blocks about as cold and nowhere else. **One heat**: a block has one node in the
/// tree of all tiers (`prefix_tree`), so a block that goes down is as cold there as it was above. A slot that
/// is being written or read into belongs to its job until `complete`, whatever happens to the owners
/// meanwhile. All queues are bounded; work that does not fit is skipped and counted, never waited for.
/// @thread  Owned by the CACHE SHARD. A call about the tree, which the node's device shares, takes its mutex
/// for as long as the call lasts. Call `take_io_jobs` and `take_ready` after every change.
class tiered_store {
 public:
  /// @param tree  of all tiers of the node; null: one of its own.
  tiered_store(block_allocator slots, tiered_store_options options, std::shared_ptr<prefix_tree> tree = {});

  /// Announces the SSD's blocks, once, before anything else. Blocks without their parent, and leaves beyond
  /// the capacity, are erased.
  void recover(std::span<const ssd_block> found);

  // ---- as in block_store ----
  result<std::vector<slot_ref>> reserve(owner_id owner, std::size_t count, time_point deadline);
  result<commit_outcome> commit(owner_id owner, std::uint32_t slot, const block_name& name,
                                std::uint64_t checksum);
  void count_elsewhere(std::size_t blocks) noexcept { store_.count_elsewhere(blocks); }
  void release(owner_id owner, std::span<const std::uint32_t> slots);
  void release(pin_id pin);
  /// Reads of the owner's that have not begun are not begun, unless another owner waits for them.
  void release_all(owner_id owner);
  bool renew(owner_id owner, time_point deadline) { return store_.renew(owner, deadline); }
  std::vector<owner_id> expire(time_point now);
  void fence(owner_id owner) { store_.fence(owner); }
  void confirm(owner_id owner);
  held_prefix match(std::span<const block_key> keys) const;
  std::vector<block_event> drain_events();
  block_snapshot snapshot() const;

  /// Pins the leading run of `keys`, reading blocks not in DRAM from SSD, as far as slots and queues allow.
  /// The owner's end withdraws a ticket: it is never delivered then.
  /// @param max_from_ssd  blocks to read at most, as the caller has priced the fetch; 0 pins the DRAM run
  /// alone.
  result<pin_reply> pin(std::span<const block_key> keys, owner_id owner, time_point deadline,
                        std::size_t max_from_ssd = ~std::size_t{0});
  /// Pins the leading run of `keys` that is in DRAM until `release`, for `owner`, whose lease never ends. No use is counted.
  /// @returns the pin, and the blocks that it holds; nothing if there are none.
  std::optional<std::pair<pin_id, std::uint32_t>> hold(std::span<const block_key> keys, owner_id owner);
  /// Reads blocks that are on SSD alone into slots that `owner` reserved, one each, in step: see
  /// `load_progress`. The slots are the disk's until the ticket is ready; then they hold the published
  /// blocks, pinned by the owner, or are the owner's own again. Unlike `pin` it tells beforehand where the
  /// blocks will be.
  /// @error `ec::unavailable` if a block is in DRAM or on its way there (`pin` joins that) or not on SSD any
  /// more; `ec::not_found` if a slot is not reserved by the owner; as for `reserve`.
  result<ticket_id> load(std::span<const block_key> keys, std::span<const std::uint32_t> slots,
                         owner_id owner, time_point deadline);
  /// Tickets that are complete, each exactly once.
  std::vector<ready_pin> take_ready();

  // ---- the disk ----

  /// Jobs to execute in this order, at most `max`. Do not run jobs of a later call before an earlier call's
  /// jobs.
  std::vector<io_job> take_io_jobs(std::size_t max = 64);
  /// Takes results back in the order of their jobs, each once; unknown ids are ignored.
  void complete(std::span<const io_result> results);
  /// Queues writes for blocks that are in DRAM alone, as many as the queue takes; before a planned stop,
  /// repeat with take_io_jobs / complete until it returns 0. @returns how many are under way: none, too, if
  /// the disk refuses them.
  std::size_t flush();
  /// Why the disk refused the last write, until it takes one again. Meanwhile blocks live in DRAM alone, and
  /// a write is tried now and then (`write_refusal`), by the time that `expire` was told.
  const std::optional<error>& why_writes_are_refused() const noexcept { return refusal_.reason(); }
  /// Tries refused writes again at once: before a planned stop.
  void retry_writes() noexcept { refusal_.end_pause(); }

  // ---- other nodes ----

  /// Blocks of which it matters now whether other nodes keep them: the coldest of a full SSD, a batch at a
  /// time. Without answers the SSD gives up by heat alone.
  std::vector<block_key> ask_for_copies();
  /// See `copy_survey::answer`.
  void copies_are(std::span<const block_key> asked, std::span<const block_key> kept_elsewhere);

  // ---- memory that something else may have ----

  /// Makes the blocks do without so many slots, as far as possible now: free slots are taken, and blocks
  /// leave by the usual order; slots beyond that come back into use. Slots that write-back keeps free stay
  /// free.
  /// @param most  slots to take now at most. @returns the slots taken; their bytes are not needed any more.
  std::vector<std::uint32_t> withhold(std::size_t slots, std::size_t most = ~std::size_t{0});
  /// How it stands, in bytes of whole blocks. Ages are as of the last `expire`.
  boundary_report boundary() const;

  slot_ref slot(std::uint32_t index) const noexcept { return store_.slot(index); }
  std::size_t block_bytes() const noexcept { return store_.block_bytes(); }
  const block_pieces& shape() const noexcept { return store_.shape(); }
  /// Blocks that the SSD may hold; 0: there is none.
  std::size_t ssd_capacity_blocks() const noexcept { return options_.ssd ? options_.ssd_capacity_blocks : 0; }
  /// It may hold so many from now on: how well blocks pack is known when they are there. What is too much leaves.
  void fit_ssd(std::size_t blocks);
  slot_counts integrity() const;
  const store_stats& stats() const noexcept { return store_.stats(); }
  tier_stats ssd_stats() const;
  /// Jobs, tickets and promotions included. @param why  gets the first contradiction.
  bool consistent(std::string* why = nullptr) const;
  /// The DRAM tier alone, for inspection; a caller that shares the tree holds its mutex meanwhile.
  const block_store& dram() const noexcept { return store_; }
  prefix_tree& tree() noexcept { return store_.tree(); }

 private:
  /// Holds slots on behalf of jobs. Never expires.
  static constexpr owner_id disk_owner{~std::uint64_t{0}};
  static constexpr time_point never = time_point::max();
  /// Blocks that must stay although they look like leaves are stepped over, at most so many at a time: a
  /// bound on the work of one call, not on correctness.
  static constexpr int guarded_steps_max = 64;

  struct waiter {
    ticket_id ticket;
    std::size_t position;
  };
  struct ticket_record {
    owner_id owner;
    pin_id pin;
    std::vector<pinned_block> blocks;  // prompt order; without address: still missing
    std::size_t in_dram = 0;           // leading blocks that needed no read
    std::size_t missing = 0;
    bool loads = false;  // into the owner's slots
  };
  enum class save_outcome : std::uint8_t {
    queued,      // or on SSD already
    queue_full,  // try again when jobs have completed
    refused,     // try again later: the disk takes nothing now
    no_room,     // nothing on SSD may give way
    impossible,  // not in DRAM, or behind a hole
  };

  void make_room_without_loss(std::size_t count);
  void write_what_is_used(const pinned_blocks& pinned);
  std::lock_guard<std::mutex> locked() const { return std::lock_guard{store_.tree().mutex()}; }
  bool join_promotion(const held_block& e, ticket_id ticket, std::size_t position);
  void finish_read(const io_job& job, const error& failure);
  void drop_unwanted_reads();
  bool wanted_by_others(const io_job& job);
  void read(ticket_id ticket, std::size_t position, io_job job);
  void resolve(ticket_id id);
  void want_saved(const block_key& key);
  void write_wanted();
  save_outcome save(const block_key& key);
  void queue_write(const held_block& e);
  void finish_write(const io_job& job, pin_id hold, const error& failure);
  bool make_ssd_room(const block_key& parent);
  bool evict_from_ssd();
  void evict_ahead();
  void queue_erase(const block_name& name);

  tiered_store_options options_;
  block_store store_;
  prefix_tree::tier& ssd_;  // on SSD, or on the way there (pinned and hidden meanwhile)
  copy_survey survey_;
  io_queue io_;
  std::deque<block_key> wanted_;  // to be written when the queue has room
  std::unordered_map<block_key, std::vector<waiter>> promotions_;
  std::unordered_map<ticket_id, ticket_record> tickets_;
  std::vector<ready_pin> ready_;
  std::uint64_t next_ticket_ = 1;
  std::uint64_t damaged_ = 0;  // blocks lost to a bad disk
  time_point now_{};           // as `expire` heard last
  use_clock used_;
  write_refusal refusal_;
  tier_stats stats_;
};

}  // namespace mooncaf
