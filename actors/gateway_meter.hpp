#pragma once
// Events of a gateway's core in the log and the metrics.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "actors/metrics/metrics.hpp"
#include "actors/metrics/trace_exporter.hpp"
#include "runtime/log/log.hpp"
#include "runtime/request/gateway_core.hpp"

namespace mooncaf {

/// Goes to the log, and to the metrics and a collector of traces where there are any.
class gateway_meter final : public gateway_observer {
 public:
  /// @param meters  null: there are none. @param traces  likewise.
  gateway_meter(std::shared_ptr<metrics> meters, std::shared_ptr<trace_exporter> traces)
      : meters_(std::move(meters)), traces_(std::move(traces)) {}

  /// The conductor has found a place, after so long.
  void placed(duration took) {
    if (meters_) meters_->placed(took);
  }
  void first_token(duration ttft, std::uint32_t prompt_tokens, std::uint32_t cached_tokens) override {
    if (meters_) meters_->first_token(ttft, prompt_tokens, cached_tokens);
  }
  void token(std::optional<duration> gap) override {
    if (!meters_) return;
    if (gap) meters_->token_gap(*gap);
    meters_->tokens_generated(1);
  }
  void prefill_wasted(std::uint32_t tokens) override {
    if (meters_) meters_->prefill_wasted(tokens);
  }
  void attempt_failed(request_id request, const error& cause) override {
    log_info("again", {{"request", to_string(request)}, {"cause", to_string(cause)}});
  }
  void over(std::string_view outcome, const std::string& tenant, duration elapsed) override {
    if (meters_) meters_->request_over(std::string{outcome}, tenant, elapsed);
  }
  void traced(const request_trace& trace) override {
    if (meters_ && trace.ttft > duration{})
      meters_->tokens_of_tenant(trace.tenant, trace.prompt_tokens, trace.cached_tokens, trace.output_tokens);
    if (traces_) traces_->add(trace);
  }
  void waiting(std::size_t requests) override {
    if (!meters_) return;
    meters_->set(series::queued, static_cast<double>(requests));
    if (!traces_) return;
    meters_->set(series::traces, static_cast<double>(traces_->sent()), {"sent"});
    meters_->set(series::traces, static_cast<double>(traces_->dropped()), {"dropped"});
  }

 private:
  std::shared_ptr<metrics> meters_;
  std::shared_ptr<trace_exporter> traces_;
};

}  // namespace mooncaf
