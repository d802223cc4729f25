// What a scraper sees: names that dashboards know, values that were recorded, at an address that answers.

#include "actors/metrics/metrics.hpp"

#include <doctest/doctest.h>

#include "actors/metrics/metric_families.hpp"
#include "actors/metrics/metrics_endpoint.hpp"
#include "tests/actors/http/raw_client.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
using namespace std::chrono_literals;

namespace {

/// Value of the series that is written exactly so, or "absent".
std::string value_of(const std::string& text, const std::string& series) {
  const auto at = ("\n" + text).find("\n" + series + " ");
  if (at == std::string::npos) return "absent";
  const auto begin = at + series.size() + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::string type_of(const std::string& text, const std::string& name) {
  return value_of(text, "# TYPE " + name);
}

}  // namespace

TEST_CASE("every vLLM name that dashboards ask for is there from the start, with its type") {
  const auto text = metrics{"m"}.text();
  for (const auto* name :
       {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"}) {
    CHECK_MESSAGE(type_of(text, name) == "gauge", name);
    CHECK_MESSAGE(value_of(text, std::string{name} + R"({model_name="m"})") == "0", name);
  }
  for (const auto* name : {"vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
                           "vllm:prompt_tokens_total", "vllm:generation_tokens_total"}) {
    CHECK_MESSAGE(type_of(text, name) == "counter", name);
    CHECK_MESSAGE(value_of(text, std::string{name} + R"({model_name="m"})") == "0", name);
  }
  for (const auto* name : {"vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
                           "vllm:e2e_request_latency_seconds"}) {
    CHECK_MESSAGE(type_of(text, name) == "histogram", name);
    CHECK_MESSAGE(value_of(text, std::string{name} + R"(_count{model_name="m"})") == "0", name);
  }
  CHECK(value_of(text, R"(mooncaf_requests_total{model_name="m",outcome="rejected"})") == "0");
}

TEST_CASE("a request shows in tokens, hits and latencies") {
  metrics m{"m"};
  m.first_token(30ms, 100, 64);
  m.tokens_generated(1);
  m.token_gap(8ms);
  m.tokens_generated(1);
  m.request_over("finished", "a", 2s);
  m.request_over("rejected", "", 1s);
  m.tokens_of_tenant("a", 100, 64, 2);
  m.tokens_of_tenant("", 1, 1, 1);
  const auto text = m.text();
  CHECK(value_of(text, R"(vllm:prompt_tokens_total{model_name="m"})") == "100");
  CHECK(value_of(text, R"(vllm:prefix_cache_queries_total{model_name="m"})") == "100");
  CHECK(value_of(text, R"(vllm:prefix_cache_hits_total{model_name="m"})") == "64");
  CHECK(value_of(text, R"(vllm:generation_tokens_total{model_name="m"})") == "2");
  CHECK(value_of(text, R"(vllm:time_to_first_token_seconds_bucket{model_name="m",le="0.02"})") == "0");
  CHECK(value_of(text, R"(vllm:time_to_first_token_seconds_bucket{model_name="m",le="0.04"})") == "1");
  CHECK(value_of(text, R"(vllm:inter_token_latency_seconds_bucket{model_name="m",le="0.01"})") == "1");
  CHECK(value_of(text, R"(vllm:e2e_request_latency_seconds_sum{model_name="m"})") == "2");
  CHECK(value_of(text, R"(vllm:e2e_request_latency_seconds_count{model_name="m"})") == "1");
  CHECK(value_of(text, R"(mooncaf_requests_total{model_name="m",outcome="finished"})") == "1");
  CHECK(value_of(text, R"(mooncaf_requests_total{model_name="m",outcome="rejected"})") == "1");
  CHECK(value_of(text, R"(mooncaf_tenant_requests_total{model_name="m",outcome="finished",tenant="a"})") ==
        "1");
  const auto tokens = [&](const std::string& kind) {
    return value_of(text, R"(mooncaf_tenant_tokens_total{kind=")" + kind + R"(",model_name="m",tenant="a"})");
  };
  CHECK(tokens("prompt") == "100");
  CHECK(tokens("cached") == "64");
  CHECK(tokens("output") == "2");
  CHECK(text.find(R"(tenant="")") == std::string::npos);
}

TEST_CASE("state is what was reported last") {
  metrics m{"m"};
  m.set(series::running, 3);
  m.set(series::waiting, 2);
  m.set(series::running, 1);
  m.set(series::cache_usage, 0.25);
  m.set(series::kv_blocks, 10, {"free"});
  const auto text = m.text();
  CHECK(value_of(text, R"(vllm:num_requests_running{model_name="m"})") == "1");
  CHECK(value_of(text, R"(vllm:num_requests_waiting{model_name="m"})") == "2");
  CHECK(value_of(text, R"(vllm:kv_cache_usage_perc{model_name="m"})") == "0.25");
  CHECK(value_of(text, R"(mooncaf_kv_blocks{model_name="m",state="free"})") == "10");
}

TEST_CASE("a counter that others keep never falls, even when a peer takes its share away") {
  metrics m{"m"};
  const auto bytes = [&] {
    return value_of(m.text(), R"(mooncaf_transfer_bytes_total{model_name="m",path="tcp"})");
  };
  m.set(series::transfer_bytes, 100, {"tcp"});
  m.set(series::transfer_bytes, 150, {"tcp"});
  CHECK(bytes() == "150");
  m.set(series::transfer_bytes, 40, {"tcp"});
  CHECK(bytes() == "150");
  m.set(series::transfer_bytes, 60, {"tcp"});
  CHECK(bytes() == "170");
  m.set(series::kv_hit_blocks, 5, {"ssd"});
  CHECK(value_of(m.text(), R"(mooncaf_kv_hit_blocks_total{model_name="m",tier="ssd"})") == "5");
}

TEST_CASE("a model name of any characters is a label that reads back") {
  CHECK(metrics{"a\"b\\c\nd"}.text().find(R"(model_name="a\"b\\c\nd")") != std::string::npos);
}

TEST_CASE("the endpoint answers scrapers, and tells others where to look") {
  const auto meters = std::make_shared<metrics>("m");
  meters->set(series::running, 7);
  const auto server = serve_metrics("127.0.0.1", 0, [meters] { return meters->text(); }).value();
  raw_client client{server->port()};
  client.say("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto answer = client.answer();
  CHECK(answer.status == 200);
  CHECK(answer.header("content-type") == "text/plain; version=0.0.4; charset=utf-8");
  CHECK(value_of(answer.body, R"(vllm:num_requests_running{model_name="m"})") == "7");
  client.say("POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
  CHECK(client.answer().status == 405);
  client.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  CHECK(client.answer().status == 404);
}

TEST_CASE("learned prices show the latest value of every link, and of the SSD") {
  metrics m{"m"};
  for (const double rate : {1e6, 2e6}) m.set(series::link_rate, rate, {"7", "tcp"});
  for (const double latency : {0.5, 0.25}) m.set(series::link_latency, latency, {"7", "tcp"});
  m.set(series::ssd_read_rate, 5e6);
  const auto text = m.text();
  CHECK(value_of(text, R"(mooncaf_link_bytes_per_second{model_name="m",path="tcp",peer="7"})") == "2000000");
  CHECK(value_of(text, R"(mooncaf_link_latency_seconds{model_name="m",path="tcp",peer="7"})") == "0.25");
  CHECK(value_of(text, R"(mooncaf_ssd_read_bytes_per_second{model_name="m"})") == "5000000");
}

TEST_CASE("an address that is taken is named in the error") {
  const auto meters = std::make_shared<metrics>("m");
  const auto first = serve_metrics("127.0.0.1", 0, [meters] { return meters->text(); }).value();
  const auto second = serve_metrics("127.0.0.1", first->port(), [meters] { return meters->text(); });
  REQUIRE_FALSE(second.has_value());
  CHECK(second.error().detail.find("127.0.0.1:" + std::to_string(first->port())) != std::string::npos);
}

TEST_CASE("figures that somebody else keeps are counters, gauges and histograms by their names") {
  metric_families all;
  all.value("a_total", "Counted.", 3);
  all.family("b_bytes", "By name.");
  all.sample(std::uint64_t{80} << 20, {{"segment", "a\"b\\c\n"}, {"host", "h"}});
  all.family("c_seconds", "Times.", prometheus::MetricType::Histogram);
  all.histogram({0.001, 20}, {2, 1, 4}, 90.5, {{"question", "find"}});
  const auto text = all.text();
  CHECK(type_of(text, "a_total") == "counter");
  CHECK(value_of(text, "a_total") == "3");
  CHECK(type_of(text, "b_bytes") == "gauge");
  CHECK(value_of(text, "b_bytes{segment=\"a\\\"b\\\\c\\n\",host=\"h\"}") == "83886080");
  CHECK(value_of(text, "c_seconds_bucket{question=\"find\",le=\"20\"}") == "3");
  CHECK(value_of(text, "c_seconds_bucket{question=\"find\",le=\"+Inf\"}") == "7");
  CHECK(value_of(text, "c_seconds_count{question=\"find\"}") == "7");
  CHECK(value_of(text, "c_seconds_sum{question=\"find\"}") == "90.5");
}
