#include "config/defaults.hpp"
#include "config/value.hpp"

namespace mooncaf {

/// Not beside the fields: in defaults.hpp each value stands with its reason, and other programs read it
/// there.
options default_options() {
  options o;
  o.cluster.listen = *config::parse_endpoint(defaults::cluster::listen);
  o.cluster.mode = defaults::cluster::mode;
  o.cluster.ranks_wait = defaults::cluster::ranks_wait;
  o.cluster.leader_timeout = defaults::cluster::leader_timeout;
  o.cluster.drain_timeout = defaults::cluster::drain_timeout;
  o.cluster.wire_version = defaults::cluster::wire_version;
  o.model.chat_template = defaults::model::chat_template;
  o.model.generation_config = defaults::model::generation_config;
  o.model.context_length = defaults::model::context_length;
  o.model.threads = defaults::model::threads;
  o.model.timings_age = defaults::model::timings_age;
  o.model.pipeline = defaults::model::pipeline;
  o.model.tensor = defaults::model::tensor;
  o.model.expert = defaults::model::expert;
  o.model.kv_dtype = defaults::model::kv_dtype;
  o.model.block_tokens = defaults::model::block_tokens;
  o.model.device = defaults::model::device;
  o.model.time_scale = defaults::model::time_scale;
  o.model.device_kv_bytes = defaults::model::device_kv;
  o.model.device_write_policy = defaults::model::device_write_policy;
  o.model.l2_layout = defaults::model::l2_layout;
  o.model.link_bytes_per_s = defaults::model::link_bandwidth;
  o.model.link_latency = defaults::model::link_latency;
  o.model.copy_engines = defaults::model::copy_engines;
  o.prefill = {defaults::prefill::instances,
               defaults::prefill::chunk_tokens,
               defaults::prefill::max_batch_tokens,
               defaults::prefill::max_queue,
               defaults::prefill::kv_transfer,
               defaults::prefill::prefetch.mode,
               defaults::prefill::prefetch.base,
               defaults::prefill::prefetch.per_1024_tokens,
               defaults::prefill::prefetch.threshold_tokens};
  o.decode = {defaults::decode::instances, defaults::decode::max_batch, defaults::decode::max_queue};
  o.cache.dram_bytes = defaults::cache::dram_size;
  o.cache.eviction = defaults::cache::eviction;
  o.cache.ssd_bytes = defaults::cache::ssd_size;
  o.cache.write_policy = defaults::cache::write_policy;
  o.cache.selective_hits = defaults::cache::selective_hits;
  o.cache.direct_io = defaults::cache::direct_io;
  o.cache.ssd_pack = defaults::cache::ssd_pack;
  o.cache.flush_limit = defaults::cache::flush_limit;
  o.cache.lease_ttl = defaults::cache::lease_ttl;
  o.cache.keep_share = defaults::cache::keep_share;
  o.cache.keep_tenant_share = defaults::cache::keep_tenant_share;
  o.store.dram_bytes = defaults::store::dram_size;
  o.store.shared_bytes = defaults::store::dram_shared;
  o.store.ssd_bytes = defaults::store::ssd_size;
  o.store.write_policy = defaults::store::write_policy;
  o.store.selective_hits = defaults::store::selective_hits;
  o.store.promote_hits = defaults::store::promote_hits;
  o.store.lease = defaults::store::lease;
  o.store.recovery = defaults::store::recovery;
  o.store.eviction = defaults::store::eviction;
  o.store.high_watermark = defaults::store::high_watermark;
  o.store.low_watermark = defaults::store::low_watermark;
  o.store.hot_reads_per_s = defaults::store::hot_reads;
  o.store.hot_replicas = defaults::store::hot_replicas;
  o.store.shards = defaults::store::shards;
  o.store.protocol = defaults::store::protocol;
  o.scheduler = {defaults::scheduler::policy,
                 defaults::scheduler::admission,
                 defaults::scheduler::max_queued,
                 defaults::scheduler::ttft_slo,
                 defaults::scheduler::tbt_slo,
                 defaults::scheduler::balancing_threshold,
                 defaults::scheduler::predicted_decode,
                 defaults::scheduler::seed,
                 {},
                 defaults::scheduler::journal_limit,
                 defaults::scheduler::hot_copy_share,
                 false,
                 defaults::scheduler::elastic_hold,
                 0,
                 {},
                 {},
                 {},
                 defaults::scheduler::target_load,
                 defaults::scheduler::down_after,
                 defaults::scheduler::scale_every,
                 {}};
  o.transport.data_listen = *config::parse_endpoint(defaults::transport::data_listen);
  o.transport.tcp = defaults::transport::tcp;
  o.transport.shm = defaults::transport::shm;
  o.transport.tcp_streams = defaults::transport::tcp_streams;
  o.transport.tcp_send_buffer = defaults::transport::tcp_send_buffer;
  o.transport.slice_bytes = defaults::transport::slice_size;
  o.transport.checksums = defaults::transport::checksums;
  o.rdma = {.enabled = defaults::rdma::enabled,
            .slice_bytes = defaults::rdma::slice_size,
            .queue_depth = defaults::rdma::queue_depth,
            .signal_every = defaults::rdma::signal_every,
            .max_links = defaults::rdma::max_links,
            .poll = defaults::rdma::poll,
            .ack_timeout = defaults::rdma::ack_timeout,
            .retry_count = defaults::rdma::retry_count,
            .rail_retry = defaults::rdma::rail_retry,
            .traffic_class = defaults::rdma::traffic_class,
            .service_level = defaults::rdma::service_level};
  o.gateway.http = *config::parse_endpoint(defaults::gateway::http);
  o.gateway.max_connections = defaults::gateway::max_connections;
  o.gateway.max_requests = defaults::gateway::max_requests;
  o.gateway.max_body_bytes = defaults::gateway::max_body_size;
  o.gateway.request_timeout = defaults::gateway::request_timeout;
  o.gateway.page = defaults::gateway::page;
  o.gateway.parse_special = defaults::gateway::parse_special;
  o.gateway.allowed_origins = defaults::gateway::allowed_origins;
  o.gateway.allowed_hosts = defaults::gateway::allowed_hosts;
  o.metrics.enabled = defaults::metrics::enabled;
  o.metrics.listen = *config::parse_endpoint(defaults::metrics::listen);
  o.metrics.log_level = defaults::metrics::log_level;
  o.metrics.log_format = defaults::metrics::log_format;
  o.metrics.otlp_share = defaults::metrics::otlp_share;
  return o;
}

}  // namespace mooncaf
