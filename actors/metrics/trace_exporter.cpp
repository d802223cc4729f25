#include "actors/metrics/trace_exporter.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/log/log.hpp"
#include "transport/net/patient_socket.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {

namespace {

constexpr std::size_t at_once = 256;  // some hundred kilobytes: collectors bound a body
constexpr auto patience = std::chrono::seconds(5);
constexpr auto last_words = std::chrono::seconds(2);
constexpr auto longest_pause = std::chrono::seconds(30);

/// OTLP's list of answers behind which the same traces may be sent again.
bool passes(const std::string& status) {
  return status == "429" || status == "502" || status == "503" || status == "504";
}

}  // namespace

trace_exporter::trace_exporter(host_port collector, trace_source source, double share, duration gather)
    : collector_(std::move(collector)),
      source_(std::move(source)),
      share_(share),
      gather_(gather),
      keeper_([this] { keep(); }) {}

trace_exporter::~trace_exporter() {
  {
    const std::scoped_lock lock{mutex_};
    stopping_ = true;
  }
  changed_.notify_all();
  keeper_.join();
}

void trace_exporter::add(const request_trace& trace) {
  if (!is_sampled(trace, share_)) return;
  {
    const std::scoped_lock lock{mutex_};
    if (waiting_.size() == most_waiting) {
      ++dropped_;
      return;
    }
    waiting_.push_back(trace);
    if (waiting_.size() > 1) return;  // its thread knows
  }
  changed_.notify_all();
}

result<void> trace_exporter::post(std::span<const request_trace> traces, time_point until) const {
  const auto fd = dial_tcp(collector_.host, collector_.port, until);
  if (!fd) return fail(fd.error());
  const auto body = otlp_body(source_, traces, {clock_type::now(), std::chrono::system_clock::now()});
  const auto asked = "POST " + std::string{otlp_path} + " HTTP/1.1\r\nHost: " + to_string(collector_) +
                     "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
                     std::to_string(body.size()) + "\r\n\r\n" + body;
  if (auto done = send_whole(fd->get(), std::as_bytes(std::span{asked}), until); !done) return done;
  std::string said(sizeof "HTTP/1.1 200" - 1, '\0');
  if (auto done = receive_whole(fd->get(), std::as_writable_bytes(std::span{said}), until); !done)
    return done;
  const auto status = said.substr(said.size() - 3);
  if (said.starts_with("HTTP/1.") && status.starts_with('2')) return {};
  return fail(passes(status) ? ec::unavailable : ec::invalid_argument,
              "it answers '" + said + "' to a POST to " + std::string{otlp_path});
}

std::size_t trace_exporter::send(std::span<const request_trace> traces, time_point until) {
  std::size_t taken = 0;
  while (taken < traces.size()) {
    const auto some = traces.subspan(taken, std::min(at_once, traces.size() - taken));
    if (const auto done = post(some, until); !done) {
      if (pause_.count() == 0)
        log_warn("traces", {{"collector", to_string(collector_)}, {"problem", to_string(done.error())}});
      if (done.error().code ==
          ec::invalid_argument) {  // it would refuse them again, and those behind them would wait
        taken += some.size();
        dropped_ += some.size();
        continue;
      }
      pause_ = std::clamp<duration>(2 * pause_, std::chrono::seconds(1), longest_pause);
      return taken;
    }
    if (std::exchange(pause_, {}).count() > 0)
      log_info("traces", {{"collector", to_string(collector_)}, {"taken", "again"}});
    taken += some.size();
    sent_ += some.size();
  }
  return taken;
}

void trace_exporter::keep() {
  std::vector<request_trace> batch;
  for (bool last = false; !last;) {
    {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [&] { return stopping_ || !waiting_.empty() || !batch.empty(); });
      changed_.wait_for(lock, std::max(pause_, gather_), [this] { return stopping_; });
      last = stopping_;
      std::ranges::move(std::exchange(waiting_, {}), std::back_inserter(batch));
    }
    const auto limit = clock_type::now() + (last ? duration{last_words} : duration{patience});
    batch.erase(batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(send(batch, limit)));
    const auto kept = std::min(batch.size(), last ? 0 : most_waiting);
    dropped_ += batch.size() - kept;
    batch.resize(kept);
  }
}

}  // namespace mooncaf
