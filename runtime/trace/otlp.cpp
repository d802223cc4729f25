#include "runtime/trace/otlp.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/trace/trace_context.hpp"

namespace mooncaf {

namespace {

using json = nlohmann::ordered_json;

enum class span_kind { internal = 1, server = 2 };

trace_parent context_of(const request_trace& trace) {
  if (const auto given = parse_traceparent(trace.traceparent)) return *given;
  // All generations of a client's request have one trace; the client may send its own name for it twice.
  return {hash_text128(trace.name + "/" + std::to_string(trace.arrived.time_since_epoch().count())), 0, true};
}

json text(std::string_view key, std::string value) {
  return {{"key", key}, {"value", {{"stringValue", std::move(value)}}}};
}
json number(std::string_view key, std::int64_t value) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};
}
json seconds(std::string_view key, duration value) {
  return {{"key", key}, {"value", {{"doubleValue", to_seconds(value)}}}};
}

/// Makes the spans of one generation.
class span_writer {
 public:
  span_writer(const request_trace& trace, const trace_source& source, const wall_anchor& now, json& into)
      : trace_(trace),
        source_(source),
        now_(now),
        into_(into),
        context_(context_of(trace)),
        root_(id_of("request")) {}

  void write() {
    auto& root = add(root_, context_.span, "request", span_kind::server, trace_.arrived, trace_.ended);
    auto& said = root["attributes"];
    said.push_back(text("gen_ai.provider.name", "mooncaf"));
    said.push_back(text("gen_ai.request.model", source_.model));
    said.push_back(number("gen_ai.usage.input_tokens", trace_.prompt_tokens));
    said.push_back(number("gen_ai.usage.output_tokens", trace_.output_tokens));
    if (trace_.finish != finish_reason::none) {
      json reasons =
          json::array({{{"stringValue", trace_.finish == finish_reason::stop ? "stop" : "length"}}});
      said.push_back(
          {{"key", "gen_ai.response.finish_reasons"}, {"value", {{"arrayValue", {{"values", reasons}}}}}});
    }
    if (trace_.ttft.count() > 0) said.push_back(seconds("gen_ai.latency.time_to_first_token", trace_.ttft));
    said.push_back(text("mooncaf.request", to_string(trace_.id)));
    said.push_back(text("mooncaf.x_request_id", trace_.name));
    said.push_back(number("mooncaf.cached_tokens", trace_.cached_tokens));
    said.push_back(text("mooncaf.outcome", std::string{trace_.outcome}));
    if (!trace_.failure.empty()) fail(root, trace_.failure);
    for (const auto& attempt : trace_.attempts) write(attempt);
  }

 private:
  /// The same in every export of the trace, and another for each of its spans.
  std::uint64_t id_of(std::string_view name, std::uint32_t attempt = 0) const {
    const auto all =
        to_string(context_.trace) + to_string(trace_.id) + std::string{name} + std::to_string(attempt);
    return hash_text128(all).low | 1;  // 0 would be no id
  }

  std::string nano(time_point at) const {
    return std::to_string(
        std::chrono::nanoseconds{now_.wall.time_since_epoch() + (at - now_.steady)}.count());
  }

  json& add(std::uint64_t id, std::uint64_t parent, std::string_view name, span_kind kind, time_point from,
            time_point to) {
    json span{{"traceId", to_string(context_.trace)}, {"spanId", hex_of(id)}};
    if (parent != 0) span["parentSpanId"] = hex_of(parent);
    span["name"] = name;
    span["kind"] = static_cast<int>(kind);
    span["startTimeUnixNano"] = nano(from);
    span["endTimeUnixNano"] = nano(std::max(from, to));
    span["attributes"] = json::array();
    into_.push_back(std::move(span));
    return into_.back();
  }

  static void fail(json& span, const std::string& why) { span["status"] = {{"code", 2}, {"message", why}}; }

  void write(const attempt_trace& a) {
    const auto end = a.over.value_or(trace_.ended);
    const auto placed = a.placed.value_or(end);
    {
      auto& place = add(id_of("place", a.attempt), root_, "place", span_kind::internal, a.asked, placed);
      place["attributes"].push_back(number("mooncaf.attempt", a.attempt));
      if (!a.placed && !a.failure.empty()) fail(place, a.failure);
      if (!a.placed) return;
      auto& said = place["attributes"];
      said.push_back(number("mooncaf.local_blocks", a.where.local_blocks));
      said.push_back(number("mooncaf.source_blocks", a.where.source_blocks));
      said.push_back(seconds("mooncaf.predicted_ttft", duration{a.where.predicted_ttft_ns}));
    }
    write_prefill(a, placed, a.first.value_or(end));
    if (!a.first || end == *a.first) return;
    auto& decode = add(id_of("decode", a.attempt), root_, "decode", span_kind::internal, *a.first, end);
    decode["attributes"].push_back(text("mooncaf.node", to_string(a.where.decode_node)));
    if (!a.failure.empty()) fail(decode, a.failure);
  }

  void write_prefill(const attempt_trace& a, time_point placed, time_point end) {
    const auto id = id_of("prefill", a.attempt);
    auto& prefill = add(id, root_, "prefill", span_kind::internal, placed, end);
    prefill["attributes"].push_back(text("mooncaf.node", to_string(a.where.prefill_node)));
    if (!a.first) {
      if (!a.failure.empty()) fail(prefill, a.failure);
      return;
    }
    auto& said = prefill["attributes"];
    const auto& s = a.stats;
    said.push_back(number("mooncaf.computed_tokens", s.computed_tokens));
    said.push_back(number("mooncaf.dram_tokens", s.dram_tokens));
    said.push_back(number("mooncaf.ssd_tokens", s.ssd_tokens));
    said.push_back(number("mooncaf.remote_tokens", s.remote_tokens));
    const auto part = [&](const char* name, time_point from, time_point to) {
      if (to > from)
        add(id_of(name, a.attempt), id, name, span_kind::internal, std::max(from, placed), std::min(to, end));
    };
    part("wait", placed, placed + duration{s.queue_ns});
    part("fetch", placed, placed + duration{s.fetch_ns});
    part("compute", end - duration{s.compute_ns}, end);
  }

  const request_trace& trace_;
  const trace_source& source_;
  const wall_anchor& now_;
  json& into_;
  trace_parent context_;
  std::uint64_t root_;
};

}  // namespace

bool is_sampled(const request_trace& trace, double share) {
  if (const auto given = parse_traceparent(trace.traceparent)) return given->sampled;
  // 53 bits are what a double holds.
  return std::ldexp(static_cast<double>(context_of(trace).trace.low >> 11), -53) < share;
}

std::string otlp_body(const trace_source& source, std::span<const request_trace> traces,
                      const wall_anchor& now) {
  auto spans = json::array();
  for (const auto& trace : traces) span_writer{trace, source, now, spans}.write();
  json body;
  auto& resource = body["resourceSpans"][0];
  resource["resource"]["attributes"] = {text("service.name", "mooncaf"),
                                        text("service.version", MOONCAF_VERSION),
                                        text("service.instance.id", source.name)};
  auto& scope = resource["scopeSpans"][0];
  scope["scope"] = {{"name", "mooncaf"}};
  scope["spans"] = std::move(spans);
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace mooncaf
