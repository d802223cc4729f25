#pragma once
// The conductor's mind with a journal beside it: every call that changes it is written down with what came of
// it. `mooncaf replay` makes the same calls again and must get the same answers.
//
//   conductor actor ──► recorded_core ──► conductor_core
//                            └─► encoder ──► frames ──► file (actors/journal_file.hpp)
//
// Without a journal a call costs a branch more.

#include <memory>
#include <utility>

#include "runtime/sched/journal/encoder.hpp"

namespace mooncaf {

/// A virtual call that is added to `conductor_core` needs a line here and a structure in inputs.hpp.
/// @thread  Owned by the conductor; not synchronised.
class recorded_core final : public conductor_core {
 public:
  using conductor_core::conductor_core;

  /// Begins a journal; to be called before anything else. @param out  gets the pieces of the file.
  void record_to(journal::sink out) {
    journal_ = std::make_unique<journal::encoder>(options(), std::move(out));
  }
  /// Hands over what is recorded; to be called now and then, and at the end.
  void flush_journal() {
    if (journal_) journal_->flush();
    if (journal_ && !journal_->open()) journal_.reset();
  }

  result<void> add_node(node_id node, time_point now = {}) override {
    return run(journal::add_node{node, now});
  }
  result<void> add_instance(const instance_desc& desc) override { return run(journal::add_instance{desc}); }
  std::vector<request_id> remove_node(node_id node) override { return run(journal::remove_node{node}); }
  std::vector<request_id> remove_instance(worker_id worker) override {
    return run(journal::remove_instance{worker});
  }
  result<void> set_state(worker_id worker, instance_state state) override {
    return run(journal::set_state{worker, state});
  }
  void report(worker_id worker, const instance_load& load, time_point now = {}) override {
    run(journal::report{worker, load, now});
  }
  void heartbeat(node_id node, time_point now) override { run(journal::heartbeat{node, now}); }
  expiry expire(time_point now) override { return run(journal::expire{now}); }
  void unreachable(node_id node, std::span<const node_id> peers) override {
    run(journal::unreachable{node, peers});
  }
  void block_held(node_id node, const block_key& key, storage_tier tier) override {
    run(journal::blocks_held{node, {&key, 1}, tier});
  }
  void blocks_held(node_id node, std::span<const block_key> keys, storage_tier tier) override {
    run(journal::blocks_held{node, keys, tier});
  }
  void block_gone(node_id node, const block_key& key) override { run(journal::blocks_gone{node, {&key, 1}}); }
  void blocks_gone(node_id node, std::span<const block_key> keys) override {
    run(journal::blocks_gone{node, keys});
  }
  void forget_blocks(node_id node) override { run(journal::forget_blocks{node}); }
  void memory_of(node_id node, std::uint64_t blocks) override { run(journal::memory_of{node, blocks}); }
  std::vector<hot_copy> copy_hot_blocks(time_point now) override {
    return run(journal::copy_hot_blocks{now});
  }
  void link_measured(node_id one, node_id other, double bytes_per_s, duration latency) override {
    run(journal::link_measured{one, other, bytes_per_s, latency});
  }
  void disk_measured(node_id node, double bytes_per_s) override {
    run(journal::disk_measured{node, bytes_per_s});
  }
  tl::expected<placement, rejection> schedule(const schedule_request& request, time_point now) override {
    return run(journal::schedule{request, now});
  }
  void prefill_started(request_id id, time_point now) override { run(journal::prefill_started{id, now}); }
  void first_token(request_id id, std::uint32_t new_tokens, std::uint32_t cached_tokens, duration compute,
                   time_point now) override {
    run(journal::first_token{id, new_tokens, cached_tokens, compute, now});
  }
  void finished(request_id id, time_point now, std::uint32_t output_tokens = 0) override {
    run(journal::finished{id, now, output_tokens});
  }
  void failed(request_id id, time_point now) override { run(journal::failed{id, now}); }
  void cancelled(request_id id, time_point now) override { run(journal::cancelled{id, now}); }

 private:
  /// The core's own calls of its virtual functions are part of the call that is under way.
  template <class In>
  journal::outcome_of<In> run(In in) {
    if (!journal_ || std::exchange(under_way_, true)) return in.call(static_cast<conductor_core&>(*this));
    if constexpr (std::is_void_v<journal::outcome_of<In>>) {
      in.call(static_cast<conductor_core&>(*this));
      journal_->record(in);
      under_way_ = false;
    } else {
      auto outcome = in.call(static_cast<conductor_core&>(*this));
      journal_->record(in, outcome);
      under_way_ = false;
      return outcome;
    }
  }

  std::unique_ptr<journal::encoder> journal_;
  bool under_way_ = false;
};

}  // namespace mooncaf
