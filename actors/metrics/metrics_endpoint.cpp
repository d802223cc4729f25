#include "actors/metrics/metrics_endpoint.hpp"

#include <utility>

namespace mooncaf {

namespace {

constexpr std::size_t scraper_limit = 64;  ///< connections; a handful of scrapers is a lot

}  // namespace

result<std::unique_ptr<http_server>> serve_metrics(const std::string& host, std::uint16_t port,
                                                   std::function<std::string()> text,
                                                   const std::string& handover) {
  http_options options;
  options.host = host;
  options.port = port;
  options.max_connections = scraper_limit;
  options.max_body_bytes = 1024;
  options.handover = handover;
  return http_server::start(
      options, [text = std::move(text)](http_request request, std::shared_ptr<http_responder> out) {
        if (request.path != "/metrics")
          return out->respond(404, {{"Content-Type", "text/plain"}}, "see /metrics\n");
        if (request.method != "GET" && request.method != "HEAD") {
          return out->respond(405, {{"Allow", "GET, HEAD"}, {"Content-Type", "text/plain"}}, "GET it\n");
        }
        out->respond(200, {{"Content-Type", metrics_content_type}}, text());
      });
}

}  // namespace mooncaf
