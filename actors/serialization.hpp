#pragma once
// The names under which messages cross a wire; they do as their members (actors/cluster/wire.hpp), but for
// those that have floats, or a base. A type that is missing in the block below arrives empty at the other
// end; tests/actors/wire_test.cpp sends every one of them.

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/type_id.hpp>

#include "actors/client_request.hpp"
#include "actors/cluster/wire.hpp"
#include "actors/messages.hpp"
#include "runtime/compute/blocking_task.hpp"
#include "runtime/compute/prefix_load.hpp"
#include "runtime/engines/engine_core.hpp"
#include "runtime/ranks/rank_host.hpp"

namespace mooncaf {

namespace wire {
// Introductions say which version their sender knows.
template <>
inline constexpr bool comes_first<node_info> = true;
template <>
inline constexpr bool comes_first<introduction> = true;
template <>
inline constexpr bool comes_first<worker_info> = true;
// Ranks of a group are no members of the cluster, and learn no version of each other.
template <>
inline constexpr bool comes_first<rank_greeting> = true;
template <>
inline constexpr bool comes_first<rank_welcome> = true;
template <>
inline constexpr bool comes_first<rank_group> = true;
template <>
inline constexpr bool comes_first<rank_group::member> = true;

template <>
inline constexpr std::array growth_of<node_report>{growth{13, 16}};
template <>
inline constexpr std::array growth_of<schedule_job>{growth{14, 12}};
template <>
inline constexpr std::array growth_of<worker_load>{growth{14, 13}};
template <>
inline constexpr std::array growth_of<lead_claim>{growth{15, 4}};
template <>
inline constexpr std::array growth_of<lead_vote>{growth{15, 4}};
}  // namespace wire

template <class Inspector>
auto inspect(Inspector& f, sampling_params& x) {
  float_bits temperature{x.temperature}, top_p{x.top_p}, min_p{x.min_p}, repetition{x.repetition_penalty},
      presence{x.presence_penalty}, frequency{x.frequency_penalty};
  std::vector<std::pair<std::int32_t, float_bits>> bias;
  for (const auto& [id, value] : x.logit_bias) bias.emplace_back(id, float_bits{value});
  const auto run = [&] {
    return inspect_members<sampling_params>(
        f, temperature, x.top_k, top_p, min_p, repetition, presence, frequency, x.seed, x.logprobs,
        x.prompt_logprobs, x.pooling, bias, x.max_tokens, x.min_tokens, x.ignore_eos, x.stop,
        x.stop_token_ids, x.grammar, x.allowed_token_ids, x.bad_words, x.adapter);
  };
  if constexpr (!Inspector::writes_state) {
    return run();
  } else {
    auto outcome = run();
    x.temperature = temperature.value();
    x.top_p = top_p.value();
    x.min_p = min_p.value();
    x.repetition_penalty = repetition.value();
    x.presence_penalty = presence.value();
    x.frequency_penalty = frequency.value();
    x.logit_bias.clear();
    for (const auto& [id, value] : bias) x.logit_bias.emplace_back(id, value.value());
    return outcome;
  }
}
/// Its number does not travel: a batch numbers its first event.
template <class Inspector>
auto inspect(Inspector& f, block_event& x) {
  return inspect_members<block_event>(f, x.name, x.what, x.tier);
}
/// A struct of handles and a base of `runtime`: the handles first, then the base, which grows by itself.
template <class Inspector>
auto inspect(Inspector& f, generate_job& x) {
  return inspect_members<generate_job>(f, x.gateway, x.prefill, x.decode, static_cast<work_order&>(x));
}
template <class Inspector>
auto inspect(Inspector& f, node_info& x) {
  return inspect_members<node_info>(f, x.workers, x.shard, x.keeper, x.node, x.conductor, x.meeting,
                                    x.directory, static_cast<introduction&>(x));
}
template <class Inspector>
auto inspect(Inspector& f, roster_msg& x) {
  return inspect_members<roster_msg>(f, x.others, static_cast<standing&>(x));
}

}  // namespace mooncaf

/// Every type that travels in a message, once.
// clang-format off
#define MOONCAF_MESSAGES(each) \
  each(mooncaf::node_id) \
  each(mooncaf::error) \
  each(mooncaf::sampling_params) \
  each(mooncaf::attempt_id) \
  each(mooncaf::token_msg) \
  each(mooncaf::schedule_job) \
  each(mooncaf::placement_msg) \
  each(mooncaf::request_event) \
  each(mooncaf::block_event) \
  each(mooncaf::block_event_batch) \
  each(mooncaf::worker_load) \
  each(mooncaf::shard_status) \
  each(mooncaf::device_kv_stats) \
  each(mooncaf::path_status) \
  each(mooncaf::rail_status) \
  each(mooncaf::rank_status) \
  each(mooncaf::transfer_report) \
  each(mooncaf::boundary_state) \
  each(mooncaf::node_report) \
  each(mooncaf::generate_job) \
  each(mooncaf::kv_target) \
  each(mooncaf::prefill_done) \
  each(mooncaf::prefill_stats) \
  each(mooncaf::first_token) \
  each(mooncaf::token_run) \
  each(mooncaf::token_batch) \
  each(mooncaf::attempt_failed) \
  each(mooncaf::roll_call) \
  each(mooncaf::roll_answer) \
  each(mooncaf::commit_item) \
  each(mooncaf::prefix_view) \
  each(mooncaf::pinned_slots) \
  each(mooncaf::remote_block) \
  each(mooncaf::fetch_plan) \
  each(mooncaf::remote_blocks) \
  each(mooncaf::keep_order) \
  each(mooncaf::keep_mark) \
  each(mooncaf::kept_status) \
  each(std::vector<mooncaf::keep_mark>) \
  each(std::vector<mooncaf::kept_status>) \
  each(mooncaf::lead_claim) \
  each(mooncaf::lead_vote) \
  each(mooncaf::worker_info) \
  each(mooncaf::node_info) \
  each(mooncaf::roster_msg) \
  each(mooncaf::rank_greeting) \
  each(mooncaf::rank_welcome) \
  each(mooncaf::rank_group) \
  each(mooncaf::rank_group::member) \
  each(std::vector<mooncaf::rank_group::member>) \
  each(std::vector<mooncaf::attempt_id>) \
  each(std::vector<mooncaf::hash128>) \
  each(std::vector<mooncaf::commit_item>) \
  each(std::vector<mooncaf::node_info>) \
  each(std::vector<mooncaf::path_status>) \
  each(std::vector<mooncaf::rail_status>) \
  each(std::vector<mooncaf::rank_status>) \
  each(mooncaf::cluster_status)
// clang-format on

CAF_BEGIN_TYPE_ID_BLOCK(mooncaf, first_custom_type_id)
#define MOONCAF_NAMED(type) CAF_ADD_TYPE_ID(mooncaf, (type))
MOONCAF_MESSAGES(MOONCAF_NAMED)
#undef MOONCAF_NAMED
CAF_ADD_ATOM(mooncaf, mooncaf, blocks_atom, "blocks")
CAF_ADD_ATOM(mooncaf, mooncaf, cancel_atom, "cancel")
CAF_ADD_ATOM(mooncaf, mooncaf, claim_atom, "claim")
CAF_ADD_ATOM(mooncaf, mooncaf, cluster_atom, "cluster")
CAF_ADD_ATOM(mooncaf, mooncaf, commit_atom, "commit")
CAF_ADD_ATOM(mooncaf, mooncaf, confirm_atom, "confirm")
CAF_ADD_ATOM(mooncaf, mooncaf, done_atom, "done")
CAF_ADD_ATOM(mooncaf, mooncaf, drain_atom, "drain")
CAF_ADD_ATOM(mooncaf, mooncaf, event_atom, "event")
CAF_ADD_ATOM(mooncaf, mooncaf, failed_atom, "failed")
CAF_ADD_ATOM(mooncaf, mooncaf, fence_atom, "fence")
CAF_ADD_ATOM(mooncaf, mooncaf, fetch_atom, "fetch")
CAF_ADD_ATOM(mooncaf, mooncaf, found_atom, "found")
CAF_ADD_ATOM(mooncaf, mooncaf, first_atom, "first")
CAF_ADD_ATOM(mooncaf, mooncaf, flush_atom, "flush")
CAF_ADD_ATOM(mooncaf, mooncaf, withhold_atom, "withhold")
CAF_ADD_ATOM(mooncaf, mooncaf, follow_atom, "follow")
CAF_ADD_ATOM(mooncaf, mooncaf, hello_atom, "hello")
CAF_ADD_ATOM(mooncaf, mooncaf, job_atom, "job")
CAF_ADD_ATOM(mooncaf, mooncaf, join_atom, "join")
CAF_ADD_ATOM(mooncaf, mooncaf, keep_atom, "keep")
CAF_ADD_ATOM(mooncaf, mooncaf, landed_atom, "landed")
CAF_ADD_ATOM(mooncaf, mooncaf, layers_atom, "layers")
CAF_ADD_ATOM(mooncaf, mooncaf, leave_atom, "leave")
CAF_ADD_ATOM(mooncaf, mooncaf, listen_atom, "listen")
CAF_ADD_ATOM(mooncaf, mooncaf, load_atom, "load")
CAF_ADD_ATOM(mooncaf, mooncaf, look_atom, "look")
CAF_ADD_ATOM(mooncaf, mooncaf, peer_down_atom, "peer_down")
CAF_ADD_ATOM(mooncaf, mooncaf, peer_up_atom, "peer_up")
CAF_ADD_ATOM(mooncaf, mooncaf, pin_atom, "pin")
CAF_ADD_ATOM(mooncaf, mooncaf, pin_remote_atom, "pin_remote")
CAF_ADD_ATOM(mooncaf, mooncaf, read_atom, "read")
CAF_ADD_ATOM(mooncaf, mooncaf, release_atom, "release")
CAF_ADD_ATOM(mooncaf, mooncaf, renew_atom, "renew")
CAF_ADD_ATOM(mooncaf, mooncaf, report_atom, "report")
CAF_ADD_ATOM(mooncaf, mooncaf, reserve_atom, "reserve")
CAF_ADD_ATOM(mooncaf, mooncaf, roll_atom, "roll")
CAF_ADD_ATOM(mooncaf, mooncaf, run_atom, "run")
CAF_ADD_ATOM(mooncaf, mooncaf, schedule_atom, "schedule")
CAF_ADD_ATOM(mooncaf, mooncaf, sent_atom, "sent")
CAF_ADD_ATOM(mooncaf, mooncaf, free_atom, "free")
CAF_ADD_ATOM(mooncaf, mooncaf, status_atom, "status")
CAF_ADD_ATOM(mooncaf, mooncaf, stop_atom, "stop")
CAF_ADD_ATOM(mooncaf, mooncaf, submit_atom, "submit")
CAF_ADD_ATOM(mooncaf, mooncaf, target_atom, "target")
CAF_ADD_ATOM(mooncaf, mooncaf, tick_atom, "tick")
CAF_ADD_ATOM(mooncaf, mooncaf, tokens_atom, "tokens")
CAF_END_TYPE_ID_BLOCK(mooncaf)

// CAF's holder of such a value is compiled in serialization.cpp alone: it was a seventh of the time that a source of
// actors takes.
#define MOONCAF_ELSEWHERE(type) extern template class caf::detail::type_erased_value_impl<type>;
MOONCAF_MESSAGES(MOONCAF_ELSEWHERE)
#undef MOONCAF_ELSEWHERE

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(mooncaf::prefix_load_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(mooncaf::task_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(mooncaf::client_request_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(mooncaf::cluster_query_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(mooncaf::completion_piece_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(mooncaf::kept_query_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(mooncaf::engine_news_ptr)
