#include <doctest/doctest.h>

#include <random>

#include "runtime/sched/journal/explain.hpp"
#include "runtime/sched/journal/recorded_core.hpp"
#include "runtime/sched/journal/replay.hpp"
#include "runtime/sched/journal/requests.hpp"
#include "tests/runtime/sched/world.hpp"
#include "tests/support/golden_text.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

/// Keeps a journal in memory.
journal::sink into(std::string& file) {
  return [&file](std::string_view bytes) {
    file += bytes;
    return true;
  };
}

/// A cluster's life from a seed: nodes that come and go, prompts with shared prefixes, every kind of call.
class random_life {
 public:
  random_life(recorded_core& core, std::uint64_t seed) : core_(core), random_(seed) {}

  void steps(int count) {
    while (count-- > 0) step();
  }
  std::uint64_t scheduled = 0, copies = 0;

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  storage_tier some_tier() { return below(2) == 0 ? storage_tier::dram : storage_tier::ssd; }
  node_id some_node() { return node_id{1 + below(12)}; }
  request_id some_request() { return request_id{1 + below(scheduled + 1)}; }
  std::vector<block_key> some_chain() { return chain(below(40), 1 + below(30)); }

  void step() {
    now_ += std::chrono::milliseconds(below(300));
    switch (below(16)) {
      case 0: {
        const auto node = some_node();
        static_cast<void>(core_.add_node(node, now_));
        const auto worker = node.value * 10 + below(3);
        static_cast<void>(core_.add_instance(node.value % 3 == 0 ? decode_instance(worker, node)
                                                                 : prefill_instance(worker, node)));
        return;
      }
      case 1:
        if (below(8) == 0) static_cast<void>(core_.remove_node(some_node()));
        return core_.heartbeat(some_node(), now_);
      case 2:
        static_cast<void>(core_.set_state(worker_id{some_node().value * 10 + below(3)},
                                          static_cast<instance_state>(below(3))));
        core_.memory_of(some_node(), below(4000));
        return;
      case 3:
        if (below(4) == 0) static_cast<void>(core_.expire(now_));
        copies += core_.copy_hot_blocks(now_).size();
        if (below(9) == 0)
          static_cast<void>(core_.remove_instance(worker_id{some_node().value * 10 + below(3)}));
        return;
      case 4:
        return core_.report(worker_id{some_node().value * 10 + below(3)},
                            {static_cast<std::uint32_t>(below(9)),
                             static_cast<std::uint32_t>(below(3)),
                             below(90'000),
                             {below(50), static_cast<std::uint32_t>(below(9)), below(90'000),
                              std::chrono::microseconds(below(200'000))}},
                            now_);
      case 5:
        for (const auto& key : some_chain())
          core_.block_held(some_node(), key, some_tier());
        return;
      case 6:
        return core_.blocks_held(some_node(), some_chain(), some_tier());
      case 7:
        return core_.blocks_gone(some_node(), some_chain());
      case 8: {
        if (below(5) == 0) core_.forget_blocks(some_node());
        const std::vector peers{some_node(), some_node()};
        return core_.unreachable(some_node(), std::span{peers}.first(below(3)));
      }
      case 9:
        core_.link_measured(some_node(), some_node(), static_cast<double>(below(1 << 30)),
                            std::chrono::microseconds(below(1 << 20)));
        core_.disk_measured(some_node(), static_cast<double>(below(1 << 30)));
        return core_.first_token(some_request(), static_cast<std::uint32_t>(below(3000)),
                                 static_cast<std::uint32_t>(below(3000)),
                                 std::chrono::milliseconds(below(4000)), now_);
      case 10:
        core_.prefill_started(some_request(), now_);
        return core_.finished(some_request(), now_);
      case 11:
        core_.failed(some_request(), now_);
        return core_.cancelled(some_request(), now_);
      default:
        return schedule();
    }
  }

  void schedule() {
    // Half of them begin alike, so that blocks become hot.
    const auto keys = below(2) == 0 ? chain(0, 1 + below(30)) : some_chain();
    const std::vector avoid{worker_id{some_node().value * 10}};
    auto request = request_of(++scheduled, keys, static_cast<std::uint32_t>(below(keys.size() * 100 + 200)));
    request.priority = static_cast<std::uint8_t>(below(3));
    if (below(3) == 0) request.ttft_slo = std::chrono::milliseconds(1 + below(9000));
    if (below(4) == 0) request.avoid = avoid;
    if (below(2) == 0) request.gateway = some_node();
    if (below(2) == 0) request.arrival = now_ - std::chrono::milliseconds(below(4000));
    static_cast<void>(core_.schedule(request, now_));
  }

  recorded_core& core_;
  std::mt19937_64 random_;
  time_point now_ = start;
};

conductor_options options_of(std::uint64_t seed) {
  auto o = small_options();
  o.policy = static_cast<placement_policy>(seed % 4);
  o.admission = static_cast<admission_policy>(seed % 7);
  o.ttft_slo = 3s;
  o.seed = seed;
  return o;
}

/// @param copies  gets how many hot chains were copied.
std::string random_journal(std::uint64_t seed, int steps, std::uint64_t* copies = nullptr) {
  std::string file;
  recorded_core core{options_of(seed)};
  core.record_to(into(file));
  random_life life{core, seed};
  for (int i = 0; i < 4; ++i) {
    life.steps(steps / 4);
    core.flush_journal();
  }
  if (copies) *copies += life.copies;
  return file;
}

}  // namespace

TEST_CASE("a journal of random calls, replayed, gives every decision again, bit by bit") {
  std::uint64_t copies = 0;
  for (std::uint64_t seed = 1; seed <= 56; ++seed) {
    CAPTURE(seed);
    const auto file = random_journal(seed, 2000, &copies);
    const auto again = journal::replay(file, "j");
    REQUIRE_MESSAGE(again, to_string(again.error()));
    CHECK_MESSAGE(!again->first, again->first->call << ": " << again->first->recorded << " became "
                                                    << again->first->replayed);
    CHECK(again->requests > 300);
    CHECK(again->torn_bytes == 0);
  }
  CHECK(copies > 56);
}

TEST_CASE("a replay that comes to another decision names the first, with what was recorded") {
  // The journal begins too late: the core knew more than it says.
  const auto keys = chain(1, 10);
  std::string altered;
  recorded_core other{small_options()};
  static_cast<void>(other.add_node(node_id{1}, start));
  static_cast<void>(other.add_instance(prefill_instance(1, node_id{1})));
  static_cast<void>(other.add_instance(decode_instance(2, node_id{1})));
  other.record_to(into(altered));
  other.heartbeat(node_id{1}, start);
  static_cast<void>(other.schedule(request_of(7, keys, 1050), start));
  other.flush_journal();
  const auto differs = journal::replay(altered, "j");
  REQUIRE(differs);
  REQUIRE(differs->first);
  CHECK(differs->first->record == 2);
  CHECK(differs->first->call == "schedule of request 7");
  CHECK(differs->first->recorded.starts_with("prefill 1, decode 2"));
  CHECK(differs->first->replayed.find("no live prefill instance") != std::string::npos);
}

TEST_CASE("a journal cut anywhere tells what was whole, and a damaged one where and why") {
  const auto file = random_journal(5, 400);
  const auto whole = journal::replay(file, "j");
  REQUIRE(whole);
  std::mt19937_64 random{11};
  for (int i = 0; i < 200; ++i) {
    const auto size = random() % file.size();
    CAPTURE(size);
    const auto cut = journal::replay(std::string_view{file}.substr(0, size), "j");
    if (!cut) {
      // Not even the options are there.
      CHECK(cut.error().detail.starts_with("j: offset "));
      continue;
    }
    CHECK(!cut->first);
    CHECK(cut->records <= whole->records);
  }
  auto damaged = file;
  damaged[damaged.size() / 2] ^= 1;
  const auto refused = journal::replay(damaged, "j");
  REQUIRE(!refused);
  CHECK(refused.error().code == ec::corrupt);
  CHECK(refused.error().detail.find("fails its checksum") != std::string::npos);
  CHECK(journal::replay("GGUF....", "x").error().detail == "x: offset 0: this is no journal of mooncaf");
  auto newer = file;
  ++newer[8];
  CHECK(journal::replay(newer, "x").error() == ec::incompatible);
}

TEST_CASE("a recorder that may write no more goes on without its journal") {
  std::string file;
  recorded_core core{small_options()};
  core.record_to([&](std::string_view bytes) {
    if (file.size() + bytes.size() > 60'000) return false;
    file += bytes;
    return true;
  });
  random_life life{core, 3};
  for (int i = 0; i < 50; ++i) {
    life.steps(50);
    core.flush_journal();
  }
  CHECK(file.size() <= 60'000);
  const auto kept = journal::replay(file, "j");
  REQUIRE(kept);
  CHECK(!kept->first);
  CHECK(kept->requests < life.scheduled);
}

TEST_CASE("keys that were seen before cost next to nothing") {
  std::string file;
  recorded_core core{small_options()};
  core.record_to(into(file));
  const auto keys = chain(1, 200);
  const auto cost = [&](auto&& call) {
    core.flush_journal();
    const auto before = file.size();
    call();
    core.flush_journal();
    return file.size() - before - journal::frame_header_bytes;
  };
  const auto ask = [&](std::uint64_t id) {
    static_cast<void>(core.schedule(request_of(id, keys, 20'050), start));
  };
  CHECK(cost([&] { ask(1); }) > 200 * 16);
  CHECK(cost([&] { ask(2); }) < 100);  // the rejection's text is most of it
  static_cast<void>(core.add_node(node_id{1}, start));
  CHECK(cost([&] {
          for (const auto& key : keys) core.block_held(node_id{1}, key, storage_tier::dram);
        }) <= 200 * 6 + 20);
}

TEST_CASE("an explanation lists every instance, and the first is what the policy takes") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    auto options = options_of(seed);
    options.policy = placement_policy::kvcache_centric;
    options.admission = admission_policy::none;
    std::string file;
    recorded_core core{options};
    core.record_to(into(file));
    random_life{core, seed}.steps(1500);
    core.flush_journal();
    explanation why;
    int compared = 0;
    const auto again = journal::replay(
        file, "j",
        [&](std::uint64_t, const conductor_core& then, const journal::schedule& call) {
          why = explain(then, call.request, call.now);
        },
        [&](std::uint64_t, const journal::schedule& call, const tl::expected<placement, rejection>& answer) {
          // Where links are broken not everything that is listed could be taken.
          if (!answer || call.request.gateway || !call.request.avoid.empty()) return;
          const auto chosen = std::ranges::find(why.prefill, answer->prefill, &prefill_candidate::id);
          REQUIRE(chosen != why.prefill.end());
          if (chosen->ttft() == why.prefill.front().ttft()) ++compared;
          CHECK(to_text(why, answer).find("> " + to_string(answer->prefill)) != std::string::npos);
        });
    REQUIRE(again);
    CHECK(compared > 20);
  }
}

TEST_CASE(
    "a journal's requests are a trace: each once, with its arrival, blocks and answer, however often it was "
    "placed") {
  std::string file;
  recorded_core core{small_options()};
  core.record_to(into(file));
  REQUIRE(core.add_node(node_id{1}));
  REQUIRE(core.add_instance(prefill_instance(1, node_id{1})));
  REQUIRE(core.add_instance(decode_instance(2, node_id{1})));
  const auto at = [](int ms) { return time_point{} + std::chrono::milliseconds(1000 + ms); };
  const auto keys = chain(7, 5);
  const auto block = core.options().block_tokens;
  const auto ask = [&](std::uint64_t id, std::size_t blocks, std::uint32_t more_tokens, int arrival, int now,
                       bool resumed) {
    schedule_request r;
    r.id = request_id{id};
    r.keys = std::span{keys}.first(blocks);
    r.prompt_tokens = static_cast<std::uint32_t>(blocks) * block + more_tokens;
    r.gateway = node_id{9};
    r.arrival = at(arrival);
    r.resumed = resumed;
    static_cast<void>(core.schedule(r, at(now)));
  };
  ask(11, 3, 5, 100, 900, false);
  ask(12, 2, 0, 40, 910, false);  // came earlier, and waited
  ask(12, 2, 0, 40, 950, false);  // asked again while it waits
  ask(13, 1, 1, 300, 960, false);
  core.failed(request_id{11}, at(970));  // its worker was lost: the rest of it has another id
  ask(14, 3, 9, 100, 980, true);
  core.finished(request_id{12}, at(2000), 20);
  core.finished(request_id{14}, at(3000), 30);
  core.cancelled(request_id{13}, at(3000));
  core.flush_journal();

  const auto found = journal::requests_of(file, "j");
  REQUIRE(found);
  CHECK(found->left_out == 1);
  REQUIRE(found->records.size() == 2);
  const auto& first = found->records[0];
  const auto& second = found->records[1];
  CHECK(first.timestamp_ms == 0);
  CHECK(second.timestamp_ms == 60);
  CHECK(first.input_tokens == 2 * block);
  CHECK(first.output_tokens == 20);
  CHECK(second.input_tokens == 3 * block + 5);
  CHECK(second.output_tokens == 30);
  REQUIRE(first.hash_ids.size() == 2);
  REQUIRE(second.hash_ids.size() == 4);
  CHECK(std::equal(first.hash_ids.begin(), first.hash_ids.end(), second.hash_ids.begin()));
  CHECK_FALSE(journal::requests_of("hello", "j"));
}

TEST_CASE("every record has the bytes that journals of this version have") {
  std::string file, text;
  conductor_options options = small_options();
  options.ttft_slo = 3s;
  journal::encoder to{options, into(file)};
  const auto keys = chain(7, 5);
  const std::vector peers{node_id{3}, node_id{4}};
  const std::vector avoid{worker_id{31}};
  const auto note = [&]<class In>(const In&) {
    to.flush();
    text += std::string{In::name} + " " + std::to_string(file.size()) + " " +
            std::to_string(checksum64(std::as_bytes(std::span{file}))) + "\n";
  };
  const auto record = [&](auto in) {
    to.record(in);
    note(in);
  };
  const auto record_with = [&](auto in, const auto& outcome) {
    to.record(in, outcome);
    note(in);
  };
  const result<void> fine;
  const result<void> bad = fail(ec::invalid_argument, "no such node");
  record_with(journal::add_node{node_id{1}, start}, fine);
  record_with(journal::add_node{node_id{2}, start + 1s}, bad);
  record_with(journal::add_instance{prefill_instance(11, node_id{1})}, fine);
  record_with(journal::add_instance{decode_instance(12, node_id{1})}, bad);
  record_with(journal::remove_node{node_id{2}}, std::vector{request_id{5}, request_id{9}});
  record_with(journal::remove_instance{worker_id{12}}, std::vector<request_id>{});
  record_with(journal::set_state{worker_id{11}, static_cast<instance_state>(1)}, fine);
  record(journal::report{worker_id{11}, {3, 4, 5000, {6, 7, 8000, 9ms}}, start + 2s});
  record(journal::heartbeat{node_id{1}, start + 3s});
  record_with(journal::expire{start + 4s}, expiry{{node_id{1}}, {request_id{6}}});
  record(journal::unreachable{node_id{1}, peers});
  record(journal::blocks_held{node_id{1}, keys, storage_tier::ssd});
  record(journal::blocks_gone{node_id{1}, std::span{keys}.last(2)});
  record(journal::forget_blocks{node_id{1}});
  journal::schedule asked{{}, start + 5s};
  asked.request.id = request_id{77};
  asked.request.keys = keys;
  asked.request.prompt_tokens = 450;
  asked.request.max_tokens = 33;
  asked.request.priority = 2;
  asked.request.ttft_slo = 700ms;
  asked.request.tbt_slo = 20ms;
  asked.request.avoid = avoid;
  asked.request.gateway = node_id{1};
  asked.request.arrival = start + 4500ms;
  asked.request.resumed = true;
  asked.request.tenant = 99;
  placement placed;
  placed.prefill = worker_id{11};
  placed.decode = worker_id{12};
  placed.prefill_node = node_id{1};
  placed.decode_node = node_id{2};
  placed.local_blocks = 3;
  placed.source = node_id{4};
  placed.source_blocks = 4;
  placed.source_tier = storage_tier::ssd;
  placed.beside = {{node_id{3}, 2}};
  placed.predicted_ttft = 12ms;
  placed.predicted_tbt = 3ms;
  placed.replicate = true;
  record_with(asked, tl::expected<placement, rejection>{placed});
  rejection refused;
  refused.cause = {ec::overloaded, "not in time"};
  refused.retry_after = 2s;
  refused.stage = static_cast<reject_stage>(2);
  record_with(asked, tl::expected<placement, rejection>{tl::unexpect, refused});
  record(journal::prefill_started{request_id{77}, start + 6s});
  record(journal::first_token{request_id{77}, 100, 350, 45ms, start + 7s});
  record(journal::finished{request_id{77}, start + 8s, 30});
  record(journal::failed{request_id{78}, start + 9s});
  record(journal::cancelled{request_id{79}, start + 10s});
  record(journal::memory_of{node_id{1}, 4000});
  record_with(journal::copy_hot_blocks{start + 11s},
              std::vector{hot_copy{node_id{1}, node_id{3}, {{keys[0], {}, 0}, {keys[1], keys[0], 1}}}});
  record(journal::link_measured{node_id{1}, node_id{3}, 1.5e9, 80us});
  record(journal::disk_measured{node_id{1}, 2.5e9});
  testing::check_golden("status/journal.txt", text);
}
