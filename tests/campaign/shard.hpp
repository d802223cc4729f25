#pragma once
// The cache shard of a virtual process: the real `tiered_store`, what its slots hold, a hash of the tokens
// instead of KV, and a disk that outlives processes. Answers come as from another mailbox: later, and in the
// order of the questions.

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "runtime/request/block_claim.hpp"
#include "storage/tiered_store.hpp"
#include "tests/campaign/network.hpp"

namespace mooncaf::campaign {

/// What a place keeps on SSD: storage/rocksdb_tier.hpp with contents of one word.
struct disk {
  struct block {
    ssd_block what;
    std::uint64_t content = 0;  ///< that of `what.checksum`, if it has not rotted
  };
  std::size_t capacity = 0;
  write_policy policy = write_policy::write_back;
  std::map<block_key, block> blocks;
  bool refuses = false;  ///< writes fail
  duration extra{};      ///< that everything takes longer

  /// What rocksdb_tier and execute() do: what is not as it was written is not read.
  io_result run(const io_job& job, std::uint64_t& slot);
};

class shard {
 public:
  static constexpr duration lease = 30s;
  using refused_fn = std::function<void(const error&)>;

  /// @param ssd  of the place, with what it holds already; null: memory alone.
  shard(network& net, timeline& time, dice& luck, process self, std::size_t slots, disk* ssd);

  prefix_view look(const block_keys_t& keys) const;
  void look(block_keys_t keys, std::function<void(const prefix_view&)> answered);
  void pin(std::uint64_t owner, pin_order what, std::function<void(const pinned_slots&)> answered,
           refused_fn refused);
  /// @param worth_ns  what reading the disk may take; 0: any time.
  void pin_remote(std::uint64_t reader, const block_keys_t& keys, std::int64_t worth_ns,
                  std::function<void(const remote_blocks&)> answered, refused_fn refused);
  /// @param in  told when the first part of all blocks is in, and when all is.
  /// @param answered  with nothing if it was refused.
  void load(fetch_plan plan, std::function<void(bool all)> in,
            std::function<void(const remote_blocks&)> answered);
  void reserve(std::uint64_t owner, std::uint32_t count,
               std::function<void(const std::vector<slot_index>&)> answered, refused_fn refused);
  void commit(std::uint64_t owner, std::vector<commit_item> items);
  void renew(std::vector<std::uint64_t> owners);
  void fence(std::uint64_t owner);
  void confirm(std::uint64_t owner);
  void release(std::uint64_t owner);
  /// Ends owners whose leases are over.
  void expire();
  /// Writes what memory alone holds; told when nothing is under way any more.
  void flush(network::action done);

  /// What a slot holds: hash of all tokens up to the end of its block, or as far as it is filled.
  std::uint64_t& at(slot_index slot) { return contents_[slot]; }
  /// Told whenever blocks may have come or gone; may be empty.
  void on_news(network::action told) { news_ = std::move(told); }
  tiered_store& store() noexcept { return store_; }
  const tiered_store& store() const noexcept { return store_; }

 private:
  /// A pin that waits for the disk.
  struct waiting_pin {
    std::uint64_t owner = 0;
    std::function<void(const ready_pin&)> answered;
    refused_fn refused;
  };
  void soon(network::action what);
  time_point deadline() const { return time_.now() + lease; }
  void pin_then(std::uint64_t owner, const block_keys_t& keys, std::size_t from_ssd,
                std::function<void(const ready_pin&)> answered, refused_fn refused);
  /// Answers pins whose blocks are in, and gives the disk its next jobs.
  void pump();
  void withdraw(std::uint64_t owner);

  network& net_;
  timeline& time_;
  dice& luck_;
  process self_;
  disk* ssd_;
  tiered_store store_;
  std::vector<std::uint64_t> contents_;
  std::map<std::uint64_t, waiting_pin> waiting_;  ///< by ticket
  std::map<std::uint64_t, std::function<void(bool all)>> loads_;
  network::action flushed_, news_;
  bool disk_busy_ = false;
  time_point last_{};
};

}  // namespace mooncaf::campaign
