#pragma once
// The cache shard: the authority on one process's KV blocks, in DRAM and on SSD. A mailbox around
// `tiered_store`.

#include <caf/response_promise.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <memory>
#include <unordered_map>
#include <vector>

#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "runtime/sched/transfer_price.hpp"
#include "storage/rocksdb_tier.hpp"
#include "storage/tiered_store.hpp"

namespace mooncaf {

class cache_shard final : public cache_shard_actor::base {
 public:
  /// @param store  with what the SSD held at start already recovered.
  /// @param ssd    null: DRAM alone. Used by tasks on `disk` only.
  /// @param price  of reading the SSD, as far as it was measured.
  /// @param lease  how long an owner that is not renewed keeps its blocks.
  cache_shard(caf::actor_config& config, context_ptr context, tiered_store store,
              std::shared_ptr<rocksdb_tier> ssd, executor_actor disk, transfer_price price, duration lease);

  const char* name() const override { return "mooncaf.cache_shard"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  /// A pin that waits for the disk.
  struct waiting_pin {
    caf::response_promise reply;
    std::uint64_t owner = 0;
    bool remote = false;
  };

  /// A pin that waits for what the device alone has.
  struct wanted_pin {
    caf::response_promise reply;
    std::uint64_t owner = 0;
    block_keys_t keys;
    bool remote = false;        ///< a peer's
    std::int64_t worth_ns = 0;  ///< of the blocks to the peer, 0: all that it takes
    std::uint32_t blocks = 0;   ///< leading ones of `keys`
    time_point until;
  };

  prefix_view look(const block_keys_t& keys) const;
  caf::result<pinned_slots> pin(std::uint64_t owner, const block_keys_t& keys, std::uint32_t max_from_ssd);
  caf::result<remote_blocks> pin_remote(std::uint64_t owner, const block_keys_t& keys, std::int64_t worth_ns);
  caf::result<pinned_slots> pin_for_decode(std::uint64_t owner, const block_keys_t& keys);
  void bring_and_pin(wanted_pin&& w, duration patience);
  void pin_wanted(wanted_pin& w);
  void serve_wanted();
  caf::result<remote_blocks> load(const fetch_plan& plan, const prefix_load_ptr& into);
  caf::result<std::vector<slot_index>> reserve(std::uint64_t owner, std::uint32_t count);
  void commit(std::uint64_t owner, const std::vector<commit_item>& items);
  caf::result<std::uint64_t> flush();
  /// What every change ends with: disk jobs out, ready pins answered.
  void pump();
  void tick();
  /// Says once that the disk refuses writes, and once that it takes them again.
  void watch_disk();
  /// Asks which blocks of a full SSD other nodes keep, too.
  void ask_for_copies();
  /// The store withdraws the tickets of an ended owner; whoever waits for them is told.
  void withdraw(std::uint64_t owner);
  void send_events();
  void send_in_batches(std::span<const block_event> events, bool snapshot, std::uint64_t sequence);
  boundary_state withhold(std::uint64_t bytes);
  shard_status status() const;
  time_point deadline() const { return clock_type::now() + lease_; }

  context_ptr context_;
  tiered_store store_;
  std::shared_ptr<rocksdb_tier> ssd_;
  executor_actor disk_;
  ageing_price disk_price_;
  duration lease_;
  bool disk_busy_ = false;
  bool disk_refuses_ = false;  ///< as was said last
  bool asks_for_copies_ = false;
  std::unordered_map<ticket_id, waiting_pin> waiting_;
  std::unordered_map<ticket_id, prefix_load_ptr> loads_;  ///< whose reads are not done
  std::vector<wanted_pin> wanted_;
  caf::response_promise flushing_;    ///< pending while a flush is under way
  std::uint64_t written_before_ = 0;  ///< blocks, when it began
  conductor_actor follower_;
  std::uint64_t fetched_ = 0;    // blocks found on other nodes
  std::uint64_t on_device_ = 0;  // … on the device alone
};

}  // namespace mooncaf
