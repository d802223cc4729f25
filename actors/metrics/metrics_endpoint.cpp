#include "actors/metrics/metrics_endpoint.hpp"

#include <utility>

namespace mooncaf {

namespace {

constexpr std::size_t scraper_limit = 64;  ///< connections; a handful of scrapers is a lot

}  // namespace

void scrape_list::follow(std::function<void(answer)> ask) {
  const std::lock_guard lock{mutex_};
  ask_ = std::move(ask);
}

void scrape_list::respond(const std::shared_ptr<http_responder>& out) const {
  const std::lock_guard lock{mutex_};
  if (!ask_) return out->respond(404, {{"Content-Type", "text/plain"}}, "the conductor's process has it\n");
  ask_([out](const result<std::string>& list) {
    if (list) out->respond(200, {{"Content-Type", "application/json"}}, *list);
    else out->respond(503, {{"Content-Type", "text/plain"}}, to_string(list.error()) + "\n");
  });
}

result<std::unique_ptr<http_server>> serve_metrics(const std::string& host, std::uint16_t port,
                                                   std::function<std::string()> text,
                                                   const std::string& handover,
                                                   std::shared_ptr<const scrape_list> list) {
  http_options options;
  options.host = host;
  options.port = port;
  options.max_connections = scraper_limit;
  options.max_body_bytes = 1024;
  options.handover = handover;
  return http_server::start(options, [text = std::move(text), list = std::move(list)](
                                         http_request request, std::shared_ptr<http_responder> out) {
    const bool targets = list && request.path == "/targets";
    if (request.path != "/metrics" && !targets)
      return out->respond(404, {{"Content-Type", "text/plain"}}, "see /metrics\n");
    if (request.method != "GET" && request.method != "HEAD") {
      return out->respond(405, {{"Allow", "GET, HEAD"}, {"Content-Type", "text/plain"}}, "GET it\n");
    }
    if (targets) return list->respond(out);
    out->respond(200, {{"Content-Type", metrics_content_type}}, text());
  });
}

}  // namespace mooncaf
