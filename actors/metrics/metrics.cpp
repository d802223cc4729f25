#include "actors/metrics/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace mooncaf {

namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using buckets = prometheus::Histogram::BucketBoundaries;

const buckets ttft_buckets{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,
                           .75,  1,    2.5, 5,   7.5, 10,  20,  40, 80};
const buckets gap_buckets{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5};
const buckets place_buckets{.0001, .0002, .0003, .0005, .00075, .001, .0015, .002, .003, .005, .01,
                            .02,   .05,   .1,    .25,   .5,     1,    2.5,   5,    10,   30,   60};
const buckets whole_buckets{.05, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240};

/// A counter family whose totals somebody else keeps.
class foreign_totals {
 public:
  explicit foreign_totals(prometheus::Family<prometheus::Counter>& family) : family_(family) {}

  /// A total that fell (a peer left, and its share with it) counts nothing, and growth counts from there.
  void set(const prometheus::Labels& labels, double total) {
    const std::lock_guard lock{mutex_};
    auto& last = last_[labels];
    family_.Add(labels).Increment(std::max(0.0, total - last));
    last = total;
  }

 private:
  prometheus::Family<prometheus::Counter>& family_;
  std::mutex mutex_;
  std::map<prometheus::Labels, double> last_;
};

}  // namespace

struct metrics::families {
  prometheus::Registry registry;
  prometheus::Labels model;

  prometheus::Histogram& ttft;
  prometheus::Histogram& gap;
  prometheus::Histogram& whole;
  prometheus::Histogram& placement;
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& generation_tokens;
  prometheus::Counter& prefix_queries;
  prometheus::Counter& prefix_hits;
  prometheus::Gauge& running;
  prometheus::Gauge& waiting;
  prometheus::Gauge& cache_usage;
  prometheus::Family<prometheus::Counter>& requests;
  prometheus::Counter& wasted;
  prometheus::Gauge& queued;
  prometheus::Family<prometheus::Gauge>& blocks;
  prometheus::Family<prometheus::Gauge>& ssd;
  foreign_totals hits;
  foreign_totals transferred;
  prometheus::Family<prometheus::Counter>& device_failures;
  prometheus::Family<prometheus::Gauge>& device_blocks;
  foreign_totals device_tokens;
  foreign_totals device_bytes;
  prometheus::Family<prometheus::Gauge>& link_rate;
  prometheus::Family<prometheus::Gauge>& link_latency;
  prometheus::Family<prometheus::Gauge>& ssd_read;
  foreign_totals rails;
  prometheus::Family<prometheus::Gauge>& rail_up;
  prometheus::Family<prometheus::Gauge>& rail_latency;

  explicit families(const std::string& name)
      : model{{"model_name", name}},
        ttft(BuildHistogram()
                 .Name("vllm:time_to_first_token_seconds")
                 .Help("Arrival to first token.")
                 .Register(registry)
                 .Add(model, ttft_buckets)),
        gap(BuildHistogram()
                .Name("vllm:inter_token_latency_seconds")
                .Help("Gap between neighbouring tokens.")
                .Register(registry)
                .Add(model, gap_buckets)),
        whole(BuildHistogram()
                  .Name("vllm:e2e_request_latency_seconds")
                  .Help("Arrival to last token.")
                  .Register(registry)
                  .Add(model, whole_buckets)),
        placement(BuildHistogram()
                      .Name("mooncaf_placement_seconds")
                      .Help("Asking the conductor for a place to its answer, waiting for one included.")
                      .Register(registry)
                      .Add(model, place_buckets)),
        prompt_tokens(BuildCounter()
                          .Name("vllm:prompt_tokens_total")
                          .Help("Prompt tokens, reused ones included.")
                          .Register(registry)
                          .Add(model)),
        generation_tokens(BuildCounter()
                              .Name("vllm:generation_tokens_total")
                              .Help("Tokens generated.")
                              .Register(registry)
                              .Add(model)),
        prefix_queries(BuildCounter()
                           .Name("vllm:prefix_cache_queries_total")
                           .Help("Prompt tokens looked up in the cache.")
                           .Register(registry)
                           .Add(model)),
        prefix_hits(BuildCounter()
                        .Name("vllm:prefix_cache_hits_total")
                        .Help("Prompt tokens found in the cache.")
                        .Register(registry)
                        .Add(model)),
        running(BuildGauge()
                    .Name("vllm:num_requests_running")
                    .Help("Requests in a batch.")
                    .Register(registry)
                    .Add(model)),
        waiting(BuildGauge()
                    .Name("vllm:num_requests_waiting")
                    .Help("Requests that wait.")
                    .Register(registry)
                    .Add(model)),
        cache_usage(BuildGauge()
                        .Name("vllm:kv_cache_usage_perc")
                        .Help("Share of KV slots that cannot be had, even by eviction; 0 to 1.")
                        .Register(registry)
                        .Add(model)),
        requests(
            BuildCounter().Name("mooncaf_requests_total").Help("Requests by outcome.").Register(registry)),
        wasted(BuildCounter()
                   .Name("mooncaf_wasted_prefill_tokens_total")
                   .Help("Prompt tokens computed for requests that decode refused.")
                   .Register(registry)
                   .Add(model)),
        queued(BuildGauge()
                   .Name("mooncaf_requests_queued")
                   .Help("Requests of this gateway that wait for a place.")
                   .Register(registry)
                   .Add(model)),
        blocks(BuildGauge()
                   .Name("mooncaf_kv_blocks")
                   .Help("KV blocks of this process by state.")
                   .Register(registry)),
        ssd(BuildGauge()
                .Name("mooncaf_ssd")
                .Help("Health of the SSD tier: repaired, absent, refuses_writes, write_failures.")
                .Register(registry)),
        hits(BuildCounter()
                 .Name("mooncaf_kv_hit_blocks_total")
                 .Help("KV blocks reused, by tier: device (alone), dram, ssd, remote.")
                 .Register(registry)),
        transferred(BuildCounter()
                        .Name("mooncaf_transfer_bytes_total")
                        .Help("KV bytes moved, by path.")
                        .Register(registry)),
        device_failures(BuildCounter()
                            .Name("mooncaf_device_failures_total")
                            .Help("Workers that ended since their device failed, by role: prefill, decode.")
                            .Register(registry)),
        device_blocks(BuildGauge()
                          .Name("mooncaf_device_kv_blocks")
                          .Help("KV blocks in the device's own memory by state: free, used.")
                          .Register(registry)),
        device_tokens(
            BuildCounter()
                .Name("mooncaf_device_kv_tokens_total")
                .Help("Context that passes read, by where it was: device, or loaded from host memory.")
                .Register(registry)),
        device_bytes(BuildCounter()
                         .Name("mooncaf_device_kv_bytes_total")
                         .Help("KV bytes over the device's link: loaded, stored; sent: read there by NICs, "
                               "for other nodes.")
                         .Register(registry)),
        link_rate(BuildGauge()
                      .Name("mooncaf_link_bytes_per_second")
                      .Help("Rate of transfers with a peer, learned from them.")
                      .Register(registry)),
        link_latency(BuildGauge()
                         .Name("mooncaf_link_latency_seconds")
                         .Help("What a transfer with a peer takes whatever its size, learned.")
                         .Register(registry)),
        ssd_read(BuildGauge()
                     .Name("mooncaf_ssd_read_bytes_per_second")
                     .Help("Rate of reads of the SSD tier, measured at the start and refined since.")
                     .Register(registry)),
        rails(BuildCounter()
                  .Name("mooncaf_rdma_rail_total")
                  .Help("Bytes, slices, retries and failures of an RDMA rail.")
                  .Register(registry)),
        rail_up(BuildGauge().Name("mooncaf_rdma_rail_up").Help("1: the port is active.").Register(registry)),
        rail_latency(BuildGauge()
                         .Name("mooncaf_rdma_rail_latency_seconds")
                         .Help("Mean time of a slice, posted to completed.")
                         .Register(registry)) {
    // A rate needs a zero to start from.
    for (const auto* outcome : {"finished", "failed", "cancelled", "rejected"})
      requests.Add(with("outcome", outcome));
    for (const auto* role : {"prefill", "decode"}) device_failures.Add(with("role", role));
  }

  prometheus::Labels with(const std::string& key, const std::string& value) const {
    auto labels = model;
    labels.emplace(key, value);
    return labels;
  }
};

metrics::metrics(const std::string& model) : f_(std::make_unique<families>(model)) {}
metrics::~metrics() = default;

void metrics::first_token(duration ttft, std::uint32_t prompt_tokens, std::uint32_t cached_tokens) {
  f_->ttft.Observe(to_seconds(ttft));
  f_->prompt_tokens.Increment(prompt_tokens);
  f_->prefix_queries.Increment(prompt_tokens);
  f_->prefix_hits.Increment(cached_tokens);
}

void metrics::placed(duration elapsed) { f_->placement.Observe(to_seconds(elapsed)); }
void metrics::token_gap(duration gap) { f_->gap.Observe(to_seconds(gap)); }
void metrics::tokens_generated(std::uint32_t count) { f_->generation_tokens.Increment(count); }

void metrics::request_over(const std::string& outcome, duration elapsed) {
  f_->requests.Add(f_->with("outcome", outcome)).Increment();
  if (outcome == "finished") f_->whole.Observe(to_seconds(elapsed));
}

void metrics::prefill_wasted(std::uint32_t tokens) { f_->wasted.Increment(tokens); }
void metrics::set_queued(double requests) { f_->queued.Set(requests); }

void metrics::set_running(double requests) { f_->running.Set(requests); }
void metrics::set_waiting(double requests) { f_->waiting.Set(requests); }
void metrics::set_cache_usage(double share) { f_->cache_usage.Set(share); }
void metrics::set_blocks(const std::string& state, double count) {
  f_->blocks.Add(f_->with("state", state)).Set(count);
}
void metrics::set_hits(const std::string& tier, double blocks) {
  f_->hits.set(f_->with("tier", tier), blocks);
}
void metrics::set_transferred(const std::string& path, double bytes) {
  f_->transferred.set(f_->with("path", path), bytes);
}

void metrics::device_failed(const std::string& role) {
  f_->device_failures.Add(f_->with("role", role)).Increment();
}

void metrics::set_device_kv(const device_kv_stats& s) {
  f_->device_blocks.Add(f_->with("state", "free")).Set(static_cast<double>(s.blocks - s.blocks_used));
  f_->device_blocks.Add(f_->with("state", "used")).Set(static_cast<double>(s.blocks_used));
  f_->device_tokens.set(f_->with("from", "device"), static_cast<double>(s.hit_tokens));
  f_->device_tokens.set(f_->with("from", "host"), static_cast<double>(s.loaded_tokens));
  f_->device_bytes.set(f_->with("way", "loaded"), static_cast<double>(s.loaded_bytes));
  f_->device_bytes.set(f_->with("way", "stored"), static_cast<double>(s.stored_bytes));
  f_->device_bytes.set(f_->with("way", "sent"), static_cast<double>(s.sent_bytes));
}

void metrics::set_ssd(const std::string& what, double value) {
  f_->ssd.Add(f_->with("what", what)).Set(value);
}
void metrics::set_link(const std::string& peer, const std::string& path, double bytes_per_s,
                       double latency_s) {
  auto labels = f_->with("peer", peer);
  labels.emplace("path", path);
  f_->link_rate.Add(labels).Set(bytes_per_s);
  f_->link_latency.Add(labels).Set(latency_s);
}

void metrics::set_ssd_read(double bytes_per_s) { f_->ssd_read.Add(f_->model).Set(bytes_per_s); }

void metrics::set_rail(const std::string& rail, const std::string& what, double total) {
  auto labels = f_->with("rail", rail);
  labels.emplace("what", what);
  f_->rails.set(labels, total);
}
void metrics::set_rail_state(const std::string& rail, bool up, double mean_latency_s) {
  f_->rail_up.Add(f_->with("rail", rail)).Set(up ? 1 : 0);
  f_->rail_latency.Add(f_->with("rail", rail)).Set(mean_latency_s);
}

std::string metrics::text() const { return prometheus::TextSerializer{}.Serialize(f_->registry.Collect()); }

}  // namespace mooncaf
