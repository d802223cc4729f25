#pragma once
// The members of what a journal keeps, in order. A structure that gains a member does not compile here until
// the member is named: what decides must be in the journal. Then raise `journal_version`.

#include <algorithm>
#include <tuple>
#include <vector>

#include "runtime/sched/conductor_core.hpp"

namespace mooncaf::journal {

/// Of the format and of what the core answers. Journals of other versions are refused.
inline constexpr std::uint32_t journal_version = 9;

template <class T, class Of>
concept is = std::same_as<std::remove_const_t<T>, Of>;

auto members(is<error> auto& v) {
  auto& [code, detail] = v;
  return std::tie(code, detail);
}
auto members(is<transfer_model> auto& v) {
  auto& [bytes_per_s, latency, ssd_bytes_per_s] = v;
  return std::tie(bytes_per_s, latency, ssd_bytes_per_s);
}
auto members(is<conductor_options> auto& v) {
  auto& [policy, admission, ttft_slo, tbt_slo, balancing_threshold, decode_span, coupled, block_tokens,
         bytes_per_token, seed, demand_memory, hot_copy_share, transfer, heartbeat_limit, charge_limit] = v;
  return std::tie(policy, admission, ttft_slo, tbt_slo, balancing_threshold, decode_span, coupled,
                  block_tokens, bytes_per_token, seed, demand_memory, hot_copy_share, transfer,
                  heartbeat_limit, charge_limit);
}
auto members(is<timing_point> auto& v) {
  auto& [a, b, seconds] = v;
  return std::tie(a, b, seconds);
}
auto members(is<instance_desc> auto& v) {
  auto& [id, node, role, capacity, samples, capacity_tokens, reserves_answers, state] = v;
  return std::tie(id, node, role, capacity, samples, capacity_tokens, reserves_answers, state);
}
auto members(is<timed_step> auto& v) {
  auto& [number, batch, context_tokens, took] = v;
  return std::tie(number, batch, context_tokens, took);
}
auto members(is<instance_load> auto& v) {
  auto& [running, waiting, context_tokens, step] = v;
  return std::tie(running, waiting, context_tokens, step);
}
auto members(is<schedule_request> auto& v) {
  auto& [id, keys, prompt_tokens, max_tokens, priority, ttft_slo, tbt_slo, avoid, gateway, arrival, resumed,
         tenant] = v;
  return std::tie(id, keys, prompt_tokens, max_tokens, priority, ttft_slo, tbt_slo, avoid, gateway, arrival,
                  resumed, tenant);
}
auto members(is<prefix_holder> auto& v) {
  auto& [node, blocks] = v;
  return std::tie(node, blocks);
}
auto members(is<placement> auto& v) {
  auto& [prefill, decode, prefill_node, decode_node, local_blocks, source, source_blocks, source_tier, beside,
         predicted_ttft, predicted_tbt, replicate] = v;
  return std::tie(prefill, decode, prefill_node, decode_node, local_blocks, source, source_blocks,
                  source_tier, beside, predicted_ttft, predicted_tbt, replicate);
}
auto members(is<rejection> auto& v) {
  auto& [cause, retry_after, stage] = v;
  return std::tie(cause, retry_after, stage);
}
auto members(is<expiry> auto& v) {
  auto& [nodes, requests] = v;
  return std::tie(nodes, requests);
}
auto members(is<hot_block> auto& v) {
  auto& [key, parent, depth] = v;
  return std::tie(key, parent, depth);
}
auto members(is<hot_copy> auto& v) {
  auto& [source, target, blocks] = v;
  return std::tie(source, target, blocks);
}

template <class T>
concept has_members = requires(T& v) {
  members(v);
};

/// How many values an enumeration has: a reader refuses others.
template <class E>
inline constexpr unsigned values_of = 0;
template <>
inline constexpr unsigned values_of<ec> = static_cast<unsigned>(ec::internal) + 1;
template <>
inline constexpr unsigned values_of<placement_policy> = 4;
template <>
inline constexpr unsigned values_of<admission_policy> = static_cast<unsigned>(admission_policy::queue) + 1;
template <>
inline constexpr unsigned values_of<instance_role> = 2;
template <>
inline constexpr unsigned values_of<instance_state> = 4;
template <>
inline constexpr unsigned values_of<holder_tier> = 2;
template <>
inline constexpr unsigned values_of<reject_stage> = 6;

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b);
/// Equal in every member.
template <class T>
bool same(const T& a, const T& b) {
  if constexpr (has_members<const T>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      const auto x = members(a), y = members(b);
      return (same(std::get<I>(x), std::get<I>(y)) && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(members(a))>>{});
  } else {
    return a == b;
  }
}
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(a, b, [](const T& x, const T& y) { return same(x, y); });
}
template <class T, class E>
bool same(const tl::expected<T, E>& a, const tl::expected<T, E>& b) {
  if (a.has_value() != b.has_value()) return false;
  if (!a) return same(a.error(), b.error());
  if constexpr (std::is_void_v<T>) return true;
  else return same(*a, *b);
}

}  // namespace mooncaf::journal
