#pragma once
// Every typed actor interface of mooncaf, with a line of prose over every message. INTERNAL marks what an
// actor sends itself or gets from an executor of its own process; those never leave the process.

#include <caf/typed_actor.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "actors/client_request.hpp"
#include "actors/serialization.hpp"

namespace mooncaf {

// A message a line:
// clang-format off

/// An EXECUTOR owns one thread: a worker's forward passes, a shard's disk reads, a dial.
using executor_actor = caf::typed_actor<
    // Runs the task and answers with it. Tasks run in the order of arrival.
    MOONCAF_RPC(task_ptr, run_atom, task_ptr)>;

/// Within this a shard answers those who write blocks beside the requests.
inline constexpr auto shard_limit = std::chrono::seconds(10);

/// The CACHE SHARD is the authority on the KV blocks of one process, in DRAM and on SSD.
using cache_shard_actor = caf::typed_actor<
    // The leading blocks of the keys that are held, and the time of reading them from disk; changes nothing.
    MOONCAF_RPC(prefix_view, look_atom, block_keys_t),
    // Pins the leading run of the keys for `owner`, reading so many blocks from SSD at most; answers when they are in.
    MOONCAF_RPC(pinned_slots, pin_atom, std::uint64_t, block_keys_t, std::uint32_t),
    // The same with all blocks on SSD and, brought to memory first, those that the device alone has: for decode, to which another node sends missing blocks.
    MOONCAF_RPC(pinned_slots, pin_atom, std::uint64_t, block_keys_t),
    // The same for a reader on another node, with region offsets and checksums. Reads from SSD for so many
    // nanoseconds at most, 0: as long as it takes.
    MOONCAF_RPC(remote_blocks, pin_remote_atom, std::uint64_t, block_keys_t, std::int64_t),
    // Reads blocks that are on SSD alone into reserved slots of the plan's owner, telling `prefix_load` as layers come
    // in; answers with the leading blocks that verified, published. Fails if others read some of them already.
    MOONCAF_RPC(remote_blocks, load_atom, fetch_plan, prefix_load_ptr),
    // Reserves `count` anonymous slots for `owner`, all or none; evicts as needed.
    MOONCAF_RPC(std::vector<slot_index>, reserve_atom, std::uint64_t, std::uint32_t),
    // Publishes reserved slots of `owner` under their keys.
    MOONCAF_RPC(void, commit_atom, std::uint64_t, std::vector<commit_item>),
    // Blocks that a pin missed were found after all: so many on another node, so many on the device alone.
    MOONCAF_RPC(void, found_atom, std::uint64_t, std::uint64_t),
    // The owner still works: its lease goes on.
    MOONCAF_RPC(void, renew_atom, std::vector<std::uint64_t>),
    // A peer may still write the owner's slots: release them only at `confirm`.
    MOONCAF_RPC(void, fence_atom, std::uint64_t),
    MOONCAF_RPC(void, confirm_atom, std::uint64_t),
    // Keeps leading parts of a prompt in memory for a tenant; answers with the blocks of each that it keeps.
    MOONCAF_RPC(kept_blocks, keep_atom, std::uint64_t, block_keys_t, std::vector<keep_mark>),
    // The prefixes that it keeps for a tenant; a name, or `every_prefix`, ends those, and they are the answer.
    MOONCAF_RPC(std::vector<kept_status>, keep_atom, std::uint64_t, block_key),
    // The owner is done: its reserved slots are free, its pins are gone. Unknown owners are ignored.
    MOONCAF_RPC(void, release_atom, std::uint64_t),
    MOONCAF_RPC(shard_status, status_atom),
    // Writes to SSD the blocks that are in memory alone, before a planned stop; answers with their number.
    MOONCAF_RPC(std::uint64_t, flush_atom),
    // Sees to it that the blocks do without so many bytes of the memory that they share with objects, as far as it can
    // now, and gives their pages back; answers how it stands. Asked again for what is missing.
    MOONCAF_RPC(boundary_state, withhold_atom, std::uint64_t),
    // Block events go to this conductor, too, from now on, beginning with a snapshot; sent again after a gap.
    MOONCAF_RPC(void, follow_atom, caf::actor),
    // INTERNAL: drops expired leases, sends block events.
    MOONCAF_RPC(void, tick_atom)>;

/// The MESSENGER owns the data plane of one process.
using messenger_actor = caf::typed_actor<
    // A peer can be reached from now on, or is gone.
    MOONCAF_RPC(void, peer_up_atom, node_info),
    MOONCAF_RPC(void, peer_down_atom, node_id),
    // Reads blocks of another node into local slots; answers with the leading ones that arrived and verified.
    MOONCAF_RPC(remote_blocks, fetch_atom, fetch_plan),
    // The same layer by layer, telling `prefix_load` as they land; answers with all blocks, verified, or with none.
    MOONCAF_RPC(remote_blocks, load_atom, fetch_plan, prefix_load_ptr),
    // Ends the fetch of this attempt now: it answers with the blocks that arrived.
    MOONCAF_RPC(void, stop_atom, attempt_id),
    // After the answer no byte can land here that the peer was let write when it had been fenced so many times
    // (data_plane::fences_of): a fence that came since will do. It stays out until it is greeted anew.
    MOONCAF_RPC(void, fence_atom, node_id, std::uint64_t),
    MOONCAF_RPC(transfer_report, status_atom),
    // INTERNAL: the read with this ticket ended.
    MOONCAF_RPC(void, read_atom, std::uint64_t, error),
    // INTERNAL: tries once more to shut a peer out.
    MOONCAF_RPC(void, tick_atom, node_id)>;

/// The DEVICE WRITER of a process: brings blocks to memory that only its device holds.
using device_writer_actor = caf::typed_actor<
    // INTERNAL: there may be something to write.
    MOONCAF_RPC(void, tick_atom),
    // Writes all that there is, before a planned stop; answers with how many blocks that were.
    MOONCAF_RPC(std::uint64_t, flush_atom)>;

/// The POOL KEEPER of a node that stores and does not compute.
using pool_keeper_actor = caf::typed_actor<
    // Copies these blocks here, if they are not here and can still be had. Orders beyond a bound are forgotten.
    MOONCAF_RPC(void, keep_atom, keep_order),
    // Blocks of this node can be had from now on, or no longer.
    MOONCAF_RPC(void, peer_up_atom, node_id),
    MOONCAF_RPC(void, peer_down_atom, node_id),
    // INTERNAL: renews the lease of the order at work.
    MOONCAF_RPC(void, tick_atom)>;

/// A PREFILL WORKER computes prompts and streams their KV out, layer by layer.
using prefill_worker_actor = caf::typed_actor<
    // A job; the decode worker of the same placement has it too.
    MOONCAF_RPC(void, job_atom, generate_job),
    // Decode's slots for a job's KV; may come before the job itself.
    MOONCAF_RPC(void, target_atom, kv_target),
    // Stop; answers once nothing of this attempt can be written to the decode side any more.
    MOONCAF_RPC(void, cancel_atom, attempt_id),
    // The attempts of a gateway here: ends all others of that gateway, answers with those that stand still here.
    MOONCAF_RPC(roll_answer, roll_atom, roll_call),
    // A node cannot be reached: requests of its gateway end, requests that decode there have failed.
    MOONCAF_RPC(void, peer_down_atom, node_id),
    // INTERNAL: the process leaves: gives back what is not done, and takes no more.
    MOONCAF_RPC(void, leave_atom),
    MOONCAF_RPC(worker_load, status_atom),
    // INTERNAL: more layers of an attempt's prefix are in.
    MOONCAF_RPC(void, layers_atom, attempt_id),
    // INTERNAL: the first stage of a pipeline group can take the next step.
    MOONCAF_RPC(void, free_atom),
    // INTERNAL: the time that the attempt may wait for its prefix has passed.
    MOONCAF_RPC(void, stop_atom, attempt_id),
    // INTERNAL: all slices of an attempt have left (true) or could not be delivered (false).
    MOONCAF_RPC(void, sent_atom, attempt_id, bool),
    // INTERNAL: forms the next step if the device is free.
    MOONCAF_RPC(void, tick_atom)>;

/// A DECODE WORKER runs the continuous batch.
using decode_worker_actor = caf::typed_actor<
    // A job: reserve room now, its KV will come from the prefill worker of the placement.
    MOONCAF_RPC(void, job_atom, generate_job),
    // The prompt is computed; may come before the job itself.
    MOONCAF_RPC(void, done_atom, prefill_done),
    // Stop and free; no token of the attempt is sent afterwards. The reason is for the log.
    MOONCAF_RPC(void, cancel_atom, attempt_id),
    // The attempts of a gateway here: ends all others of that gateway, answers with those that stand still here.
    MOONCAF_RPC(roll_answer, roll_atom, roll_call),
    // A node cannot be reached: requests of its gateway end, requests that prefill there have failed.
    MOONCAF_RPC(void, peer_down_atom, node_id),
    // INTERNAL: the process leaves: gives back what is not done, and takes no more.
    MOONCAF_RPC(void, leave_atom),
    MOONCAF_RPC(worker_load, status_atom),
    // INTERNAL: every expected slice of the attempt has landed and verified (true), or one was corrupt (false).
    MOONCAF_RPC(void, landed_atom, attempt_id, bool),
    // INTERNAL: forms the next step if the device is free; gives up attempts whose prompt never came.
    MOONCAF_RPC(void, tick_atom)>;

/// An ENGINE WORKER stands for an engine of another make: a prefill and a decode instance in one, whose jobs the engine
/// computes. Its first six messages are those of such workers, who are addressed as either.
using engine_worker_actor = caf::typed_actor<
    MOONCAF_RPC(void, job_atom, generate_job),
    MOONCAF_RPC(void, cancel_atom, attempt_id),
    MOONCAF_RPC(roll_answer, roll_atom, roll_call),
    MOONCAF_RPC(void, peer_down_atom, node_id),
    MOONCAF_RPC(void, leave_atom),
    // Block events go to this conductor, too, as a cache shard's do.
    MOONCAF_RPC(void, follow_atom, caf::actor),
    // How both instances stand: `workers` of the answer.
    MOONCAF_RPC(node_report, status_atom),
    // INTERNAL: a part of an attempt's answer; its end, and whether another engine may succeed.
    MOONCAF_RPC(void, tokens_atom, std::uint64_t, completion_piece_ptr),
    MOONCAF_RPC(void, failed_atom, std::uint64_t, error, bool),
    // INTERNAL: news of the engine's prefix cache.
    MOONCAF_RPC(void, blocks_atom, engine_news_ptr),
    // INTERNAL: the engine was looked at, and why it does not serve.
    MOONCAF_RPC(void, event_atom, error),
    // INTERNAL: so many requests are there.
    MOONCAF_RPC(void, load_atom, std::uint32_t),
    // INTERNAL: looks at the engine.
    MOONCAF_RPC(void, tick_atom)>;

/// A GATEWAY holds client requests from the first byte to the last token.
using gateway_actor = caf::typed_actor<
    MOONCAF_RPC(void, first_atom, first_token),
    MOONCAF_RPC(void, tokens_atom, token_batch),
    MOONCAF_RPC(void, failed_atom, attempt_failed),
    // A peer can be used from now on, or is gone with whatever ran there.
    MOONCAF_RPC(void, peer_up_atom, node_info),
    MOONCAF_RPC(void, peer_down_atom, node_id),
    // The conductor to ask, or none at present, and the term below which placements are void.
    MOONCAF_RPC(void, follow_atom, caf::actor, std::uint64_t),
    // How many requests are here.
    MOONCAF_RPC(std::uint64_t, status_atom),
    // INTERNAL: a parsed client request, from an HTTP thread; its client is gone.
    MOONCAF_RPC(void, submit_atom, client_request_ptr),
    MOONCAF_RPC(void, cancel_atom, client_request_ptr),
    // INTERNAL: a client of HTTP asks how the cluster stands, or for the prefixes that are kept for it.
    MOONCAF_RPC(void, cluster_atom, cluster_query_ptr),
    MOONCAF_RPC(void, keep_atom, kept_query_ptr),
    // INTERNAL: deadlines, and requests that wait for a place.
    MOONCAF_RPC(void, tick_atom)>;

/// The CONDUCTOR places requests. Soft state only.
using conductor_actor = caf::typed_actor<
    // A node joins; answers with the members that were there before. Refuses a different fingerprint.
    MOONCAF_RPC(std::vector<node_info>, join_atom, node_info),
    MOONCAF_RPC(placement_msg, schedule_atom, schedule_job),
    MOONCAF_RPC(void, event_atom, request_event),
    MOONCAF_RPC(void, blocks_atom, block_event_batch),
    // Which of a node's blocks, in their order, another one keeps, too; the question in pairs (copy_survey).
    MOONCAF_RPC(block_keys_t, keep_atom, node_id, block_keys_t),
    // How a node stands; answers with how it stands with the conductor, and with the members if it does not know them.
    MOONCAF_RPC(roster_msg, report_atom, node_report),
    // How the cluster stands, for people (runtime/api/cluster_view.hpp).
    MOONCAF_RPC(cluster_status, status_atom),
    // INTERNAL: this process obeys the claim of another conductor.
    MOONCAF_RPC(void, claim_atom, lead_claim),
    // INTERNAL: claims to lead, where there are other conductors.
    MOONCAF_RPC(void, claim_atom),
    // INTERNAL: expires silent nodes.
    MOONCAF_RPC(void, tick_atom)>;

/// A RANK computes a stage of a group, or a share of one, for a leader in another process.
using rank_actor = caf::typed_actor<
    // A leader wants its calls to be computed from now on; whoever was the leader before is shut out.
    MOONCAF_RPC(rank_welcome, hello_atom, rank_greeting),
    // All ranks of its stage have been greeted: with these it exchanges columns.
    MOONCAF_RPC(void, join_atom, rank_group)>;

/// The NODE stands for one process: it joins the cluster, and tells local actors which peers live.
using node_actor = caf::typed_actor<
    // Another node introduces itself over the direct link; answers with our own introduction.
    MOONCAF_RPC(node_info, hello_atom, node_info),
    // A conductor wants to be obeyed (runtime/request/leadership_core.hpp).
    MOONCAF_RPC(lead_vote, claim_atom, lead_claim),
    // The report of this process.
    MOONCAF_RPC(node_report, status_atom),
    // INTERNAL: the process was told to stop: its reports say so from now on.
    MOONCAF_RPC(void, drain_atom),
    // INTERNAL: others can reach us at this control port from now on: join.
    MOONCAF_RPC(void, listen_atom, std::uint16_t),
    // INTERNAL: reports load; looks for the conductor and for members that are not connected.
    MOONCAF_RPC(void, tick_atom)>;

// clang-format on

}  // namespace mooncaf
