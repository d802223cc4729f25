#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "runtime/sim/random.hpp"
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
  const auto records = conversation_like(12'000);
  const auto stats = stats_of(records);
  double input = 0, output = 0;
  for (const auto& r : records) input += r.input_tokens, output += r.output_tokens;
  CHECK(stats.requests() == 12'000);
  CHECK(input / 12'000 == doctest::Approx(12'035).epsilon(0.05));
  CHECK(output / 12'000 == doctest::Approx(343).epsilon(0.05));
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
  auto source = open_trace(path);
  REQUIRE(source);
  workload_record r;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto more = (*source)->next(r);
    if (!more) break;
    CHECK(r.hash_ids == records[i].hash_ids);
  }
  const auto all = load_trace(path);
  REQUIRE_FALSE(all);
  CHECK(all.error().detail.find(path + ":301: input_length: '-3'") == 0);
  std::remove(path.c_str());
  CHECK_FALSE(open_trace(path));
}

TEST_CASE("replaying a trace several times asks for new blocks every time") {
  const auto records = conversation_like(200);
  auto source = replay_of(records, 3);
  trace_stats stats;
  for (workload_record r; *source->next(r);) stats.add(r);
  CHECK(stats.requests() == 600);
  CHECK(stats.different_blocks() == 3 * stats_of(records).different_blocks());
}

TEST_CASE("percentiles of lengths are those of a sorted list") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    random_source random{seed};
    length_counts counts;
    std::vector<std::uint32_t> all;
    for (int i = 0; i < 997; ++i) {
      all.push_back(static_cast<std::uint32_t>(random.below(seed % 2 ? 100'000 : 50)));
      counts.add(all.back());
    }
    std::ranges::sort(all);
    for (const double q : {0.5, 0.9, 0.99, 1.0}) {
      INFO("seed ", seed, " quantile ", q);
      CHECK(counts.quantile(q) == all[static_cast<std::size_t>(std::ceil(q * 997)) - 1]);
    }
  }
}

TEST_CASE("prompts cut into other blocks share what their old blocks say that they share, and nothing more") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    random_source random{seed};
    const auto from = static_cast<std::uint32_t>(1 + random.below(600)),
               to = static_cast<std::uint32_t>(1 + random.below(600));
    const auto shared = random.below(20);
    const auto prompt = [&](std::uint64_t first_own) {
      workload_record r;
      r.input_tokens = static_cast<std::uint32_t>(shared * from + 1 + random.below(5 * from));
      for (std::uint64_t i = 0; i * from < r.input_tokens; ++i)
        r.hash_ids.push_back(i < shared ? i : first_own + i);
      return r;
    };
    auto a = prompt(1000), b = prompt(2000);
    reblock(a, from, to);
    reblock(b, from, to);
    INFO("seed ", seed, ": ", from, " to ", to, ", ", shared, " blocks shared");
    CHECK(a.hash_ids.size() == (a.input_tokens + to - 1) / to);
    std::size_t common = 0;
    while (common < std::min(a.hash_ids.size(), b.hash_ids.size()) &&
           a.hash_ids[common] == b.hash_ids[common]) {
      ++common;
    }
    CHECK(common == shared * from / to);
  }
}

TEST_CASE("the size of a trace's blocks is found out where its lengths allow one that is usual") {
  CHECK(likely_block_tokens({300, 599}, 64) == 512);
  CHECK(likely_block_tokens({300, 599}, 400) == 400);
  CHECK(likely_block_tokens({60, 70}, 0) == 64);
  CHECK(likely_block_tokens({600, ~std::uint64_t{0}}, 0) == 1024);
  CHECK(likely_block_tokens({40, 40}, 0) == 40);
  CHECK(likely_block_tokens({40, 45}, 0) == 0);
}
