#include "runtime/trace/otlp.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

const time_point start{1h};
/// The wall shows noon of a day when the steady clock shows `start`.
const wall_anchor clocks{start, std::chrono::system_clock::time_point{1'800'000'000s}};

request_trace served() {
  request_trace t;
  t.id = request_id{7};
  t.name = "cmpl-7";
  t.arrived = start;
  t.ended = start + 2s;
  t.outcome = "finished";
  t.finish = finish_reason::stop;
  t.prompt_tokens = 100;
  t.output_tokens = 9;
  t.ttft = 600ms;
  attempt_trace lost;
  lost.asked = start + 1ms;
  lost.placed = start + 2ms;
  lost.over = start + 100ms;
  lost.failure = "node 5 is gone";
  attempt_trace made;
  made.attempt = 1;
  made.asked = start + 200ms;
  made.placed = start + 210ms;
  made.where.prefill_node = node_id{11};
  made.where.decode_node = node_id{12};
  made.first = start + 600ms;
  made.stats.queue_ns = std::chrono::nanoseconds(50ms).count();
  made.stats.fetch_ns = std::chrono::nanoseconds(30ms).count();
  made.stats.compute_ns = std::chrono::nanoseconds(300ms).count();
  t.attempts = {lost, made};
  return t;
}

std::vector<nlohmann::json> spans_of(const request_trace& trace) {
  const auto body = nlohmann::json::parse(otlp_body({"node-a", "a model"}, {&trace, 1}, clocks));
  return body.at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans");
}

/// Milliseconds since the request came.
std::pair<int, int> times(const nlohmann::json& span) {
  const auto at = [&](const char* name) {
    return static_cast<int>((std::stoll(span.at(name).get<std::string>()) - 1'800'000'000'000'000'000) /
                            1'000'000);
  };
  return {at("startTimeUnixNano"), at("endTimeUnixNano")};
}

}  // namespace

TEST_CASE("spans lie where their steps were, below the client's") {
  auto trace = served();
  trace.traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const auto spans = spans_of(trace);
  std::vector<std::pair<std::string, std::pair<int, int>>> seen;
  std::set<std::string> ids;
  for (const auto& span : spans) {
    seen.emplace_back(span.at("name"), times(span));
    CHECK(span.at("traceId") == "4bf92f3577b34da6a3ce929d0e0e4736");
    CHECK(ids.insert(span.at("spanId")).second);
  }
  CHECK(seen == std::vector<std::pair<std::string, std::pair<int, int>>>{{"request", {0, 2000}},
                                                                         {"place", {1, 2}},
                                                                         {"prefill", {2, 100}},
                                                                         {"place", {200, 210}},
                                                                         {"prefill", {210, 600}},
                                                                         {"wait", {210, 260}},
                                                                         {"fetch", {210, 240}},
                                                                         {"compute", {300, 600}},
                                                                         {"decode", {600, 2000}}});
  CHECK(spans[0].at("parentSpanId") == "00f067aa0ba902b7");
  CHECK(spans[0].at("kind") == 2);
  for (const auto i : {1, 2, 3, 4, 8}) CHECK(spans[i].at("parentSpanId") == spans[0].at("spanId"));
  for (const auto i : {5, 6, 7}) CHECK(spans[i].at("parentSpanId") == spans[4].at("spanId"));
  CHECK(spans[2].at("status").at("message") == "node 5 is gone");
  for (const auto i : {0, 1, 4, 8}) CHECK(!spans[i].contains("status"));
}

TEST_CASE("a trace without a client's has one of its own, the same for all answers to one request") {
  auto one = served(), other = served();
  other.id = request_id{8};
  const auto a = spans_of(one), b = spans_of(other);
  CHECK(!a[0].contains("parentSpanId"));
  CHECK(a[0].at("traceId") == b[0].at("traceId"));
  CHECK(a[0].at("spanId") != b[0].at("spanId"));
  // The same x-request-id once more is another trace.
  other.arrived += 1ns;
  CHECK(spans_of(other)[0].at("traceId") != a[0].at("traceId"));
}

TEST_CASE("a client's word decides whether its trace is kept, else the share") {
  auto trace = served();
  trace.traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  CHECK(is_sampled(trace, 0));
  trace.traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
  CHECK(!is_sampled(trace, 1));
  trace.traceparent.clear();
  int kept = 0, of_more = 0;
  for (int i = 0; i < 10'000; ++i) {
    trace.name = "request " + std::to_string(i);
    CHECK(is_sampled(trace, 1));
    CHECK(!is_sampled(trace, 0));
    kept += is_sampled(trace, 0.1);
    of_more += is_sampled(trace, 0.1) && is_sampled(trace, 0.2);
  }
  CHECK(kept > 800);
  CHECK(kept < 1200);
  CHECK(of_more == kept);
}

TEST_CASE("a name that is no UTF-8 does not keep a trace from its collector") {
  auto trace = served();
  trace.name = "a\xff\xfe";
  CHECK(spans_of(trace).size() == 9);
}
