#pragma once
// The conductor's mind with a journal beside it: every call that changes core or queue is written down with
// its outcome. `mooncaf replay` makes the same calls again and must get the same answers.
//
//   schedule_core ──► recorded_queue ──► admission_queue ──► conductor_core::schedule
//   cluster_core   ─► recorded_core ───► conductor_core
//                         └─► recorder ──► encoder ──► frames ──► file (actors/process/journal_file.hpp)

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "runtime/sched/journal/recorder.hpp"

namespace mooncaf {

/// A virtual call that is added to `conductor_core` needs a line here and a structure in inputs.hpp.
/// `schedule` has none: it is a part of calls of the queue.
/// @thread  Owned by the conductor; not synchronised.
class recorded_core final : public conductor_core {
 public:
  /// @param to  outlives the core.
  recorded_core(journal::recorder& to, const conductor_options& options) : conductor_core(options), to_(to) {}

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
  std::vector<role_change> assign_roles(time_point now, bool leads) override {
    return run(journal::assign_roles{now, leads});
  }
  std::vector<scale_wish> wish_nodes(time_point now) override { return run(journal::wish_nodes{now}); }
  void heartbeat(node_id node, time_point now) override { run(journal::heartbeat{node, now}); }
  expiry expire(time_point now) override { return run(journal::expire{now}); }
  void unreachable(node_id node, std::span<const node_id> peers) override {
    run(journal::unreachable{node, peers});
  }
  void blocks_held(node_id node, std::span<const block_key> keys, storage_tier tier) override {
    run(journal::blocks_held{node, keys, tier});
  }
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
  void play_by(const admission_rule& rule, std::span<const played_rule> played, time_point now) override {
    run(journal::play_by{rule, {played.begin(), played.end()}, now});
  }
  void prefill_started(request_id id, time_point now) override { run(journal::prefill_started{id, now}); }
  void first_token(request_id id, std::uint32_t new_tokens, std::uint32_t cached_tokens, duration compute,
                   time_point now) override {
    run(journal::first_token{id, new_tokens, cached_tokens, compute, now});
  }
  void finished(request_id id, time_point now, std::uint32_t output_tokens = 0, duration tbt = {}) override {
    run(journal::finished{id, now, output_tokens, tbt});
  }
  void failed(request_id id, time_point now) override { run(journal::failed{id, now}); }
  void cancelled(request_id id, time_point now) override { run(journal::cancelled{id, now}); }

  void refused_at_decode(request_id id, time_point now) override { run(journal::refused_at_decode{id, now}); }

 private:
  template <class In>
  journal::outcome_of<In> run(In in) {
    return to_.run(in, static_cast<conductor_core&>(*this));
  }

  journal::recorder& to_;
};

/// The same for the queue before the core.
/// @thread  Owned by the conductor; not synchronised.
class recorded_queue final : public admission_queue {
 public:
  /// @param to, core  outlive the queue.
  recorded_queue(journal::recorder& to, conductor_core& core, admission_queue_options options)
      : admission_queue(core, options), to_(to) {}

  void submit(const schedule_request& request, time_point now, std::vector<decision>& out) override {
    tell(run(journal::submit{request, now}), out);
  }
  void advance(time_point now, std::vector<decision>& out) override { tell(run(journal::advance{now}), out); }
  /// Gateways tell of every end, but few requests still wait then: no other end is written down.
  bool withdraw(request_id id) override { return waits(id) && run(journal::withdraw{id}); }

 private:
  template <class In>
  journal::outcome_of<In> run(In in) {
    return to_.run(in, static_cast<admission_queue&>(*this));
  }
  static void tell(std::vector<decision> decided, std::vector<decision>& out) {
    std::ranges::move(decided, std::back_inserter(out));
  }

  journal::recorder& to_;
};

}  // namespace mooncaf
