#pragma once
// The value of every option when nothing is given, by section, with unit and reason.

#include <chrono>
#include <cstdint>

#include "config/options.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/wire_version.hpp"
#include "runtime/sched/scheduler_defaults.hpp"
#include "storage/objects/wire/store_version.hpp"

namespace mooncaf::defaults {

using namespace std::chrono_literals;

namespace cluster {
inline constexpr auto mode = serving_mode::disaggregated;  // the purpose of mooncaf
inline constexpr const char* listen = "127.0.0.1:7400";    // loopback: other hosts get in only if configured
inline constexpr auto ranks_wait = 60s;                    // a slice of some 10 GB from a disk
inline constexpr auto leader_timeout = 600ms;  // requests then wait less than a second for a place
inline constexpr auto drain_timeout = 30s;     // most answers; service managers wait longer
inline constexpr std::uint32_t wire_version = wire::newest;  // all that this release says
}  // namespace cluster

namespace model {
inline constexpr const char* chat_template = "auto";
inline constexpr const char* generation_config = "auto";  // as the model's makers want it, where they say so
inline constexpr auto timings_age = 24h;                  // a machine seldom becomes another one within a day
inline constexpr auto kv_dtype = mooncaf::kv_dtype::f16;  // half the bytes, and no measurable loss
inline constexpr const char* device = "auto";
inline constexpr double time_scale = 1;              // a modelled device takes as long as a real one
inline constexpr std::uint64_t device_kv = 1 * GiB;  // bytes; as much as the host keeps by default
inline constexpr auto device_write_policy =
    write_policy::write_through;  // every node finds every block, and a device that fails loses none
inline constexpr auto l2_layout = page_order::page_first_direct;  // a layer of a page is one copy
inline constexpr std::uint64_t link_bandwidth = 24 * GiB;         // bytes per second; PCIe 4.0 with 16 lanes
inline constexpr auto link_latency = 10us;                        // of starting a copy on a graphics card
inline constexpr std::uint32_t copy_engines = 2;    // one each way, as the cards of that link have
inline constexpr std::uint32_t context_length = 0;  // tokens; 0: as the model was trained
inline constexpr std::uint32_t threads = 0;         // 0: every core; matrix products scale with them
inline constexpr std::uint32_t tensor = 1;          // ranks; as many threads of one device need no exchange
inline constexpr std::uint32_t expert =
    1;  // ranks; of a layer with few experts some would have nothing to do
inline constexpr std::uint32_t pipeline = 1;       // stages; a model that one device can hold needs no more
inline constexpr std::uint32_t block_tokens = 64;  // tokens; 1.4 MiB of a 135M model: a link's full speed
}  // namespace model

namespace prefill {
inline constexpr std::uint32_t instances = 2;  // so that one process already shows placement by cache
inline constexpr std::uint32_t chunk_tokens =
    512;  // tokens; from here on arithmetic, not weights, is the limit
inline constexpr std::uint32_t max_batch_tokens = 2048;  // tokens; several short prompts fill a step up
inline constexpr std::uint32_t max_queue = 1024;  // requests; beyond it a wait would pass any sane TTFT
inline constexpr auto kv_transfer = kv_transfer_choice::layerwise;  // hides the transfer behind computing
inline constexpr prefetch_options prefetch{};  // with their reasons in runtime/sched/prefetch_policy.hpp
}  // namespace prefill

namespace decode {
inline constexpr std::uint32_t instances = 1;
inline constexpr std::uint32_t max_batch = 32;  // requests; weights are read once a step, whatever the batch
inline constexpr std::uint32_t max_queue = 1024;  // requests; as for prefill
}  // namespace decode

namespace cache {
inline constexpr auto eviction = eviction_policy::lru;  // best of the three on the published trace
inline constexpr auto write_policy =
    mooncaf::write_policy::write_back;  // writes only blocks that memory cannot keep
inline constexpr std::uint64_t dram_size =
    1 * GiB;  // bytes; ~46,000 tokens of a 135M model, ~8,000 of an 8B one
inline constexpr std::uint64_t ssd_size = 16 * GiB;  // bytes; only with ssd-path
inline constexpr std::uint32_t selective_hits =
    2;                                          // hits; most blocks are never read again, so the second tells
inline constexpr bool ssd_pack = true;          // looks first whether it pays
inline constexpr bool direct_io = true;         // the page cache would hold every block a second time
inline constexpr auto flush_limit = 10s;        // 10 GB; service managers wait longer before they kill
inline constexpr auto lease_ttl = 30s;          // a dead reader's pin is gone within a TTFT SLO
inline constexpr double keep_share = 0.25;      // the rest serves who asks for nothing
inline constexpr double keep_tenant_share = 1;  // most clusters serve one
}  // namespace cache

namespace store {
inline constexpr std::uint16_t port = 7460;          // where `mooncaf store` and the Python package look
inline constexpr std::uint64_t dram_size = 1 * GiB;  // bytes; taken only where the conductor has a directory
inline constexpr std::uint64_t dram_shared = 0;  // bytes; memory that both may use is for the owner to grant
inline constexpr std::uint64_t ssd_size = 16 * GiB;  // bytes; only with store-ssd-path
inline constexpr auto write_policy =
    mooncaf::write_policy::write_back;                  // writes only objects that memory cannot keep
inline constexpr std::uint32_t selective_hits = 2;      // uses; an object used once is seldom used again
inline constexpr std::uint32_t promote_hits = 2;        // uses; the same
inline constexpr auto lease = 5s;                       // a reader on a slow link has its 16 MiB by then
inline constexpr auto recovery = 1s;                    // a holder looks for a directory four times a second
inline constexpr auto eviction = eviction_policy::lru;  // users of other stores expect it
inline constexpr double high_watermark = 0.95, low_watermark = 0.90;  // a put seldom has to wait for room
inline constexpr double hot_reads = 0;  // reads a second; 0: a copy that was not asked for costs memory
inline constexpr std::uint32_t hot_replicas = 2;  // one host more halves the load of the one it had
inline constexpr std::uint32_t protocol = store_wire::newest;  // all that this release says
inline constexpr std::uint32_t shards = 1;  // one thread answers more than most hosts ask; objects stay whole
}  // namespace store

namespace scheduler {                                    // the others: runtime/sched/scheduler_defaults.hpp
inline constexpr std::uint64_t journal_limit = 1 * GiB;  // some million requests
}  // namespace scheduler

namespace transport {
inline constexpr bool tcp = true;
inline constexpr bool shm = true;                          // several times faster than loopback TCP
inline constexpr bool checksums = true;                    // 26 GB/s: next to nothing beside the copy itself
inline constexpr const char* data_listen = "127.0.0.1:0";  // port 0: peers learn it when they join
inline constexpr std::uint32_t tcp_streams = 2;            // per peer; loopback peaks at 2 (see LIMITS)
// Bytes. Data that stays in the cache between the copies in and out moves at 5.6 instead of 3 GB/s.
inline constexpr std::uint64_t tcp_send_buffer = 256 * KiB;
inline constexpr std::uint64_t slice_size = 512 * KiB;  // bytes; large enough to hide a system call
}  // namespace transport

namespace rdma {
inline constexpr bool enabled = true;  // where there is a device it is the fastest path
inline constexpr std::uint64_t slice_size =
    256 * KiB;                                     // bytes; hides the cost of an order and of its checksum
inline constexpr std::uint32_t queue_depth = 128;  // orders; 32 MiB of slices fill any NIC
inline constexpr std::uint32_t signal_every = 16;  // a completion costs about as much as an order
inline constexpr std::uint32_t max_links = 64;     // NICs cache the state of few hundred queue pairs
inline constexpr auto poll = 0us;                  // sleep for events; a poll of 50us costs a core
inline constexpr auto ack_timeout = 67ms;          // 4.096 us * 2^14, as most applications set it
inline constexpr std::uint32_t retry_count = 7;    // the most there is: half a second until a rail has failed
inline constexpr auto rail_retry = 200ms;          // doubled with every failure in a row, up to 10s
inline constexpr std::uint32_t traffic_class = 0;
inline constexpr std::uint32_t service_level = 0;
}  // namespace rdma

namespace gateway {
inline constexpr bool page = true;
inline constexpr bool parse_special =
    true;  // a client that renders a template itself writes its markers as text
inline constexpr const char* allowed_origins = "local";  // pages of other places must be let in by name
inline constexpr const char* allowed_hosts = "local";    // a name that others own may point here, too
inline constexpr const char* http = "127.0.0.1:8000";    // where OpenAI clients of local servers look
inline constexpr std::uint32_t max_connections = 4096;   // twice the 2,000 streams that must fit
inline constexpr std::uint32_t max_requests = 2048;      // running and waiting; then 429
inline constexpr std::uint64_t max_body_size =
    16 * MiB;                                  // bytes; a 128k-token prompt as JSON needs about 1 MiB
inline constexpr auto request_timeout = 600s;  // a long answer of a slow CPU model
}  // namespace gateway

namespace metrics {
inline constexpr bool enabled = true;
inline constexpr auto log_level = mooncaf::log_level::info;
inline constexpr auto log_format = log_format_choice::text;
inline constexpr double otlp_share = 1;  // whoever names a collector wants to see traces
inline constexpr const char* listen = "127.0.0.1:9400";
}  // namespace metrics

}  // namespace mooncaf::defaults
