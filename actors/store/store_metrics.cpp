#include "actors/store/store_metrics.hpp"

#include <array>
#include <numeric>

#include "actors/metrics/metric_families.hpp"
#include "storage/objects/terms/count_fields.hpp"

namespace mooncaf::store {

namespace {

using prometheus::MetricType;

void add_histogram(metric_families& to, const latency_counts& times, double unit_ns,
                   metric_families::labels which = {}) {
  std::vector<double> bounds;
  for (const auto ns : latency_counts::bounds) bounds.push_back(static_cast<double>(ns) / unit_ns);
  to.histogram(bounds, {times.counts.begin(), times.counts.end()},
               static_cast<double>(times.total_ns) / unit_ns, std::move(which));
}

void add_counts(metric_families& to, const object_counts& c) {
  for (const auto& f : count_fields)
    if (f.series != nullptr) to.value(std::string{"mooncaf_store_"} + f.series, f.help, c.*f.at);
  to.value("mooncaf_store_allocated_bytes", "Memory that is taken, by replicas or resting.",
           c.total_bytes - c.free_bytes);
}

/// The same figures by the names that Mooncake's master has for them.
void add_master_counts(metric_families& to, const object_counts& c) {
  struct row {
    const char* name;
    const char* help;
    std::uint64_t value;
    MetricType type = MetricType::Counter;
  };
  constexpr auto gauge = MetricType::Gauge;
  const row rows[] = {
      {"master_key_count", "objects.", c.objects, gauge},
      {"master_allocated_bytes", "memory that is taken.", c.total_bytes - c.free_bytes, gauge},
      {"master_total_capacity_bytes", "memory that is mounted.", c.total_bytes, gauge},
      {"master_allocated_file_size_bytes", "room on SSDs that is taken.", c.disk_bytes, gauge},
      {"master_total_file_capacity_bytes", "room on SSDs that is mounted.", c.disk_total_bytes, gauge},
      {"mem_cache_nums_", "replicas in memory.", c.replicas, gauge},
      {"file_cache_nums_", "objects that lie on SSD.", c.disk_objects, gauge},
      {"mem_cache_hit_nums_", "gets that memory answered.", c.hits - c.disk_hits},
      {"file_cache_hit_nums_", "gets that SSDs answered.", c.disk_hits},
      {"file_cache_hit_bytes_total", "bytes that were read from SSD.", c.loaded_bytes},
      {"valid_get_nums_", "gets that found something.", c.hits},
      {"total_get_nums_", "gets.", c.hits + c.misses},
      {"master_evicted_key_count", "objects that made way.", c.evictions},
      {"master_evicted_size_bytes", "bytes of objects that made way.", c.evicted_bytes},
      {"master_put_start_alloc_failures_total", "puts that found no room.", c.refused},
      {"master_promotion_completed_total", "objects that came from SSD to stay.", c.promoted}};
  for (const auto& r : rows) {
    to.family(r.name, std::string{"As Mooncake's master has it: "} + r.help, r.type);
    to.sample(r.value);
  }
}

/// How often was asked, by the names that Mooncake's master has for one question about one object; here a
/// question about many counts once, too.
void add_master_questions(metric_families& to, const store_wire::question_times& times) {
  using store_wire::op;
  struct row {
    const char* name;
    std::vector<op> questions;
  };
  const std::array<row, 10> rows{{{"put_start", {op::reserve, op::put_next}},
                                  {"put_end", {op::publish, op::put_next}},
                                  {"put_revoke", {op::revoke}},
                                  {"get_replica_list", {op::find}},
                                  {"exist_key", {op::exists}},
                                  {"remove", {op::remove}},
                                  {"remove_all", {op::remove_all}},
                                  {"mount_segment", {op::mount}},
                                  {"query_task", {op::query_task}},
                                  {"update_task", {op::end_task}}}};
  for (const auto& [name, questions] : rows) {
    std::uint64_t asked = 0;
    for (const auto what : questions) {
      const auto& counts = times[static_cast<std::size_t>(what)].counts;
      asked = std::accumulate(counts.begin(), counts.end(), asked);
    }
    to.value(std::string{"master_"} + name + "_requests_total",
             "As Mooncake's master has it: questions, each about one or many objects.", asked);
  }
}

void add_segments(metric_families& to, const std::vector<store_wire::mounted_segment>& segments) {
  const auto of = [](const segment_view& s) {
    return metric_families::labels{{"segment", s.name}, {"host", s.host}};
  };
  const auto used = [](const segment_view& s) { return s.bytes - s.free_bytes; };
  const auto each = [&](std::string name, std::string help, const auto& value) {
    to.family(std::move(name), std::move(help));
    for (const auto& s : segments) {
      auto which = of(s.view);
      which.emplace_back("medium", to_string(s.view.kind));
      to.sample(value(s.view), std::move(which));
    }
  };
  each("mooncaf_store_segment_capacity_bytes", "Room of a segment, in memory or on SSD.",
       [](const segment_view& s) { return s.bytes; });
  each("mooncaf_store_segment_allocated_bytes", "What of it is taken.", used);
  // Mooncake's figures count no SSDs here.
  const auto in_memory = [&](std::string name, std::string help, const auto& value, bool host) {
    to.family(std::move(name), std::move(help));
    for (const auto& s : segments) {
      if (s.view.kind != storage_tier::dram) continue;
      to.sample(value(s.view), host ? of(s.view) : metric_families::labels{{"segment", s.view.name}});
    }
  };
  in_memory(
      "mooncaf_store_segment_withheld_bytes",
      "Memory of a segment that its holder uses for KV blocks meanwhile; not in its capacity.",
      [](const segment_view& s) { return s.withheld_bytes; }, true);
  in_memory(
      "segment_total_capacity_bytes", "As Mooncake's master has it: memory of a segment.",
      [](const segment_view& s) { return s.bytes; }, false);
  in_memory("segment_allocated_bytes", "As Mooncake's master has it: what of it is taken.", used, false);
}

void add_tenants(metric_families& to, const std::vector<tenant_view>& tenants, std::uint64_t mounted) {
  if (tenants.empty()) return;
  const auto each = [&](std::string name, std::string help, const auto& value, const char* label = "tenant") {
    to.family(std::move(name), std::move(help));
    for (const auto& t : tenants) to.sample(value(t.counts), {{label, t.name}});
  };
  const auto may_take = [](const object_counts& c) { return c.total_bytes; };
  const auto takes = [](const object_counts& c) { return c.total_bytes - c.free_bytes; };
  for (const auto& f : count_fields)
    if (f.of_tenants)
      each(std::string{"mooncaf_store_tenant_"} + f.series, std::string{"Of a tenant. "} + f.help,
           [&](const object_counts& c) { return c.*f.at; });
  each("mooncaf_store_tenant_bytes", "Memory that a tenant's replicas take, resting or not.", takes);
  each("mooncaf_store_tenant_quota_bytes", "What of the memory a tenant may take.", may_take);
  each("mooncaf_store_tenant_ssd_bytes", "What of SSDs a tenant's objects take.",
       [](const object_counts& c) { return c.disk_bytes; });
  each("mooncaf_store_tenant_ssd_quota_bytes", "What of SSDs a tenant may take.",
       [](const object_counts& c) { return c.disk_total_bytes; });
  const std::string master = "As Mooncake's master has it: ", quota = "mooncake_tenant_quota_";
  each(quota + "requested_bytes", master + "what a tenant was promised.", may_take, "tenant_id");
  each(quota + "effective_bytes", master + "what it may take, which is as much.", may_take, "tenant_id");
  each(quota + "used_bytes", master + "what it takes.", takes, "tenant_id");
  each(
      quota + "committed_count", master + "its objects.", [](const object_counts& c) { return c.objects; },
      "tenant_id");
  to.value(quota + "allocatable_capacity_bytes", master + "memory that is mounted.", mounted);
}

void add_times(metric_families& to, const store_wire::question_times& times, const http_times* http) {
  to.family("mooncaf_store_directory_seconds",
            "How long the directory worked on questions of each kind, each about one or many objects.",
            MetricType::Histogram);
  for (std::size_t i = 1; i < times.size(); ++i)
    add_histogram(to, times[i], 1e9,
                  {{"question", std::string{store_wire::name_of(static_cast<store_wire::op>(i))}}});
  if (http == nullptr) return;
  const auto own = [&](const char* name, const char* what, const latency_counts& of) {
    to.family(
        name,
        std::string{"As Mooncake's client has it, of this endpoint, in microseconds from question to last "
                    "byte: "} +
            what,
        MetricType::Histogram);
    add_histogram(to, of, 1e3);
  };
  own("mooncake_transfer_get_latency", "gets.", http->get);
  own("mooncake_transfer_put_latency", "puts.", http->put);
}

}  // namespace

std::string metrics_text(const directory_figures& figures,
                         const std::vector<store_wire::mounted_segment>& segments,
                         const std::vector<tenant_view>& tenants, const http_times* http) {
  metric_families all;
  add_counts(all, figures.counts);
  add_master_counts(all, figures.counts);
  add_master_questions(all, figures.times);
  add_segments(all, segments);
  add_tenants(all, tenants, figures.counts.total_bytes);
  add_times(all, figures.times, http);
  return all.text();
}

}  // namespace mooncaf::store
