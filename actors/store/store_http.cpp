#include "actors/store/store_http.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "actors/http/work_pool.hpp"
#include "actors/store/object_request.hpp"
#include "actors/store/store_metrics.hpp"
#include "actors/store/store_page.hpp"
#include "runtime/api/api_keys.hpp"
#include "runtime/api/web_guard.hpp"
#include "runtime/pages/pages.hpp"
#include "storage/objects/wire/tenant_token.hpp"

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

/// Clients of tenants, by their tokens: the directory says whether a token is a tenant's.
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

class store_http::impl {
 public:
  impl(store_http_options options, std::unique_ptr<store_client> store)
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
    const bool tenants_alone =
        options_.tenants_at && options_.token.empty();  // else no token would show all of them
    const bool own = !tenants_alone && keys_.find(shown);
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
      return out.respond(200, {{"Content-Type", "text/html; charset=utf-8"}}, std::string{pages::store});
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
    const auto bytes = std::to_string(seen.size);
    out.respond(200,
                {{"Content-Type", "application/octet-stream"},
                 {"Accept-Ranges", "bytes"},
                 {"Content-Length", bytes},
                 {"X-Object-Bytes", bytes}},
                {});
  }

  void note(latency_counts http_times::*of, time_point begin) {
    std::lock_guard lock{times_mutex_};
    (times_.*of).note(clock_type::now() - begin);
  }

  void get(const http_request& r, store_client& store, std::string_view key, http_responder& out) {
    const auto begin = clock_type::now();
    const auto found = store.find({&key, 1}).at(0);
    if (found.code != store_code::ok) return say(out, found.code);
    if (found.size > options_.object_bytes_max)
      return say(out, 413, "the object is too large for this endpoint");
    const auto range = parse_range(r.header("Range"), found.size);
    if (!range) {
      return out.respond(416, {{"Content-Range", "bytes */" + std::to_string(found.size)}}, {});
    }
    std::string value(found.size, '\0');  // the whole object, so that its checksum is compared
    const auto whole = std::as_writable_bytes(std::span{value});
    if (const auto code = store.read(found, {&whole, 1}); code != store_code::ok) return say(out, code);
    note(&http_times::get, begin);
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
      note(&http_times::put, begin);
      return say(out, 201, "stored");
    }
    if (code == store_code::already_exists) return say(out, 200, "it exists already, and stays as it is");
    say(out, code);
  }

  void serve_figures(std::string_view path, store_client& store, http_responder& out) {
    const auto figures = store.figures();
    const auto segments = store.mounted();
    const auto tenants = store.tenants();
    if (!figures || !segments || !tenants) return say(out, 503, "the directory does not answer");
    if (path == "/health") return say(out, 200, "ok");
    std::unique_lock lock{times_mutex_};
    const auto times = times_;
    lock.unlock();
    out.respond(200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                metrics_text(*figures, *segments, *tenants, &times));
  }

  void serve_segments(bool wants_json, store_client& store, http_responder& out) {
    const auto segments = store.mounted();
    if (!segments) return say(out, 503, "the directory does not answer");
    json all = json::array();
    std::string names;
    for (const auto& s : *segments) {
      all.push_back(as_json(s));
      names += s.view.name + "\n";
    }
    if (!wants_json) return out.respond(200, {{"Content-Type", "text/plain; charset=utf-8"}}, names);
    out.respond(200, {{"Content-Type", "application/json"}}, written(all));
  }

  store_http_options options_;
  std::shared_ptr<store_client> store_;
  tenant_clients tenants_;
  web_guard guard_;
  api_keys keys_;
  work_pool pool_;
  std::mutex times_mutex_;
  http_times times_;
  std::unique_ptr<http_server> server_;  // first to go: its requests use all others
};

store_http::store_http(std::unique_ptr<impl> i) : impl_(std::move(i)) {}
store_http::~store_http() = default;
std::uint16_t store_http::port() const noexcept { return impl_->port(); }

result<std::unique_ptr<store_http>> store_http::start(store_http_options options,
                                                      std::unique_ptr<store_client> store) {
  auto made = std::make_unique<impl>(std::move(options), std::move(store));
  if (const auto ok = made->listen(); !ok) return fail(ok.error());
  return std::unique_ptr<store_http>{new store_http(std::move(made))};
}

}  // namespace mooncaf::store
