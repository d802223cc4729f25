#pragma once
// Everything that changes a `conductor_core` or the `admission_queue` before it, one structure per call. A
// new call is a structure here, at the end of `inputs`, and a line in `recorded_core` or `recorded_queue`.
// The core places requests for the queue alone, as a part of the queue's calls.

#include <cstddef>
#include <span>
#include <tuple>
#include <vector>

#include "runtime/sched/admission_queue.hpp"
#include "runtime/sched/journal/worker_inputs.hpp"

namespace mooncaf::journal {

// Each has the members that are written, in their order, and `call`, which makes the call; spans belong to
// the caller or, when read, to the reader, until the next record.

struct add_node {
  static constexpr const char* name = "add_node";
  node_id node;
  time_point now;
  auto call(conductor_core& core) { return core.conductor_core::add_node(node, now); }
};
struct add_instance {
  static constexpr const char* name = "add_instance";
  instance_desc desc;
  auto call(conductor_core& core) { return core.conductor_core::add_instance(desc); }
};
struct remove_node {
  static constexpr const char* name = "remove_node";
  node_id node;
  auto call(conductor_core& core) { return core.conductor_core::remove_node(node); }
};
struct remove_instance {
  static constexpr const char* name = "remove_instance";
  worker_id worker;
  auto call(conductor_core& core) { return core.conductor_core::remove_instance(worker); }
};
struct set_state {
  static constexpr const char* name = "set_state";
  worker_id worker;
  instance_state state;
  auto call(conductor_core& core) { return core.conductor_core::set_state(worker, state); }
};
struct report {
  static constexpr const char* name = "report";
  worker_id worker;
  instance_load load;
  time_point now;
  void call(conductor_core& core) { core.conductor_core::report(worker, load, now); }
};
struct heartbeat {
  static constexpr const char* name = "heartbeat";
  node_id node;
  time_point now;
  void call(conductor_core& core) { core.conductor_core::heartbeat(node, now); }
};
struct expire {
  static constexpr const char* name = "expire";
  time_point now;
  auto call(conductor_core& core) { return core.conductor_core::expire(now); }
};
struct unreachable {
  static constexpr const char* name = "unreachable";
  node_id node;
  std::span<const node_id> peers;
  void call(conductor_core& core) { core.conductor_core::unreachable(node, peers); }
};
struct blocks_held {
  static constexpr const char* name = "blocks_held";
  node_id node;
  std::span<const block_key> keys;
  storage_tier tier;
  void call(conductor_core& core) { core.conductor_core::blocks_held(node, keys, tier); }
};
struct blocks_gone {
  static constexpr const char* name = "blocks_gone";
  node_id node;
  std::span<const block_key> keys;
  void call(conductor_core& core) { core.conductor_core::blocks_gone(node, keys); }
};
struct forget_blocks {
  static constexpr const char* name = "forget_blocks";
  node_id node;
  void call(conductor_core& core) { core.conductor_core::forget_blocks(node); }
};
struct submit {
  static constexpr const char* name = "submit";
  schedule_request request;
  time_point now;
  auto call(admission_queue& queue) {
    std::vector<decision> decided;
    queue.admission_queue::submit(request, now, decided);
    return decided;
  }
};
struct advance {
  static constexpr const char* name = "advance";
  time_point now;
  auto call(admission_queue& queue) {
    std::vector<decision> decided;
    queue.admission_queue::advance(now, decided);
    return decided;
  }
};
struct withdraw {
  static constexpr const char* name = "withdraw";
  request_id id;
  auto call(admission_queue& queue) { return queue.admission_queue::withdraw(id); }
};
struct prefill_started {
  static constexpr const char* name = "prefill_started";
  request_id id;
  time_point now;
  void call(conductor_core& core) { core.conductor_core::prefill_started(id, now); }
};
struct first_token {
  static constexpr const char* name = "first_token";
  request_id id;
  std::uint32_t new_tokens, cached_tokens;
  duration compute;
  time_point now;
  void call(conductor_core& core) {
    core.conductor_core::first_token(id, new_tokens, cached_tokens, compute, now);
  }
};
struct finished {
  static constexpr const char* name = "finished";
  request_id id;
  time_point now;
  std::uint32_t output_tokens;
  duration tbt;
  void call(conductor_core& core) { core.conductor_core::finished(id, now, output_tokens, tbt); }
};
struct failed {
  static constexpr const char* name = "failed";
  request_id id;
  time_point now;
  void call(conductor_core& core) { core.conductor_core::failed(id, now); }
};
struct cancelled {
  static constexpr const char* name = "cancelled";
  request_id id;
  time_point now;
  void call(conductor_core& core) { core.conductor_core::cancelled(id, now); }
};
struct refused_at_decode {
  static constexpr const char* name = "refused_at_decode";
  request_id id;
  time_point now;
  void call(conductor_core& core) { core.conductor_core::refused_at_decode(id, now); }
};
struct memory_of {
  static constexpr const char* name = "memory_of";
  node_id node;
  std::uint64_t blocks;
  void call(conductor_core& core) { core.conductor_core::memory_of(node, blocks); }
};
struct copy_hot_blocks {
  static constexpr const char* name = "copy_hot_blocks";
  time_point now;
  auto call(conductor_core& core) { return core.conductor_core::copy_hot_blocks(now); }
};
struct link_measured {
  static constexpr const char* name = "link_measured";
  node_id one, other;
  double bytes_per_s;
  duration latency;
  void call(conductor_core& core) { core.conductor_core::link_measured(one, other, bytes_per_s, latency); }
};
struct disk_measured {
  static constexpr const char* name = "disk_measured";
  node_id node;
  double bytes_per_s;
  void call(conductor_core& core) { core.conductor_core::disk_measured(node, bytes_per_s); }
};

struct assign_roles {
  static constexpr const char* name = "assign_roles";
  time_point now;
  bool leads;
  auto call(conductor_core& core) { return core.conductor_core::assign_roles(now, leads); }
};

struct wish_nodes {
  static constexpr const char* name = "wish_nodes";
  time_point now;
  auto call(conductor_core& core) { return core.conductor_core::wish_nodes(now); }
};

struct play_by {
  static constexpr const char* name = "play_by";
  admission_rule rule;
  std::vector<played_rule> played;
  time_point now;
  void call(conductor_core& core) { core.conductor_core::play_by(rule, played, now); }
};

/// In the journal each is known by its place here.
using inputs =
    std::tuple<add_node, add_instance, remove_node, remove_instance, set_state, report, heartbeat, expire,
               unreachable, blocks_held, blocks_gone, forget_blocks, submit, prefill_started, first_token,
               finished, failed, cancelled, memory_of, copy_hot_blocks, link_measured, disk_measured, advance,
               withdraw, refused_at_decode, assign_roles, wish_nodes, play_by>;

template <class In>
constexpr std::size_t place_of() {
  using list = std::conditional_t<asks_nobody<In>, worker_inputs, inputs>;
  return []<std::size_t... I>(std::index_sequence<I...>) {
    static_assert((std::is_same_v<std::tuple_element_t<I, list>, std::remove_const_t<In>> || ...));
    std::size_t at = 0;
    ((std::is_same_v<std::tuple_element_t<I, list>, std::remove_const_t<In>> ? (at = I) : at), ...);
    return at;
  }
  (std::make_index_sequence<std::tuple_size_v<list>>{});
}

/// Whether an input is a call of the queue; else it is one of the core.
template <class In>
concept asks_queue = requires(In& in, admission_queue& queue) {
  in.call(queue);
};

/// Makes the call. @returns the answer to it.
template <class In>
auto make(In& in, conductor_core& core, admission_queue& queue) {
  if constexpr (asks_queue<In>) return in.call(queue);
  else return in.call(core);
}

namespace detail {

template <class In>
auto answer_to(In& in, conductor_core& core, admission_queue& queue) {
  if constexpr (asks_nobody<In>) return in.call();
  else return make(in, core, queue);
}

}  // namespace detail

template <class In>
using outcome_of = decltype(detail::answer_to(std::declval<In&>(), std::declval<conductor_core&>(),
                                              std::declval<admission_queue&>()));

}  // namespace mooncaf::journal
