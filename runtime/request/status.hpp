#pragma once
// How workers, shards, links and nodes say that they stand, and what the conductor makes of it. Each crosses
// a wire as its members, in this order (actors/cluster/wire.hpp); what people and scrapers see of it is in
// status_fields.hpp.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/device_kv_stats.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/instance_state.hpp"
#include "runtime/base/worker_role.hpp"

namespace mooncaf {

/// Load of one worker, sent to the conductor once per report interval.
struct worker_load {
  worker_id id;
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  std::uint64_t waiting_tokens = 0;
  std::uint64_t context_tokens = 0;  ///< decode: tokens of context in the running batch
  std::uint64_t steps = 0;           ///< decode: how many it made; 0: none, and what follows says nothing
  std::int64_t step_ns = 0;          ///< … duration of the latest
  std::uint32_t step_batch = 0;      ///< … and its sequences, which may be over by now
  std::uint64_t step_context_tokens = 0;
  std::int64_t busy_ns = 0;  ///< that its device computed, since its start
  std::string failure;       ///< of its device: it computes nothing any more; empty: it works
  std::string away;          ///< why it takes no work at present: its engine does not answer; empty: it does
  std::uint32_t others = 0;  ///< decode: requests of other clients of its engine (since version 14)
};

/// How much of the memory that blocks share with objects of the store they do without, and what they would
/// give up next; see storage/memory_boundary.hpp.
struct boundary_state {
  std::uint64_t withheld_bytes = 0, bytes = 0, idle_bytes = 0, taken_bytes = 0;
  std::int64_t coldest_ns = -1;  ///< -1: nothing may go
};

/// State of one shard, for the live page, the metrics and the integrity check.
struct shard_status {
  std::uint64_t slots_total = 0;
  std::uint64_t slots_free = 0;
  std::uint64_t slots_reserved = 0;   ///< reserved and not yet committed
  std::uint64_t slots_committed = 0;  ///< of which `slots_pinned` cannot be evicted now
  std::uint64_t slots_pinned = 0;
  std::uint64_t slots_private = 0;
  std::uint64_t slots_quarantined = 0;
  std::uint64_t slots_withheld = 0;  ///< not in `slots_total`: objects of the store have their memory
  std::uint64_t ssd_blocks = 0;
  std::uint64_t ssd_bytes = 0;
  std::uint64_t ssd_capacity_bytes = 0;    ///< 0: there is no SSD
  std::uint64_t ssd_written_bytes = 0;     ///< since the start
  std::uint64_t ssd_copies = 0;            ///< blocks on SSD that another node is known to keep
  std::uint64_t ssd_evictions = 0;         ///< blocks that left a full SSD; of these
  std::uint64_t ssd_copies_dropped = 0;    ///<   another node keeps
  std::uint64_t ssd_last_copies_kept = 0;  ///<  … and a colder one, which no other node has, stayed instead
  std::uint64_t owners = 0;
  std::uint64_t kept_prefixes = 0;  ///< that clients want kept
  std::uint64_t slots_kept = 0;     ///< … their blocks, of `slots_pinned`
  std::uint64_t evictions = 0;
  std::uint64_t evictions_lost = 0;  ///< of blocks that were nowhere else on this node
  // Blocks that were asked for, by where they were found; together with the misses all that were.
  std::uint64_t hits_device = 0;  ///< in a device's memory alone
  std::uint64_t hits_dram = 0;
  std::uint64_t hits_ssd = 0;
  std::uint64_t hits_remote = 0;           ///< fetched from another node
  std::uint64_t misses = 0;                ///< nowhere, or not worth fetching
  std::uint64_t ssd_read_bytes = 0;        ///< back into memory, since the start
  std::uint64_t ssd_read_bytes_per_s = 0;  ///< as measured at the start and since; 0: there is no SSD
  std::int64_t ssd_latency_ns = 0;
  bool consistent = true;  ///< the counts add up
};

/// Bytes over one path to one peer.
struct path_status {
  node_id peer;
  std::string path;
  std::uint64_t bytes = 0;
  std::uint64_t transfers = 0;
  std::uint64_t retries = 0;
  std::uint64_t checksum_failures = 0;
  std::uint64_t control_messages = 0;
  std::uint64_t slices = 0;
  std::uint64_t failures = 0;
  std::int64_t latency_ns = 0;  ///< mean of completed transfers
  // The learned cost of a transfer over it: learned_latency_ns + bytes / learned_bytes_per_s.
  std::uint64_t learned_bytes_per_s = 0;  ///< 0: nothing was moved yet
  std::int64_t learned_latency_ns = 0;
  bool preferred = false;  ///< the next transfer to this peer would try it first
};

/// One RDMA rail (NIC port) of a node, to all peers together; counts what the node initiated.
struct rail_status {
  std::string name;
  std::string address;
  bool up = false;
  std::uint64_t bytes = 0;
  std::uint64_t slices = 0;
  std::uint64_t retries = 0;    ///< slices moved here after another rail had failed
  std::uint64_t failures = 0;   ///< broken queue pairs
  std::int64_t latency_ns = 0;  ///< mean of slices
  std::string last_error;
};

/// Bytes that moved, by path and rail.
struct transfer_report {
  std::vector<path_status> paths;
  std::vector<rail_status> rails;
  std::vector<node_id> fenced;  ///< peers that were shut out and have not been greeted anew since
};

/// A stage of a node's pipeline group, computed by the node itself or by another process.
struct rank_status {
  std::string name;    ///< of its process
  std::string at;      ///< HOST:PORT of that process's control port; empty: the node's own
  std::string layers;  ///< "1 to 10", and which rank of a tensor group has a share of them
  std::string device;
  std::string metrics;  ///< HOST:PORT where it is scraped; empty: nowhere, or with the node
};

/// The report of one node.
struct node_report {
  node_id node;
  std::vector<worker_load> workers;
  bool has_shard = false;
  shard_status shard;
  device_kv_stats device;
  transfer_report moved;
  std::uint64_t requests_live = 0;   ///< requests that any actor of this node still holds
  std::uint64_t roster = 0;          ///< version of the list of members that it knows
  std::vector<node_id> unreachable;  ///< members that it is not connected with
  bool draining = false;             ///< it was told to stop: it finishes its requests and takes no more
  bool announced = false;            ///< … and the conductor has said that it places nothing there
  bool last = false;                 ///< … and that there is no other worker of some role of it
  std::string metrics;               ///< HOST:PORT where it is scraped; empty: nowhere
  std::vector<rank_status> ranks;    ///< all stages of its group, in order; empty: it is none
  std::uint64_t term = 0;            ///< of the leader that it obeys
  bool leads = false;                ///< its own conductor is that leader
  std::string release;               ///< of the program; empty: its messages do not tell
  std::uint32_t speaks = 0;  ///< version of the messages that it sends: the newest that all its peers read
};

/// A prefix that a node keeps for a tenant.
struct kept_status {
  block_key name;  ///< of its last block
  std::uint32_t blocks = 0;
  std::int64_t left_ns = 0;  ///< until it is kept no more
};

/// Of prefixes that are to be dropped: all of them.
inline constexpr block_key every_prefix{~std::uint64_t{0}, ~std::uint64_t{0}};

// ---- the cluster, as its conductor sees it
// ----------------------------------------------------------------------------------------------------------

/// Requests and tokens since the conductor started.
struct request_counts {
  std::uint64_t placed = 0;
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t rejected_queue_full = 0;
  std::uint64_t rejected_at_decode = 0;
  std::uint64_t wasted_prefill_tokens = 0;  ///< of requests that decode refused
  std::uint64_t rejected_ttft = 0;
  std::uint64_t rejected_tbt = 0;
  std::uint64_t rejected_memory = 0;
  std::uint64_t rejected_unavailable = 0;
  std::uint64_t fetches = 0;     ///< placements whose prefix comes from another node
  std::uint64_t hot_copies = 0;  ///< chains of blocks that were copied since many wanted them
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t role_changes = 0;      ///< nodes that took up another role
  std::uint64_t charged_requests = 0;  ///< now
  /// Nodes that there should be now (`elastic_nodes`); 0: their number is not scaled.
  std::uint64_t wanted_prefill = 0, wanted_decode = 0, wanted_nodes = 0;
};

/// The index of blocks and their holders.
struct index_status {
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;    ///< of the index itself
  std::uint64_t resyncs = 0;  ///< gaps in the announcements of shards
};

/// Requests that wait at the conductor for a place.
struct queue_status {
  std::uint64_t waiting = 0;
  std::uint64_t standing_by = 0;  ///< of them, not in line: they would be late, or make others late
  std::uint64_t shed = 0;         ///< refused since the start, having waited twice their SLO
  std::uint64_t limit = 0;
};

/// A rule of admission, or something else that could be different, and how the last minutes went with it when they
/// were played again.
struct played_share {
  std::string with;
  std::uint64_t share_bits = 0;  ///< bits of a double: of the requests, inside both SLOs
};

/// The rule in force (`admission_rule`), and the ones that admission `adaptive` compares it with.
struct admission_status {
  std::string rule;
  std::uint64_t changes = 0;
  std::vector<played_share> played;
  std::vector<played_share> what_ifs;  ///< under the rule in force (`what_if`)
};

/// Which conductor places requests (leadership_core.hpp).
struct lead_status {
  std::uint64_t term = 0;
  std::string leader;                 ///< a member's name; empty: none is known
  std::vector<std::string> standbys;  ///< members with a conductor that does not lead
  std::uint32_t votes = 0;            ///< for the conductor that was asked; of
  std::uint32_t voters = 0;
  std::string problem;  ///< why the conductor that was asked does not place; empty: it does
};

/// A worker in the conductor's eyes; its own report is in `node_report::workers`.
struct worker_standing {
  worker_id id;
  worker_role role = worker_role::prefill;
  instance_state state = instance_state::live;
  /// Bits of a double: the time that a new request would wait here, in units of the SLO of its role.
  std::uint64_t load_bits = 0;
};

/// A member and its latest report.
struct member_status {
  node_id id;
  std::string name;
  std::string roles;
  std::string host;
  std::int64_t silent_ns = 0;  ///< since it reported
  std::vector<worker_standing> workers;
  std::uint64_t indexed_blocks = 0;
  node_report latest;
};

struct broken_link {
  node_id one;
  node_id other;
};

/// A recent placement, and how it went.
struct recent_request {
  request_id id;
  worker_id prefill;
  worker_id decode;
  node_id source;  ///< of a prefix that was fetched; none: 0
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::int64_t predicted_ttft_ns = 0;
  std::int64_t ttft_ns = 0;
  std::int64_t compute_ns = 0;  ///< of the prefill
};

/// The whole cluster, for people and for /health and /integrity.
struct cluster_status {
  std::string model;
  std::int64_t uptime_ns = 0;  ///< of the conductor
  index_status index;
  request_counts counters;
  queue_status queue;
  admission_status admission;
  lead_status lead;
  std::vector<member_status> members;
  std::vector<broken_link> broken_links;  ///< between members that cannot reach each other
  std::vector<recent_request> recent;     ///< newest first
};

}  // namespace mooncaf
