#pragma once
// The cache shard of a virtual process: the real `tiered_store` (without SSD), and what its slots hold, a
// hash of the tokens instead of KV. Answers come as from another mailbox: later, and in the order of the
// questions.

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/request/block_claim.hpp"
#include "storage/tiered_store.hpp"
#include "tests/campaign/network.hpp"

namespace mooncaf::campaign {

class shard {
 public:
  static constexpr duration lease = 30s;

  shard(network& net, timeline& time, dice& luck, process self, std::size_t slots);

  void pin(std::uint64_t owner, pin_order what, std::function<void(const pinned_slots&)> answered);
  void pin_remote(std::uint64_t reader, const block_keys_t& keys,
                  std::function<void(const remote_blocks&)> answered);
  void reserve(std::uint64_t owner, std::uint32_t count,
               std::function<void(const std::vector<slot_index>&)> answered,
               std::function<void(const error&)> refused);
  void commit(std::uint64_t owner, std::vector<commit_item> items);
  void renew(std::vector<std::uint64_t> owners);
  void fence(std::uint64_t owner);
  void confirm(std::uint64_t owner);
  void release(std::uint64_t owner);
  /// Ends owners whose leases are over.
  void expire();

  /// What a slot holds: hash of all tokens up to the end of its block, or as far as it is filled.
  std::uint64_t& at(slot_index slot) { return contents_[slot]; }
  tiered_store& store() noexcept { return store_; }
  const tiered_store& store() const noexcept { return store_; }

 private:
  void soon(network::action what);
  time_point deadline() const { return time_.now() + lease; }

  network& net_;
  timeline& time_;
  dice& luck_;
  process self_;
  tiered_store store_;
  std::vector<std::uint64_t> contents_;
  time_point last_{};
};

}  // namespace mooncaf::campaign
