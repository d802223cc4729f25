#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "runtime/sim/trace_stats.hpp"
#include "tests/runtime/sim/world.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

trace_stats stats_of(const std::vector<workload_record>& records) {
  trace_stats stats;
  for (const auto& r : records) stats.add(r);
  return stats;
}

std::string text_of(const std::vector<workload_record>& records) {
  std::string text;
  for (const auto& r : records) text += to_json_line(r) + "\n";
  return text;
}

}  // namespace

TEST_CASE("a generated trace is one that the reader accepts, and the same for the same seed") {
  for (const auto kind : {workload_kind::chat, workload_kind::agent, workload_kind::long_doc}) {
    workload_options o;
    o.kind = kind;
    o.requests = 1500;
    o.burstiness = 3;
    const auto text = text_of(all_of(o));
    const auto read = read_trace(text);
    REQUIRE_MESSAGE(read, read.error().detail);
    CHECK(read->size() == 1500);
    CHECK(text == text_of(all_of(o)));
    o.seed = 2;
    CHECK(text != text_of(all_of(o)));
  }
}

TEST_CASE("a generated trace has the totals that were asked for") {
  const auto stats = stats_of(conversation_like(12'000));
  CHECK(stats.requests() == 12'000);
  CHECK(stats.mean_input() == doctest::Approx(12'035).epsilon(0.05));
  CHECK(stats.mean_output() == doctest::Approx(343).epsilon(0.05));
  CHECK(stats.span_s() == doctest::Approx(12'000 / 3.4).epsilon(0.15));
  CHECK(stats.reusable_share() > 0.25);
}

TEST_CASE("bursts change when requests come, not how many") {
  workload_options o;
  o.requests = 20'000;
  const auto even = stats_of(all_of(o));
  o.burstiness = 8;
  const auto bursty = stats_of(all_of(o));
  CHECK(bursty.span_s() == doctest::Approx(even.span_s()).epsilon(0.2));
}

TEST_CASE("a mean that makes no sense is refused") {
  workload_options o;
  o.input_mean = 1e9;
  CHECK_FALSE(generate(o));
  o = {};
  o.rate = 0;
  CHECK_FALSE(generate(o));
}

TEST_CASE("a trace is read from a file as it goes, and a bad line ends it with its number") {
  const auto path = std::string{std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "/tmp"} +
                    "/mooncaf_sim_trace_" + std::to_string(::getpid()) + ".jsonl";
  const auto records = conversation_like(300);
  std::ofstream{path} << text_of(records) << "{\"timestamp\": 99999999, \"input_length\": -3}\n";
  auto source = open_trace(path, {});
  REQUIRE(source);
  workload_record r;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto more = (*source)->next(r);
    if (!more) break;
    CHECK(r.hash_ids == records[i].hash_ids);
  }
  const auto all = load_trace(path, {});
  REQUIRE_FALSE(all);
  CHECK(all.error().detail.find(path + ":301: input_length: '-3'") == 0);
  std::remove(path.c_str());
  CHECK_FALSE(open_trace(path, {}));
}

TEST_CASE("replaying a trace several times asks for new blocks every time") {
  const auto records = conversation_like(200);
  auto source = replay_of(records, 3);
  trace_stats stats;
  for (workload_record r; *source->next(r);) stats.add(r);
  CHECK(stats.requests() == 600);
  CHECK(stats.different_blocks() == 3 * stats_of(records).different_blocks());
}
