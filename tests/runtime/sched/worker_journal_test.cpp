// A worker's own decisions: written down, made again, and told in words.

#include "runtime/sched/journal/worker_journal.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <random>

#include "runtime/sched/journal/encoder.hpp"
#include "runtime/sched/journal/worker_replay.hpp"
#include "tests/runtime/sched/world.hpp"
#include "tests/support/golden_text.hpp"
#include "tests/support/kept_journal.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

/// What a worker meets in its life, from a seed.
class random_worker {
 public:
  random_worker(journal::worker_journal& to, std::uint64_t seed) : to_(to), random_(seed) {}

  void steps(int count) {
    while (count-- > 0) step();
  }
  std::uint64_t loads = 0, refusals = 0;

 private:
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  duration some_time() { return std::chrono::microseconds(below(400'000)); }
  model_state some_model() {
    return {{below(9) * 1e-3, below(9) * 1e-4, below(9) * 1e-9}, 0.5 + 0.1 * below(30)};
  }

  void step() {
    now_ += std::chrono::milliseconds(below(90));
    const request_id one_try{(1 + below(500)) * 128ull};
    switch (below(5)) {
      case 0: {
        load_question q;
        q.prompt_tokens = 1 + below(9000);
        q.block_tokens = 128;
        q.device_blocks = below(20);
        q.dram_blocks = below(30);
        q.held_blocks = q.dram_blocks + below(30);
        q.remote_blocks = below(70);
        q.threshold_tokens = 256;
        q.disk_parts = 1 + below(4);
        const auto disk = some_time(), link = some_time();
        q.ask([&](std::uint32_t n) { return disk + n * 1ms; },
              [&](std::uint32_t n) { return link + n * 100us; });
        const auto plan = to_.run(journal::weigh_load{one_try, now_, q, some_model()});
        loads += plan.from_disk + plan.from_remote > 0;
        return;
      }
      case 1:
        return to_.run(journal::load_ended{one_try, now_, node_id{1 + below(4)}, 30, below(31), some_time()});
      case 2:
        return to_.run(journal::prompt_computed{one_try, below(900), below(900), below(900), below(900),
                                                some_time(), some_time()});
      case 3:
        return to_.run(journal::answer_ended{one_try, below(900), some_time(), some_time(), some_time()});
      default: {
        const decode_question q{below(32), below(90'000), below(9000), below(9), below(9) == 0, 1, 100ms};
        refusals += to_.run(journal::check_join{one_try, now_, q, some_model()}).has_value();
      }
    }
  }

  journal::worker_journal& to_;
  std::mt19937_64 random_;
  time_point now_ = start;
};

std::string random_worker_journal(std::uint64_t seed, int steps) {
  std::string file;
  journal::worker_journal to{kept_in(file)};
  random_worker worker{to, seed};
  worker.steps(steps);
  CHECK(worker.loads > 0);
  CHECK(worker.refusals > 0);
  return file;
}

}  // namespace

TEST_CASE("a worker's decisions are made again from its journal, bit by bit") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::string file;
    {
      journal::worker_journal to{kept_in(file)};
      random_worker worker{to, seed};
      worker.steps(3000);
    }
    std::vector<journal::worker_line> lines;
    const auto again = journal::replay_worker(file, "j", &lines);
    REQUIRE_MESSAGE(again, to_string(again.error()));
    CHECK(!again->first);
    CHECK(again->records == 3000);
    CHECK(again->decisions > 900);
    CHECK(again->requests > 490);
    CHECK(again->end == journal::ending::closed);
    CHECK(lines.size() == 3000);
  }
}

TEST_CASE("a worker without a journal decides the same") {
  std::string file;
  journal::worker_journal writes{kept_in(file)}, does_not{{}};
  random_worker one{writes, 7}, other{does_not, 7};
  one.steps(2000);
  other.steps(2000);
  CHECK(one.loads == other.loads);
  CHECK(one.refusals == other.refusals);
}

TEST_CASE("a decision that does not follow from what was known is named") {
  std::string file;
  {
    journal::encoder to{kept_in(file)};
    load_question q;
    q.prompt_tokens = 1000;
    q.block_tokens = 100;
    q.held_blocks = 9;
    q.read = 1ms;
    const journal::weigh_load in{request_id{256}, start, q, {{1e-3, 1e-3, 0}, 1}};
    to.record(in, in.call());
    to.record(in, load_plan{});
  }
  const auto again = journal::replay_worker(file, "j");
  REQUIRE(again);
  REQUIRE(again->first);
  CHECK(again->first->record == 2);
  CHECK(again->first->call == "weigh_load of request 256");
  CHECK(again->first->recorded == "loads nothing: 0.000 ms");
  CHECK(again->first->replayed == "loads 9 blocks from its disk: 102.000 ms");
}

TEST_CASE("a worker's journal cut or altered anywhere is read as far as it is sound") {
  const auto file = random_worker_journal(3, 400);
  const auto whole = journal::replay_worker(file, "j");
  REQUIRE(whole);
  std::mt19937_64 random{5};
  for (int i = 0; i < 200; ++i) {
    const auto size = random() % file.size();
    CAPTURE(size);
    if (const auto cut = journal::replay_worker(std::string_view{file}.substr(0, size), "j")) {
      CHECK(!cut->first);
      CHECK(cut->records <= whole->records);
      CHECK(cut->end == journal::ending::open);
    } else {
      CHECK(size < journal::file_header_bytes);
    }
    auto altered = file;
    altered[size] = static_cast<char>(altered[size] ^ (1 << random() % 8));
    if (const auto read = journal::replay_worker(altered, "j")) {
      const bool noticed = read->missing || read->torn_bytes > 0 || read->end == journal::ending::open;
      CHECK(noticed);
    }
  }
}

TEST_CASE("questions that no worker asks are answered when a file holds them") {
  std::string file;
  std::mt19937_64 random{9};
  {
    journal::worker_journal to{kept_in(file)};
    const auto any = [&] {
      const std::uint64_t extremes[] = {0, 1, random(), ~std::uint64_t{0}, std::uint64_t{1} << 63};
      return extremes[random() % 5];
    };
    const auto tokens = [&] { return static_cast<std::uint32_t>(any()); };
    const auto time = [&] { return duration{static_cast<std::int64_t>(any())}; };
    const auto model = [&] {
      const auto weight = [&] { return std::bit_cast<double>(any()); };
      return model_state{{weight(), weight(), weight()}, weight()};
    };
    for (int i = 0; i < 5000; ++i) {
      const load_question q{tokens(), tokens(), tokens(), tokens(), tokens(), tokens(),
                            tokens(), tokens(), time(),   time(),   time()};
      to.run(journal::weigh_load{request_id{any()}, start + i * 1ms, q, model()});
      const decode_question join{
          any(), any(), tokens(), tokens(), any() == 1, static_cast<std::uint8_t>(any()), time()};
      static_cast<void>(to.run(journal::check_join{request_id{any()}, start + i * 1ms, join, model()}));
      to.run(journal::answer_ended{request_id{any()}, tokens(), time(), time(), time()});
    }
  }
  std::vector<journal::worker_line> lines;
  const auto again = journal::replay_worker(file, "j", &lines);
  REQUIRE_MESSAGE(again, to_string(again.error()));
  CHECK(!again->first);
  CHECK(lines.size() == 15'000);
}

TEST_CASE("journals of conductors and of workers are told apart") {
  std::string workers, conductors;
  { journal::encoder to{kept_in(workers)}; }
  { journal::encoder to{{}, {}, kept_in(conductors)}; }
  CHECK(journal::replay_worker(workers, "w")->records == 0);
  CHECK(journal::replay_worker(conductors, "c").error().detail ==
        "c: offset 0: this is no journal of a worker of mooncaf");
  CHECK(journal::replay(workers, "w").error().detail == "w: offset 0: this is no journal of mooncaf");
}

TEST_CASE("a worker's journal says what it did with a request, and why") {
  std::string file;
  journal::worker_journal to{kept_in(file)};
  load_question q;
  q.prompt_tokens = 3000;
  q.block_tokens = 100;
  q.device_blocks = 1;
  q.dram_blocks = 5;
  q.held_blocks = 9;
  q.remote_blocks = 20;
  q.ask([](std::uint32_t n) { return n * 10ms; }, [](std::uint32_t n) { return n * 1ms; });
  to.run(journal::weigh_load{request_id{256}, start, q, {{0, 1e-3, 0}, 1}});
  to.run(journal::load_ended{request_id{256}, start + 1s, node_id{4}, 15, 14, 20ms});
  to.run(journal::prompt_computed{request_id{256}, 500, 0, 1400, 1100, 30ms, 1100ms});
  to.run(journal::check_join{
      request_id{256}, start + 2s, {9, 20'000, 3000, 0, false, 1, 50ms}, {{0.02, 1e-3, 1e-6}, 1}});
  to.run(journal::answer_ended{request_id{256}, 300, 30ms, 12s, 190ms});
  to.flush();
  std::vector<journal::worker_line> lines;
  REQUIRE(journal::replay_worker(file, "j", &lines));
  REQUIRE(lines.size() == 5);
  CHECK(lines[4].text ==
        "answered 300 tokens in 12000.000 ms, 30.000 ms after its prompt came; longest between two "
        "190.000 ms");
  CHECK(lines[0].text ==
        "of 3000 tokens 5 blocks are in memory and 1 on the device, 4 more on its disk (40.000 ms), 15 more "
        "at another "
        "node (15.000 ms); without a load 2500.000 ms; loads 15 from another node: 1000.000 ms");
  CHECK(lines[1].text == "14 of 15 blocks came from node 4 in 20.000 ms");
  CHECK(lines[2].text ==
        "computed 1100 tokens in 1100.000 ms, 30.000 ms after it came; reused 500 from memory, 0 from "
        "disk, 1400 from other nodes");
  CHECK(lines[3].text.starts_with(
      "would be one of 10 in a batch of 23000 tokens: a step of 53.000 ms for a TBT of "
      "50.000 ms; refused: "));
}

TEST_CASE("workers' journals of the release before are replayed") {
  const auto computed = journal::replay_worker(testing::golden_bytes("journal_15/prefill"), "p");
  REQUIRE_MESSAGE(computed, to_string(computed.error()));
  CHECK(computed->records == 12);
  CHECK(computed->decisions == 6);
  CHECK(!computed->first);
  const auto answered = journal::replay_worker(testing::golden_bytes("journal_15/decode"), "d");
  REQUIRE_MESSAGE(answered, to_string(answered.error()));
  CHECK(answered->records == 12);
  CHECK(answered->end == journal::ending::closed);
}

TEST_CASE("every record has the bytes that a worker's journals of this version have") {
  std::string file, text;
  journal::worker_journal to{kept_in(file), {"1.2.3"}};
  const auto record = [&]<class In>(const In& in) {
    static_cast<void>(to.run(in));
    to.flush();
    text += std::string{In::name} + " " + std::to_string(file.size()) + " " +
            std::to_string(checksum64(std::as_bytes(std::span{file}))) + "\n";
  };
  const load_question q{3000, 100, 1, 5, 9, 20, 256, 2, 40ms, 15ms, 11ms};
  record(journal::weigh_load{request_id{256}, start, q, {{1e-3, 1e-4, 1e-9}, 1.25}});
  record(journal::load_ended{request_id{256}, start + 1s, node_id{4}, 15, 14, 20ms});
  record(journal::prompt_computed{request_id{256}, 500, 0, 1400, 1100, 30ms, 1100ms});
  const decode_question asked{9, 20'000, 3000, 1, false, 1, 1s};
  record(journal::check_join{request_id{384}, start + 2s, asked, {{0.02, 1e-3, 1e-6}, 1}});
  auto hurried = asked;
  hurried.tbt_slo = 1ms;
  record(journal::check_join{request_id{384}, start + 3s, hurried, {{0.02, 1e-3, 1e-6}, 1}});
  record(journal::answer_ended{request_id{384}, 300, 30ms, 12s, 190ms});
  testing::check_golden("status/worker_journal.txt", text);
}
