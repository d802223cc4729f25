#pragma once
// Where Prometheus scrapes one process: a small HTTP server of its own, so that every role has one.

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "actors/http/http_server.hpp"
#include "actors/metrics/metrics.hpp"

namespace mooncaf {

/// Content type of Prometheus's text format, version 0.0.4.
inline constexpr const char* metrics_content_type = "text/plain; version=0.0.4; charset=utf-8";

/// The cluster's list of what to scrape, for Prometheus's `http_sd`, while this process has a conductor to ask.
/// @thread  Safe.
class scrape_list {
 public:
  using answer = std::function<void(const result<std::string>&)>;
  /// @param ask  gets the list of the conductor; null: there is none any more.
  void follow(std::function<void(answer)> ask);
  /// 404 without a conductor, 503 where it does not answer.
  void respond(const std::shared_ptr<http_responder>& out) const;

 private:
  mutable std::mutex mutex_;
  std::function<void(answer)> ask_;
};

/// Answers GET and HEAD of `/metrics`; anything else is 404 or 405. No key: bind it where scrapers alone can
/// reach it.
/// @param port  0: any free one.
/// @param text  what is scraped; called on threads of the server.
/// @param handover  as `http_options::handover`
/// @param list  answers `/targets`; null: nobody does
/// @error `ec::io_error` with the address, if it cannot be had.
result<std::unique_ptr<http_server>> serve_metrics(const std::string& host, std::uint16_t port,
                                                   std::function<std::string()> text,
                                                   const std::string& handover = {},
                                                   std::shared_ptr<const scrape_list> list = nullptr);

}  // namespace mooncaf
