#pragma once
// The cache shard: the authority on one process's KV blocks, in DRAM and on SSD. A mailbox around
// `shard_core`, the disk's executor and the memory.

#include <caf/response_promise.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <memory>
#include <unordered_map>

#include "actors/block_followers.hpp"
#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "runtime/request/shard_core.hpp"
#include "storage/rocksdb_tier.hpp"

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
  /// A question to the core, which answers it now or later. @param call  gets its number.
  template <class Answer, class Call>
  caf::result<Answer> ask(Call call);
  /// Carries out the orders of the core; to be called after every call that changes it.
  void act();
  void carry_out(shard_action::answer& what);
  void carry_out(shard_action::run_jobs& what);
  void carry_out(const shard_action::tell_device&);
  void carry_out(const shard_action::disk_state& what);
  void carry_out(const shard_action::give_pages_back& what);
  void carry_out(shard_action::announce& what);
  void carry_out(shard_action::ask_for_copies& what);

  context_ptr context_;
  shard_core core_;
  std::shared_ptr<rocksdb_tier> ssd_;
  executor_actor disk_;
  block_followers followers_;
  shard_question next_question_ = 1;
  std::unordered_map<shard_question, caf::response_promise> questions_;
  std::unordered_map<shard_question, prefix_load_ptr> loads_;  ///< whose reads have not begun
};

}  // namespace mooncaf
