#pragma once
// How the messages of actors/messages.hpp cross a wire, and the names under which they do. A type that is
// missing in the block below arrives empty at the other end; tests/actors/wire_test.cpp sends every one of
// them.

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/type_id.hpp>

#include "actors/blocking_task.hpp"
#include "actors/client_request.hpp"
#include "actors/messages.hpp"
#include "actors/prefix_load.hpp"
#include "actors/wire.hpp"

namespace mooncaf {

template <class Inspector>
auto inspect(Inspector& f, sampling_params& x) {
  float_bits temperature{x.temperature}, top_p{x.top_p}, min_p{x.min_p}, repetition{x.repetition_penalty},
      presence{x.presence_penalty}, frequency{x.frequency_penalty};
  std::vector<std::pair<std::int32_t, float_bits>> bias;
  for (const auto& [id, value] : x.logit_bias) bias.emplace_back(id, float_bits{value});
  const auto run = [&] {
    return f(caf::meta::type_name("sampling_params"), temperature, x.top_k, top_p, min_p, repetition,
             presence, frequency, x.seed, x.logprobs, x.prompt_logprobs, x.pooling, bias, x.max_tokens,
             x.min_tokens, x.ignore_eos, x.stop, x.stop_token_ids, x.grammar, x.allowed_token_ids,
             x.bad_words, x.adapter);
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
template <class Inspector>
auto inspect(Inspector& f, attempt_id& x) {
  return fields(f, "attempt_id", x, x.request, x.attempt);
}
template <class Inspector>
auto inspect(Inspector& f, token_msg& x) {
  return fields(f, "token_msg", x, x.id, x.logprob_bits, x.top);
}
template <class Inspector>
auto inspect(Inspector& f, schedule_job& x) {
  return fields(f, "schedule_job", x, x.id, x.keys, x.prompt_tokens, x.max_tokens, x.priority, x.ttft_slo_ns,
                x.tbt_slo_ns, x.age_ns, x.tenant, x.resumed, x.avoid, x.gateway);
}
template <class Inspector>
auto inspect(Inspector& f, prefix_holder& x) {
  return fields(f, "prefix_holder", x, x.node, x.blocks);
}
template <class Inspector>
auto inspect(Inspector& f, placement_msg& x) {
  return fields(f, "placement_msg", x, x.id, x.rejection, x.retry_after_ns, x.queued, x.prefill, x.decode,
                x.prefill_node, x.decode_node, x.local_blocks, x.source, x.source_blocks, x.source_tier,
                x.beside, x.predicted_ttft_ns, x.predicted_tbt_ns, x.check_at_decode);
}
template <class Inspector>
auto inspect(Inspector& f, request_event& x) {
  return fields(f, "request_event", x, x.id, x.stage, x.new_tokens, x.cached_tokens, x.compute_ns, x.ttft_ns,
                x.output_tokens, x.wasted_tokens);
}
template <class Inspector>
auto inspect(Inspector& f, block_event_msg& x) {
  return fields(f, "block_event_msg", x, x.key, x.parent, x.depth, x.what, x.tier);
}
template <class Inspector>
auto inspect(Inspector& f, block_event_batch& x) {
  return fields(f, "block_event_batch", x, x.node, x.first_seq, x.snapshot, x.part, x.events);
}
template <class Inspector>
auto inspect(Inspector& f, worker_load& x) {
  return fields(f, "worker_load", x, x.id, x.running, x.waiting, x.waiting_tokens, x.context_tokens, x.steps,
                x.step_ns, x.step_batch, x.step_context_tokens, x.failure);
}
template <class Inspector>
auto inspect(Inspector& f, shard_status& x) {
  return fields(f, "shard_status", x, x.slots_total, x.slots_free, x.slots_reserved, x.slots_committed,
                x.slots_pinned, x.slots_private, x.slots_quarantined, x.slots_withheld, x.ssd_blocks,
                x.ssd_bytes, x.ssd_capacity_bytes, x.ssd_written_bytes, x.ssd_copies, x.ssd_evictions,
                x.ssd_copies_dropped, x.ssd_last_copies_kept, x.owners, x.evictions, x.evictions_lost,
                x.hits_device, x.hits_dram, x.hits_ssd, x.hits_remote, x.misses, x.ssd_read_bytes,
                x.ssd_read_bytes_per_s, x.ssd_latency_ns, x.consistent);
}
template <class Inspector>
auto inspect(Inspector& f, device_kv_stats& x) {
  return fields(f, "device_kv_stats", x, x.blocks, x.blocks_used, x.hit_tokens, x.loaded_tokens,
                x.loaded_bytes, x.stored_bytes, x.unwritten_blocks, x.lost_blocks, x.sent_bytes, x.unreached);
}
template <class Inspector>
auto inspect(Inspector& f, path_status& x) {
  return fields(f, "path_status", x, x.peer, x.path, x.bytes, x.transfers, x.retries, x.checksum_failures,
                x.control_messages, x.slices, x.failures, x.latency_ns, x.learned_bytes_per_s,
                x.learned_latency_ns, x.preferred);
}
template <class Inspector>
auto inspect(Inspector& f, rail_status& x) {
  return fields(f, "rail_status", x, x.name, x.address, x.up, x.bytes, x.slices, x.retries, x.failures,
                x.latency_ns, x.last_error);
}
template <class Inspector>
auto inspect(Inspector& f, boundary_state& x) {
  return fields(f, "boundary_state", x, x.withheld_bytes, x.bytes, x.idle_bytes, x.taken_bytes, x.coldest_ns);
}
template <class Inspector>
auto inspect(Inspector& f, transfer_report& x) {
  return fields(f, "transfer_report", x, x.paths, x.rails, x.fenced);
}
template <class Inspector>
auto inspect(Inspector& f, node_report& x) {
  return fields(f, "node_report", x, x.node, x.workers, x.has_shard, x.shard, x.device, x.moved,
                x.requests_live, x.roster, x.unreachable);
}
template <class Inspector>
auto inspect(Inspector& f, generate_job& x) {
  return fields(f, "generate_job", x, x.id, x.tokens, x.prompt_tokens, x.keys, x.root, x.sampling, x.priority,
                x.ttft_slo_ns, x.tbt_slo_ns, x.age_ns, x.placement, x.gateway_node, x.gateway, x.prefill,
                x.decode);
}
template <class Inspector>
auto inspect(Inspector& f, kv_target& x) {
  return fields(f, "kv_target", x, x.id, x.node, x.region, x.have_blocks, x.offsets);
}
template <class Inspector>
auto inspect(Inspector& f, prefill_done& x) {
  return fields(f, "prefill_done", x, x.id, x.first, x.computed_tokens, x.transfers, x.slots, x.checksums);
}
template <class Inspector>
auto inspect(Inspector& f, prefill_stats& x) {
  return fields(f, "prefill_stats", x, x.cached_tokens, x.dram_tokens, x.ssd_tokens, x.remote_tokens,
                x.computed_tokens, x.queue_ns, x.fetch_ns, x.compute_ns);
}
template <class Inspector>
auto inspect(Inspector& f, first_token& x) {
  return fields(f, "first_token", x, x.id, x.token, x.finish, x.stats, x.prompt, x.pooled);
}
template <class Inspector>
auto inspect(Inspector& f, token_run& x) {
  return fields(f, "token_run", x, x.id, x.position, x.tokens, x.finish);
}
template <class Inspector>
auto inspect(Inspector& f, token_batch& x) {
  return fields(f, "token_batch", x, x.runs);
}
template <class Inspector>
auto inspect(Inspector& f, attempt_failed& x) {
  return fields(f, "attempt_failed", x, x.id, x.cause, x.retriable, x.lost_device, x.wasted_prefill_tokens,
                x.retry_after_ns);
}
template <class Inspector>
auto inspect(Inspector& f, roll_call& x) {
  return fields(f, "roll_call", x, x.gateway, x.live);
}
template <class Inspector>
auto inspect(Inspector& f, roll_answer& x) {
  return fields(f, "roll_answer", x, x.unknown, x.waiting);
}
template <class Inspector>
auto inspect(Inspector& f, commit_item& x) {
  return fields(f, "commit_item", x, x.slot, x.key, x.parent, x.depth, x.checksum);
}
template <class Inspector>
auto inspect(Inspector& f, prefix_view& x) {
  return fields(f, "prefix_view", x, x.dram_blocks, x.held_blocks, x.disk_wait_ns, x.disk_block_ns);
}
template <class Inspector>
auto inspect(Inspector& f, pinned_slots& x) {
  return fields(f, "pinned_slots", x, x.slots, x.checksums, x.from_ssd);
}
template <class Inspector>
auto inspect(Inspector& f, remote_block& x) {
  return fields(f, "remote_block", x, x.key, x.offset, x.checksum);
}
template <class Inspector>
auto inspect(Inspector& f, fetch_plan& x) {
  return fields(f, "fetch_plan", x, x.id, x.source, x.keys, x.skip, x.slots, x.worth_ns, x.beside);
}
template <class Inspector>
auto inspect(Inspector& f, remote_blocks& x) {
  return fields(f, "remote_blocks", x, x.region, x.blocks);
}
template <class Inspector>
auto inspect(Inspector& f, keep_order& x) {
  return fields(f, "keep_order", x, x.source, x.blocks);
}
template <class Inspector>
auto inspect(Inspector& f, worker_info& x) {
  return fields(f, "worker_info", x, x.id, x.role, x.handle, x.capacity, x.samples, x.memory_tokens);
}
template <class Inspector>
auto inspect(Inspector& f, node_info& x) {
  return fields(f, "node_info", x, x.id, x.name, x.host, x.control_port, x.roles, x.fingerprint, x.model,
                x.layout, x.data_plane, x.workers, x.shard, x.keeper, x.node, x.conductor, x.meeting,
                x.directory);
}
template <class Inspector>
auto inspect(Inspector& f, roster_msg& x) {
  return fields(f, "roster_msg", x, x.member, x.version, x.news, x.others);
}

}  // namespace mooncaf

CAF_BEGIN_TYPE_ID_BLOCK(mooncaf, first_custom_type_id)
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::node_id))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::error))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::sampling_params))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::attempt_id))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::token_msg))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::schedule_job))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::placement_msg))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::request_event))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::block_event_msg))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::block_event_batch))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::worker_load))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::shard_status))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::device_kv_stats))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::path_status))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::rail_status))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::transfer_report))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::boundary_state))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::node_report))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::generate_job))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::kv_target))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::prefill_done))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::prefill_stats))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::first_token))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::token_run))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::token_batch))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::attempt_failed))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::roll_call))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::roll_answer))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::commit_item))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::prefix_view))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::pinned_slots))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::remote_block))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::fetch_plan))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::remote_blocks))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::keep_order))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::worker_info))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::node_info))
CAF_ADD_TYPE_ID(mooncaf, (mooncaf::roster_msg))
CAF_ADD_TYPE_ID(mooncaf, (std::vector<mooncaf::attempt_id>))
CAF_ADD_TYPE_ID(mooncaf, (std::vector<mooncaf::hash128>))
CAF_ADD_TYPE_ID(mooncaf, (std::vector<mooncaf::commit_item>))
CAF_ADD_TYPE_ID(mooncaf, (std::vector<mooncaf::node_info>))
CAF_ADD_TYPE_ID(mooncaf, (std::vector<mooncaf::path_status>))
CAF_ADD_TYPE_ID(mooncaf, (std::vector<mooncaf::rail_status>))
CAF_ADD_ATOM(mooncaf, mooncaf, blocks_atom, "blocks")
CAF_ADD_ATOM(mooncaf, mooncaf, cancel_atom, "cancel")
CAF_ADD_ATOM(mooncaf, mooncaf, cluster_atom, "cluster")
CAF_ADD_ATOM(mooncaf, mooncaf, commit_atom, "commit")
CAF_ADD_ATOM(mooncaf, mooncaf, confirm_atom, "confirm")
CAF_ADD_ATOM(mooncaf, mooncaf, done_atom, "done")
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
CAF_ADD_ATOM(mooncaf, mooncaf, status_atom, "status")
CAF_ADD_ATOM(mooncaf, mooncaf, stop_atom, "stop")
CAF_ADD_ATOM(mooncaf, mooncaf, submit_atom, "submit")
CAF_ADD_ATOM(mooncaf, mooncaf, target_atom, "target")
CAF_ADD_ATOM(mooncaf, mooncaf, tick_atom, "tick")
CAF_ADD_ATOM(mooncaf, mooncaf, tokens_atom, "tokens")
CAF_END_TYPE_ID_BLOCK(mooncaf)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(mooncaf::prefix_load_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(mooncaf::task_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(mooncaf::client_request_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(mooncaf::cluster_query_ptr)
