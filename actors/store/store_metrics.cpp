#include "actors/store/store_metrics.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <numeric>

namespace mooncaf::store {

namespace {

class exposition {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_ +=
        "# HELP " + name_ + " " + std::string{help} + "\n# TYPE " + name_ + " " + std::string{type} + "\n";
  }
  void sample(std::uint64_t value, const std::string& labels = {}) {
    text_ += name_ + (labels.empty() ? "" : "{" + labels + "}") + " " + std::to_string(value) + "\n";
  }
  void gauge(std::string_view name, std::string_view help, std::uint64_t value) {
    family(name, "gauge", help);
    sample(value);
  }
  void counter(std::string_view name, std::string_view help, std::uint64_t value) {
    family(name, "counter", help);
    sample(value);
  }
  /// @param unit  nanoseconds of one of what the name says.
  void histogram(const latency_counts& t, double unit, const std::string& labels = {}) {
    std::uint64_t count = 0;
    const auto comma = labels.empty() ? "" : ",";
    for (std::size_t i = 0; i < t.counts.size(); ++i) {
      count += t.counts[i];
      const auto end = i < t.bounds.size() ? number(static_cast<double>(t.bounds[i]) / unit) : "+Inf";
      text_ += name_ + "_bucket{" + labels + comma + "le=\"" + end + "\"} " + std::to_string(count) + "\n";
    }
    const auto braced = labels.empty() ? "" : "{" + labels + "}";
    text_ += name_ + "_sum" + braced + " " + number(static_cast<double>(t.total_ns) / unit) + "\n";
    text_ += name_ + "_count" + braced + " " + std::to_string(count) + "\n";
  }
  std::string text() && { return std::move(text_); }

 private:
  static std::string number(double value) {
    char text[32];
    const auto n = std::snprintf(text, sizeof(text), "%.9g", value);
    return {text, static_cast<std::size_t>(n)};
  }
  std::string name_, text_;
};

std::string label(std::string_view name, std::string_view value) {
  std::string out{name};
  out += "=\"";
  for (const char c : value) {
    if (c == '\n') out += "\\n";
    else if (c == '"' || c == '\\') out += std::string{'\\'} + c;
    else out += c;
  }
  return out + "\"";
}

/// How often was asked, by the names that Mooncake's master has for one question about one object; here a
/// question about many counts once, too.
void master_questions(exposition& e, const store_wire::question_times& times) {
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
    e.counter(std::string{"master_"} + name + "_requests_total",
              "As Mooncake's master has it: questions, each about one or many objects.", asked);
  }
}

}  // namespace

// A line for each figure and nothing else: splitting it would only spread the list.
std::string metrics_text(const directory_figures& figures,
                         const std::vector<store_wire::mounted_segment>& segments,
                         const std::vector<tenant_view>& tenants, const http_times* http) {
  const auto& c = figures.counts;
  exposition e;
  const auto allocated = c.total_bytes - c.free_bytes;
  e.gauge("mooncaf_store_objects", "Objects that can be read.", c.objects);
  e.gauge("mooncaf_store_replicas", "Replicas in memory, with those that are being written.", c.replicas);
  e.gauge("mooncaf_store_reservations", "Puts under way.", c.reserved);
  e.gauge("mooncaf_store_object_bytes", "Bytes of objects, each counted once.", c.object_bytes);
  e.gauge("mooncaf_store_capacity_bytes", "Memory that is mounted.", c.total_bytes);
  e.gauge("mooncaf_store_allocated_bytes", "Memory that is taken, by replicas or resting.", allocated);
  e.gauge("mooncaf_store_resting_bytes", "Memory of removed objects that somebody may still use.",
          c.quarantined_bytes);
  e.counter("mooncaf_store_hits_total", "Keys that were asked for and found.", c.hits);
  e.counter("mooncaf_store_misses_total", "Keys that were asked for and not found.", c.misses);
  e.counter("mooncaf_store_evictions_total", "Objects that made way for others.", c.evictions);
  e.counter("mooncaf_store_regretted_evictions_total",
            "Objects that were put again not long after they made way.", c.regretted);
  e.counter("mooncaf_store_evicted_bytes_total", "Bytes of objects that made way.", c.evicted_bytes);
  e.counter("mooncaf_store_expired_total", "Objects that outlived their time.", c.expired);
  e.counter("mooncaf_store_lost_total", "Objects that went with the last segment that held them.", c.lost);
  e.counter("mooncaf_store_refused_puts_total", "Puts that found no room.", c.refused);
  e.counter("mooncaf_store_recovered_replicas_total", "Replicas known from an earlier directory.",
            c.recovered);
  e.counter("mooncaf_store_moved_total", "Objects that were given other places.", c.moved);
  e.counter("mooncaf_store_hot_replicas_made_total",
            "Replicas that were made because an object was read so often.", c.warmed);
  e.counter("mooncaf_store_hot_replicas_dropped_total", "Of these, those that were given up again.",
            c.cooled);
  e.gauge("mooncaf_store_ssd_objects", "Objects that lie on SSD, in memory as well or not.", c.disk_objects);
  e.gauge("mooncaf_store_ssd_capacity_bytes", "Room on SSDs that is mounted.", c.disk_total_bytes);
  e.gauge("mooncaf_store_ssd_allocated_bytes", "Room on SSDs that is taken.", c.disk_bytes);
  e.counter("mooncaf_store_ssd_hits_total", "Keys that were found on SSD alone.", c.disk_hits);
  e.counter("mooncaf_store_ssd_writes_total", "Objects that were written to SSD.", c.saved);
  e.counter("mooncaf_store_ssd_written_bytes_total", "Their bytes.", c.saved_bytes);
  e.counter("mooncaf_store_ssd_write_failures_total", "Objects that an SSD refused.", c.save_failures);
  e.counter("mooncaf_store_ssd_reads_total", "Objects that were read from SSD into memory.", c.loaded);
  e.counter("mooncaf_store_ssd_read_bytes_total", "Their bytes.", c.loaded_bytes);
  e.counter("mooncaf_store_ssd_promotions_total",
            "Of these, those that were used so often that they stay in memory.", c.promoted);
  e.counter("mooncaf_store_ssd_damaged_total",
            "Objects that could not be read from SSD as they were written.", c.disk_damaged);
  e.counter("mooncaf_store_ssd_demotions_total", "Objects that left memory and stayed on SSD.", c.demoted);
  e.counter("mooncaf_store_ssd_evictions_total", "Objects that made way for others on SSD.",
            c.disk_evictions);
  e.counter("mooncaf_store_ssd_recovered_total", "Objects that an SSD brought along.", c.disk_recovered);
  e.counter("mooncaf_store_ssd_stale_total",
            "Objects that an SSD brought along and that were removed or replaced meanwhile.", c.disk_stale);
  e.gauge("master_key_count", "As Mooncake's master has it: objects.", c.objects);
  e.gauge("master_allocated_bytes", "The same: memory that is taken.", allocated);
  e.gauge("master_total_capacity_bytes", "The same: memory that is mounted.", c.total_bytes);
  e.gauge("master_allocated_file_size_bytes", "The same: room on SSDs that is taken.", c.disk_bytes);
  e.counter("mem_cache_hit_nums_", "The same: gets that memory answered.", c.hits - c.disk_hits);
  e.counter("file_cache_hit_nums_", "The same: gets that SSDs answered.", c.disk_hits);
  e.counter("valid_get_nums_", "The same: gets that found something.", c.hits);
  e.counter("total_get_nums_", "The same: gets.", c.hits + c.misses);
  e.counter("master_evicted_key_count", "The same: objects that made way.", c.evictions);
  e.counter("master_evicted_size_bytes", "The same: their bytes.", c.evicted_bytes);
  e.counter("master_put_start_alloc_failures_total", "The same: puts that found no room.", c.refused);
  e.gauge("master_total_file_capacity_bytes", "The same: room on SSDs that is mounted.", c.disk_total_bytes);
  e.gauge("mem_cache_nums_", "The same: replicas in memory.", c.replicas);
  e.gauge("file_cache_nums_", "The same: objects that lie on SSD.", c.disk_objects);
  e.counter("file_cache_hit_bytes_total", "The same: bytes that were read from SSD.", c.loaded_bytes);
  e.counter("master_promotion_completed_total", "The same: objects that came from SSD to stay.", c.promoted);
  master_questions(e, figures.times);
  const auto by_segment = [&](std::string_view name, std::string_view help, bool capacity, bool own_name) {
    e.family(name, "gauge", help);
    for (const auto& s : segments) {
      if (!own_name && s.view.kind != storage_tier::dram) continue;  // Mooncake's figures count no SSDs there
      auto labels = label("segment", s.view.name);
      if (own_name)
        labels += "," + label("host", s.view.host) + "," + label("medium", to_string(s.view.kind));
      e.sample(capacity ? s.view.bytes : s.view.bytes - s.view.free_bytes, labels);
    }
  };
  by_segment("mooncaf_store_segment_capacity_bytes", "Room of a segment, in memory or on SSD.", true, true);
  by_segment("mooncaf_store_segment_allocated_bytes", "What of it is taken.", false, true);
  e.family("mooncaf_store_segment_withheld_bytes", "gauge",
           "Memory of a segment that its holder uses for KV blocks meanwhile; not in its capacity.");
  for (const auto& s : segments)
    if (s.view.kind == storage_tier::dram)
      e.sample(s.view.withheld_bytes, label("segment", s.view.name) + "," + label("host", s.view.host));
  by_segment("segment_total_capacity_bytes", "As Mooncake's master has it: memory of a segment.", true,
             false);
  by_segment("segment_allocated_bytes", "The same: what of it is taken.", false, false);
  const auto by_tenant = [&](std::string_view name, std::string_view type, std::string_view help,
                             const std::function<std::uint64_t(const tenant_view&)>& value,
                             std::string_view of = "tenant") {
    if (tenants.empty()) return;
    e.family(name, type, help);
    for (const auto& t : tenants) e.sample(value(t), label(of, t.name));
  };
  const auto may_take = [](const tenant_view& t) { return t.counts.total_bytes; };
  const auto takes = [](const tenant_view& t) { return t.counts.total_bytes - t.counts.free_bytes; };
  by_tenant("mooncake_tenant_quota_requested_bytes", "gauge",
            "As Mooncake's master has it: what a tenant was promised.", may_take, "tenant_id");
  by_tenant("mooncake_tenant_quota_effective_bytes", "gauge", "The same: what it may take, which is as much.",
            may_take, "tenant_id");
  by_tenant("mooncake_tenant_quota_used_bytes", "gauge", "The same: what it takes.", takes, "tenant_id");
  by_tenant(
      "mooncake_tenant_quota_committed_count", "gauge", "The same: its objects.",
      [](const tenant_view& t) { return t.counts.objects; }, "tenant_id");
  if (!tenants.empty())
    e.gauge("mooncake_tenant_quota_allocatable_capacity_bytes", "The same: memory that is mounted.",
            c.total_bytes);
  by_tenant("mooncaf_store_tenant_objects", "gauge", "Objects of a tenant.",
            [](const tenant_view& t) { return t.counts.objects; });
  by_tenant("mooncaf_store_tenant_bytes", "gauge", "Memory that a tenant's replicas take, resting or not.",
            takes);
  by_tenant("mooncaf_store_tenant_quota_bytes", "gauge", "What of the memory a tenant may take.", may_take);
  by_tenant("mooncaf_store_tenant_ssd_bytes", "gauge", "What of SSDs a tenant's objects take.",
            [](const tenant_view& t) { return t.counts.disk_bytes; });
  by_tenant("mooncaf_store_tenant_ssd_quota_bytes", "gauge", "What of SSDs a tenant may take.",
            [](const tenant_view& t) { return t.counts.disk_total_bytes; });
  by_tenant("mooncaf_store_tenant_hits_total", "counter", "Keys that a tenant asked for and found.",
            [](const tenant_view& t) { return t.counts.hits; });
  by_tenant("mooncaf_store_tenant_misses_total", "counter", "Keys that a tenant asked for and did not find.",
            [](const tenant_view& t) { return t.counts.misses; });
  by_tenant("mooncaf_store_tenant_evictions_total", "counter", "Objects of a tenant that made way.",
            [](const tenant_view& t) { return t.counts.evictions; });
  by_tenant("mooncaf_store_tenant_refused_puts_total", "counter", "Puts of a tenant that found no room.",
            [](const tenant_view& t) { return t.counts.refused; });
  e.family("mooncaf_store_directory_seconds", "histogram",
           "How long the directory worked on questions of each kind, each about one or many objects.");
  for (std::size_t i = 1; i < figures.times.size(); ++i)
    e.histogram(figures.times[i], 1e9,
                label("question", store_wire::name_of(static_cast<store_wire::op>(i))));
  if (http == nullptr) return std::move(e).text();
  e.family(
      "mooncake_transfer_get_latency", "histogram",
      "As Mooncake's client has it, of this endpoint: gets, in microseconds, from question to last byte.");
  e.histogram(http->get, 1e3);
  e.family("mooncake_transfer_put_latency", "histogram", "The same: puts.");
  e.histogram(http->put, 1e3);
  return std::move(e).text();
}

}  // namespace mooncaf::store
