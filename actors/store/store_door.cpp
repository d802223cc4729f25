#include "actors/store/store_door.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "actors/http/api_keys.hpp"
#include "actors/http/web_guard.hpp"
#include "actors/http/work_pool.hpp"
#include "actors/store/door_request.hpp"
#include "actors/store/store_page.hpp"
#include "storage/objects/tenant_token.hpp"

namespace mooncaf::store {

namespace {

using nlohmann::json;

std::string written(const json& all) {
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

unsigned status_of(store_code code) {
  switch (code) {
    case store_code::ok:
      return 200;
    case store_code::not_found:
    case store_code::replica_not_ready:
      return 404;
    case store_code::has_lease:
      return 409;
    case store_code::invalid_key:
    case store_code::invalid_parameters:
      return 400;
    case store_code::no_space:
    case store_code::quota_exceeded:
      return 507;
    case store_code::directory_unreachable:
    case store_code::timed_out:
      return 503;
    default:
      return 502;
  }
}

void say(http_responder& out, unsigned status, std::string_view what) {
  http_headers headers{{"Content-Type", "text/plain; charset=utf-8"}};
  if (status == 401) headers.push_back({"WWW-Authenticate", "Bearer"});
  if (status == 503) headers.push_back({"Retry-After", "1"});
  out.respond(status, std::move(headers), std::string{what} + "\n");
}

void say(http_responder& out, store_code code) { say(out, status_of(code), to_string(code)); }

/// Clients of tenants, by their tokens: the directory says whether those are any.
/// @thread  All functions may be called from any thread.
class tenant_clients {
 public:
  explicit tenant_clients(std::optional<directory_address> at) : at_(std::move(at)) {}
  /// @error `ec::unauthenticated`, `ec::invalid_argument` for what is no token; others of the connection.
  result<std::shared_ptr<store_client>> find(const std::string& token) {
    auto key = tenant_key(token);
    if (!key) return fail(key.error());
    std::lock_guard lock{mutex_};
    auto& one = clients_[*key];
    const auto now = clock_type::now();
    one.asked = now;
    if (one.client) return one.client;
    if (now < one.refused_until) return fail(ec::unauthenticated, "no token");
    auto to = *at_;
    to.secret = *key;
    auto made = store_client::connect({to});
    if (made) one.client = std::move(*made);
    else if (made.error() == ec::unauthenticated) one.refused_until = now + std::chrono::seconds(5);
    const auto found = made ? result<std::shared_ptr<store_client>>{one.client} : fail(made.error());
    if (!made && made.error() != ec::unauthenticated) clients_.erase(*key);
    forget_oldest();
    return found;
  }

 private:
  struct known {
    std::shared_ptr<store_client> client;
    time_point asked{}, refused_until{};
  };
  void forget_oldest() {
    constexpr std::size_t most = 256;
    if (clients_.size() <= most) return;
    clients_.erase(std::min_element(clients_.begin(), clients_.end(), [](const auto& a, const auto& b) {
      return a.second.asked < b.second.asked;
    }));
  }

  const std::optional<directory_address> at_;
  std::mutex mutex_;
  std::map<std::string, known> clients_;  // by key
};

}  // namespace

class store_door::impl {
 public:
  impl(door_options options, std::unique_ptr<store_client> store)
      : options_(std::move(options)),
        store_(std::move(store)),
        tenants_(options_.tenants_at),
        guard_("", options_.token.empty() ? "local" : "*", {}),
        keys_(keys(options_.token)),
        pool_(2, 2 * options_.object_bytes_max) {}

  result<void> listen() {
    http_options http;
    http.host = options_.host;
    http.port = options_.port;
    http.tls_certificate_file = options_.tls_certificate_file;
    http.tls_key_file = options_.tls_key_file;
    http.max_connections = 256;
    http.max_body_bytes = options_.object_bytes_max;
    auto started =
        http_server::start(http, [this](http_request request, std::shared_ptr<http_responder> out) {
          take(std::move(request), std::move(out));
        });
    if (!started) return fail(started.error());
    server_ = std::move(*started);
    return {};
  }
  std::uint16_t port() const noexcept { return server_->port(); }

 private:
  static std::vector<tenant_settings> keys(const std::string& token) {
    std::vector<tenant_settings> all;
    if (token.empty()) return all;
    tenant_settings one;
    one.key = token;
    all.push_back(one);
    return all;
  }

  /// On an I/O thread: what asks the store waits for its answer elsewhere.
  void take(http_request request, std::shared_ptr<http_responder> out) {
    if (!guard_.may_ask(request.header("Origin"), request.header("Host")) ||
        !guard_.host_allowed(request.header("Host")))
      return say(*out, 403, "this host or origin is not served");
    constexpr std::string_view scheme = "Bearer ";
    const auto shown = std::string{request.header("Authorization")};
    const bool open = request.path == "/health" || request.path == "/store";
    const bool a_tenant = options_.tenants_at && shown.substr(0, scheme.size()) == scheme;
    const bool own = keys_.find(shown) && !(a_tenant && options_.token.empty());
    if (!own && !open && !a_tenant) return say(*out, 401, "a token is needed: Authorization: Bearer TOKEN");
    const auto bytes = request.body.size() + 1024;
    auto task = [this, own = own || open, token = shown.substr(std::min(shown.size(), scheme.size())),
                 asked = std::make_shared<http_request>(std::move(request)), out] {
      const auto who = own ? result<std::shared_ptr<store_client>>{store_} : tenants_.find(token);
      if (who) return serve(*asked, **who, *out);
      const bool stranger = who.error() == ec::unauthenticated || who.error() == ec::invalid_argument;
      if (stranger) return say(*out, 401, "this token is nobody's");
      say(*out, 503, "the directory does not answer");
    };
    if (!pool_.post(bytes, std::move(task))) say(*out, 503, "too much waits already");
  }

  void serve(const http_request& r, store_client& store, http_responder& out) {
    constexpr std::string_view objects = "/objects/";
    if (r.path.compare(0, objects.size(), objects) == 0) {
      const auto key = percent_decoded(std::string_view{r.path}.substr(objects.size()));
      if (!key) return say(out, 400, "the key is not percent-encoded");
      return serve_object(r, store, *key, out);
    }
    if (r.method != "GET" && r.method != "HEAD") return say(out, 405, "GET it");
    if (r.path == "/store")
      return out.respond(200, {{"Content-Type", "text/html; charset=utf-8"}}, std::string{store_page()});
    if (r.path == "/store/figures") {
      const auto seen = look_at(store);
      if (!seen) return say(out, 503, "the directory does not answer");
      return out.respond(200, {{"Content-Type", "application/json"}}, written(as_json(*seen)));
    }
    if (r.path == "/metrics" || r.path == "/health") return serve_figures(r.path, store, out);
    if (r.path == "/segments" || r.path == "/get_all_segments")
      return serve_segments(r.path == "/segments", store, out);
    say(out, 404, "see /objects/KEY, /segments, /get_all_segments, /metrics, /store, /health");
  }

  void serve_object(const http_request& r, store_client& store, const std::string& key, http_responder& out) {
    const std::string_view one = key;
    if (r.method == "GET") return get(r, store, one, out);
    if (r.method == "PUT") return put(r, store, one, out);
    if (r.method == "DELETE")
      return say(out, store.remove({&one, 1}, query_number(r.query, "force").value_or(0) != 0).at(0));
    if (r.method != "HEAD") return say(out, 405, "GET, HEAD, PUT or DELETE it");
    const auto seen = store.look({&one, 1}).at(0);
    if (seen.code != store_code::ok) return say(out, seen.code);
    out.respond(200, {{"X-Object-Bytes", std::to_string(seen.size)}}, {});
  }

  void note(latency_counts door_times::*of, time_point begin) {
    std::lock_guard lock{times_mutex_};
    (times_.*of).note(clock_type::now() - begin);
  }

  void get(const http_request& r, store_client& store, std::string_view key, http_responder& out) {
    const auto begin = clock_type::now();
    const auto found = store.find({&key, 1}).at(0);
    if (found.code != store_code::ok) return say(out, found.code);
    if (found.size > options_.object_bytes_max) return say(out, 413, "the object is too large for this door");
    const auto range = parse_range(r.header("Range"), found.size);
    if (!range) {
      return out.respond(416, {{"Content-Range", "bytes */" + std::to_string(found.size)}}, {});
    }
    std::string value(found.size, '\0');  // all of it, so that the checksum can tell
    const auto whole = std::as_writable_bytes(std::span{value});
    if (const auto code = store.read(found, {&whole, 1}); code != store_code::ok) return say(out, code);
    note(&door_times::get, begin);
    http_headers headers{{"Content-Type", "application/octet-stream"}, {"Accept-Ranges", "bytes"}};
    if (range->partial) {
      headers.push_back({"Content-Range", "bytes " + std::to_string(range->begin) + "-" +
                                              std::to_string(range->end - 1) + "/" +
                                              std::to_string(found.size)});
      value = value.substr(range->begin, range->end - range->begin);
    }
    out.respond(range->partial ? 206 : 200, std::move(headers), std::move(value));
  }

  void put(const http_request& r, store_client& store, std::string_view key, http_responder& out) {
    put_policy policy;
    policy.replicas = query_number(r.query, "replicas").value_or(1);
    const auto group = query_text(r.query, "group"), parent = query_text(r.query, "parent");
    const bool fits = !r.body.empty() && group && parent;
    const auto named = [](const std::optional<std::string>& name) {
      return name ? std::string_view{*name} : std::string_view{};
    };
    const outgoing_object item{key, {std::as_bytes(std::span{r.body})}, {named(group), named(parent), 0}};
    const auto begin = clock_type::now();
    const auto code = fits ? store.put({&item, 1}, policy).at(0) : store_code::invalid_parameters;
    if (code == store_code::ok) {
      note(&door_times::put, begin);
      return say(out, 201, "stored");
    }
    if (code == store_code::already_exists) return say(out, 200, "it exists already, and stays as it is");
    say(out, code);
  }

  void serve_figures(std::string_view path, store_client& store, http_responder& out) {
    const auto figures = store.figures();
    const auto segments = store.lent();
    const auto tenants = store.tenants();
    if (!figures || !segments || !tenants) return say(out, 503, "the directory does not answer");
    if (path == "/health") return say(out, 200, "ok");
    std::unique_lock lock{times_mutex_};
    const auto times = times_;
    lock.unlock();
    out.respond(200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                metrics_text(*figures, *segments, *tenants, &times));
  }

  void serve_segments(bool as_json, store_client& store, http_responder& out) {
    const auto segments = store.lent();
    if (!segments) return say(out, 503, "the directory does not answer");
    json all = json::array();
    std::string names;
    for (const auto& s : *segments) {
      all.push_back({{"name", s.view.name},
                     {"host", s.view.host},
                     {"bytes", s.view.bytes},
                     {"used_bytes", s.view.bytes - s.view.free_bytes},
                     {"withheld_bytes", s.view.withheld_bytes},
                     {"draining", s.view.draining}});
      names += s.view.name + "\n";
    }
    if (!as_json) return out.respond(200, {{"Content-Type", "text/plain; charset=utf-8"}}, names);
    out.respond(200, {{"Content-Type", "application/json"}}, written(all));
  }

  door_options options_;
  std::shared_ptr<store_client> store_;
  tenant_clients tenants_;
  web_guard guard_;
  api_keys keys_;
  work_pool pool_;
  std::mutex times_mutex_;
  door_times times_;
  std::unique_ptr<http_server> server_;  // first to go: its requests use all others
};

store_door::store_door(std::unique_ptr<impl> i) : impl_(std::move(i)) {}
store_door::~store_door() = default;
std::uint16_t store_door::port() const noexcept { return impl_->port(); }

result<std::unique_ptr<store_door>> store_door::start(door_options options,
                                                      std::unique_ptr<store_client> store) {
  auto made = std::make_unique<impl>(std::move(options), std::move(store));
  if (const auto ok = made->listen(); !ok) return fail(ok.error());
  return std::unique_ptr<store_door>{new store_door(std::move(made))};
}

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

std::string metrics_text(const directory_figures& figures,
                         const std::vector<store_wire::mounted_segment>& segments,
                         const std::vector<tenant_view>& tenants, const door_times* door) {
  const auto& c = figures.counts;
  exposition e;
  const auto allocated = c.total_bytes - c.free_bytes;
  e.gauge("mooncaf_store_objects", "Objects that can be read.", c.objects);
  e.gauge("mooncaf_store_replicas", "Replicas in memory, with those that are being written.", c.replicas);
  e.gauge("mooncaf_store_reservations", "Puts under way.", c.reserved);
  e.gauge("mooncaf_store_object_bytes", "Bytes of objects, each counted once.", c.object_bytes);
  e.gauge("mooncaf_store_capacity_bytes", "Memory that is lent.", c.total_bytes);
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
  e.gauge("mooncaf_store_ssd_capacity_bytes", "Room on SSDs that is lent.", c.disk_total_bytes);
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
  e.gauge("master_total_capacity_bytes", "The same: memory that is lent.", c.total_bytes);
  e.gauge("master_allocated_file_size_bytes", "The same: room on SSDs that is taken.", c.disk_bytes);
  e.counter("mem_cache_hit_nums_", "The same: gets that memory answered.", c.hits - c.disk_hits);
  e.counter("file_cache_hit_nums_", "The same: gets that SSDs answered.", c.disk_hits);
  e.counter("valid_get_nums_", "The same: gets that found something.", c.hits);
  e.counter("total_get_nums_", "The same: gets.", c.hits + c.misses);
  e.counter("master_evicted_key_count", "The same: objects that made way.", c.evictions);
  e.counter("master_evicted_size_bytes", "The same: their bytes.", c.evicted_bytes);
  e.counter("master_put_start_alloc_failures_total", "The same: puts that found no room.", c.refused);
  e.gauge("master_total_file_capacity_bytes", "The same: room on SSDs that is lent.", c.disk_total_bytes);
  e.gauge("mem_cache_nums_", "The same: replicas in memory.", c.replicas);
  e.gauge("file_cache_nums_", "The same: objects that lie on SSD.", c.disk_objects);
  e.counter("file_cache_hit_bytes_total", "The same: bytes that were read from SSD.", c.loaded_bytes);
  e.counter("master_promotion_completed_total", "The same: objects that came from SSD to stay.", c.promoted);
  master_questions(e, figures.times);
  const auto by_segment = [&](std::string_view name, std::string_view help, bool capacity, bool own_name) {
    e.family(name, "gauge", help);
    for (const auto& s : segments) {
      if (!own_name && s.view.kind != medium::dram) continue;  // which theirs does not count there
      auto labels = label("segment", s.view.name);
      if (own_name)
        labels += "," + label("host", s.view.host) + "," + label("medium", to_string(s.view.kind));
      e.sample(capacity ? s.view.bytes : s.view.bytes - s.view.free_bytes, labels);
    }
  };
  by_segment("mooncaf_store_segment_capacity_bytes", "Room of a segment, in memory or on SSD.", true, true);
  by_segment("mooncaf_store_segment_allocated_bytes", "What of it is taken.", false, true);
  e.family("mooncaf_store_segment_withheld_bytes", "gauge",
           "Memory of a segment that its lender uses for KV blocks meanwhile; not in its capacity.");
  for (const auto& s : segments)
    if (s.view.kind == medium::dram)
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
    e.gauge("mooncake_tenant_quota_allocatable_capacity_bytes", "The same: memory that is lent.",
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
  if (door == nullptr) return std::move(e).text();
  e.family("mooncake_transfer_get_latency", "histogram",
           "As Mooncake's client has it, of this door: gets, in microseconds, from question to last byte.");
  e.histogram(door->get, 1e3);
  e.family("mooncake_transfer_put_latency", "histogram", "The same: puts.");
  e.histogram(door->put, 1e3);
  return std::move(e).text();
}

}  // namespace mooncaf::store
