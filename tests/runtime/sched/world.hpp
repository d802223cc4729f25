#pragma once
// A small cluster for the scheduler's tests.

#include <string>
#include <vector>

#include "runtime/sched/conductor_core.hpp"

namespace mooncaf::test {

using namespace std::chrono_literals;

inline constexpr time_point start{1000s};

/// Exactly `per_token` seconds a token, and `step` seconds a decode step plus 1 ms per sequence.
inline std::vector<timing_point> linear_prefill(double per_token) {
  return {{100, 0, 100 * per_token},
          {1000, 0, 1000 * per_token},
          {10000, 0, 10000 * per_token},
          {1000, 5000, 1000 * per_token}};
}
inline std::vector<timing_point> linear_decode(double step) {
  return {
      {1, 1000, step + 0.001}, {8, 8000, step + 0.008}, {64, 1000, step + 0.064}, {64, 100000, step + 0.064}};
}

inline instance_desc prefill_instance(std::uint64_t id, node_id node, double per_token = 1e-3) {
  instance_desc d;
  d.id = worker_id{id};
  d.node = node;
  d.role = worker_role::prefill;
  d.samples = linear_prefill(per_token);
  return d;
}
inline instance_desc decode_instance(std::uint64_t id, node_id node, std::uint32_t capacity = 8,
                                     double step = 0.01) {
  instance_desc d;
  d.id = worker_id{id};
  d.node = node;
  d.role = worker_role::decode;
  d.capacity = capacity;
  d.samples = linear_decode(step);
  return d;
}

inline std::vector<block_key> chain(std::uint64_t session, std::size_t count) {
  std::vector<block_key> keys;
  for (std::size_t i = 0; i < count; ++i)
    keys.push_back(hash_text128(std::to_string(session) + "/" + std::to_string(i)));
  return keys;
}

/// Blocks of 100 tokens at 1,000 bytes a token: a block takes 0.1 s to compute and 0.1 ms to fetch at 1 GB/s.
inline conductor_options small_options() {
  conductor_options o;
  o.block_tokens = 100;
  o.bytes_per_token = 1000;
  o.admission = admission_policy::none;
  o.tbt_slo = 100ms;
  o.balancing_threshold = 4;
  o.decode_span = 20s;
  o.transfer = {1e9, 1ms, 1e9};
  return o;
}

/// `prefill` prefill instances with ids 1 … on nodes 1 …, `decode` ones with ids 1001 … on nodes 1001 …
inline conductor_core small_cluster(const conductor_options& options, std::uint64_t prefill = 3,
                                    std::uint64_t decode = 2) {
  conductor_core core{options};
  for (std::uint64_t i = 1; i <= prefill; ++i) {
    static_cast<void>(core.add_node(node_id{i}, start));
    static_cast<void>(core.add_instance(prefill_instance(i, node_id{i})));
  }
  for (std::uint64_t i = 1001; i <= 1000 + decode; ++i) {
    static_cast<void>(core.add_node(node_id{i}, start));
    static_cast<void>(core.add_instance(decode_instance(i, node_id{i})));
  }
  return core;
}

inline schedule_request request_of(std::uint64_t id, std::span<const block_key> keys,
                                   std::uint32_t prompt_tokens) {
  schedule_request r;
  r.id = request_id{id};
  r.keys = keys;
  r.prompt_tokens = prompt_tokens;
  r.max_tokens = 100;
  return r;
}

inline void hold(conductor_core& core, std::uint64_t node, std::span<const block_key> keys,
                 storage_tier tier = storage_tier::dram) {
  core.blocks_held(node_id{node}, keys, tier);
}

}  // namespace mooncaf::test
