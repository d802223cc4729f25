#include <doctest/doctest.h>

#include <random>

#include "runtime/base/request_ids.hpp"
#include "runtime/sched/journal/recorded_core.hpp"
#include "runtime/sched/journal/request_log.hpp"
#include "runtime/sched/journal/requests.hpp"
#include "tests/runtime/sched/world.hpp"
#include "tests/support/golden_text.hpp"
#include "tests/support/kept_journal.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

/// A conductor's core and queue, and the journal of both in memory.
struct recorded_world {
  explicit recorded_world(const conductor_options& options, admission_queue_options queued = {})
      : core(to, options), queue(to, core, queued) {}
  void record(journal::sink out) { to.begin(core.options(), queue.options(), std::move(out)); }
  std::vector<decision> submit(const schedule_request& request, time_point now) {
    std::vector<decision> out;
    queue.submit(request, now, out);
    return out;
  }
  std::vector<decision> advance(time_point now) {
    std::vector<decision> out;
    queue.advance(now, out);
    return out;
  }
  /// A node with a prefill and a decode instance, which takes `batch` requests at once.
  void add_pair(std::uint32_t batch = 8) {
    REQUIRE(core.add_node(node_id{1}, start));
    REQUIRE(core.add_instance(prefill_instance(1, node_id{1})));
    REQUIRE(core.add_instance(decode_instance(2, node_id{1}, batch)));
  }

  journal::recorder to;
  recorded_core core;
  recorded_queue queue;
};

/// A cluster's life from a seed: nodes that come and go, prompts with shared prefixes, every kind of call.
class random_life {
 public:
  random_life(recorded_world& w, std::uint64_t seed) : core_(w.core), world_(w), random_(seed) {}

  void steps(int count) {
    while (count-- > 0) step();
  }
  std::uint64_t scheduled = 0, copies = 0, changes = 0, wishes = 0, rules = 0;

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  storage_tier some_tier() { return below(2) == 0 ? storage_tier::dram : storage_tier::ssd; }
  node_id some_node() { return node_id{1 + below(12)}; }
  request_id some_request() { return request_id{1 + below(scheduled + 1)}; }
  std::vector<block_key> some_chain() { return chain(below(40), 1 + below(30)); }

  void step() {
    now_ += std::chrono::milliseconds(below(300));
    world_.advance(now_);
    switch (below(16)) {
      case 0: {
        const auto node = some_node();
        static_cast<void>(core_.add_node(node, now_));
        const auto worker = node.value * 10 + below(3);
        const bool decodes = node.value % 3 == 0 || (node.value % 3 == 1 && worker % 2 == 0);
        static_cast<void>(
            core_.add_instance(decodes ? decode_instance(worker, node) : prefill_instance(worker, node)));
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
        changes += core_.assign_roles(now_, below(8) != 0).size();
        wishes += core_.wish_nodes(now_).size();
        if (below(9) == 0)
          static_cast<void>(core_.remove_instance(worker_id{some_node().value * 10 + below(3)}));
        return;
      case 4:
        return core_.report(worker_id{some_node().value * 10 + below(3)},
                            {static_cast<std::uint32_t>(below(9)),
                             static_cast<std::uint32_t>(below(3)),
                             below(90'000),
                             {below(50), static_cast<std::uint32_t>(below(9)), below(90'000),
                              std::chrono::microseconds(below(200'000))},
                             std::chrono::milliseconds(below(1000) + (now_ - start) / 2ms)},
                            now_);
      case 5:
        for (const auto& key : some_chain()) core_.blocks_held(some_node(), {&key, 1}, some_tier());
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
        if (below(4) == 0) another_rule();
        return core_.finished(some_request(), now_, static_cast<std::uint32_t>(below(900)),
                              std::chrono::milliseconds(below(200)));
      case 11:
        core_.failed(some_request(), now_);
        core_.refused_at_decode(some_request(), now_);
        world_.queue.withdraw(some_request());
        return core_.cancelled(some_request(), now_);
      default:
        return schedule();
    }
  }

  /// As a play of the last minutes may have it, where admission is `adaptive`.
  void another_rule() {
    if (core_.options().admission != admission_policy::adaptive) return;
    const admission_rule rule{static_cast<admission_policy>(below(8)), below(2) == 0 ? 1 : 0.9};
    const std::vector<played_rule> played{{rule, below(90), 100}, {core_.rule(), below(90), 100}};
    ++rules;
    core_.play_by(rule, played, now_);
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
    static_cast<void>(world_.submit(request, now_));
  }

  recorded_core& core_;
  recorded_world& world_;
  std::mt19937_64 random_;
  time_point now_ = start;
};

conductor_options options_of(std::uint64_t seed) {
  auto o = small_options();
  o.policy = static_cast<placement_policy>(seed % 4);
  o.admission = static_cast<admission_policy>(seed % 9);
  o.ttft_slo = 3s;
  o.seed = seed;
  o.elastic = {seed % 3 == 0, 5s};
  o.scale = {.prefill = {1, 4}, .decode = {1, 4}, .down_after = 2s, .every = 500ms};
  return o;
}

/// @param made  gets how many hot chains were copied, how many roles changed, how often nodes were asked for.
struct made_of_all {
  std::uint64_t copies = 0, changes = 0, wishes = 0, rules = 0;
};
std::string random_journal(std::uint64_t seed, int steps, made_of_all* made = nullptr) {
  std::string file;
  {
    recorded_world w{options_of(seed), {6, 30s}};
    w.record(kept_in(file));
    random_life life{w, seed};
    for (int i = 0; i < 4; ++i) {
      life.steps(steps / 4);
      w.to.flush();
    }
    if (made)
      *made = {made->copies + life.copies, made->changes + life.changes, made->wishes + life.wishes,
               made->rules + life.rules};
  }
  return file;
}

/// The frames of a file, without what is before the first; the last one closes it.
std::vector<std::string> frames_of(const std::string& file) {
  std::vector<std::string> out;
  for (auto at = journal::file_header_bytes; at < file.size();) {
    const auto f = journal::frame_at(file, at);
    REQUIRE(f);
    out.push_back(file.substr(at, f->end() - at));
    at = f->end();
  }
  return out;
}

}  // namespace

TEST_CASE("a journal of random calls, replayed, gives every decision again, bit by bit") {
  made_of_all made;
  for (std::uint64_t seed = 1; seed <= 56; ++seed) {
    CAPTURE(seed);
    const auto file = random_journal(seed, 2000, &made);
    const auto again = journal::replay(file, "j");
    REQUIRE_MESSAGE(again, to_string(again.error()));
    CHECK_MESSAGE(!again->first, again->first->call << ": " << again->first->recorded << " became "
                                                    << again->first->replayed);
    CHECK(again->requests > 300);
    CHECK(again->torn_bytes == 0);
    CHECK(!again->missing);
    CHECK(again->end == journal::ending::closed);
  }
  CHECK(made.copies > 56);
  CHECK(made.changes > 56);
  CHECK(made.wishes > 20);
  CHECK(made.rules > 56);
}

TEST_CASE(
    "a journal of a line that fills up and empties gives every place, wait, refusal and withdrawal again") {
  std::uint64_t waited = 0, late = 0, full = 0, withdrawn = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const auto below = [&](std::uint64_t n) { return random() % n; };
    auto options = small_options();
    options.admission = admission_policy::queue;
    std::string file;
    recorded_world w{options, {4, 5s}};
    w.record(kept_in(file));
    w.add_pair(2);
    std::vector<request_id> placed;
    const auto note = [&](const std::vector<decision>& decided, bool later) {
      for (const auto& d : decided) {
        if (d.outcome) placed.push_back(d.id);
        late += later && d.outcome;
        full += !d.outcome;
      }
    };
    auto now = start;
    for (std::uint64_t id = 1; id <= 400; ++id) {
      now += std::chrono::milliseconds(below(2000));
      const auto keys = chain(below(5), 1 + below(9));
      auto r = request_of(id, keys, static_cast<std::uint32_t>(1 + below(900)));
      r.priority = static_cast<std::uint8_t>(below(3));
      note(w.submit(r, now), false);
      waited += w.queue.waits(r.id);
      if (below(9) == 0) withdrawn += w.queue.withdraw(request_id{id - below(4)});
      if (!placed.empty() && below(3) > 0) {
        const auto at = placed.begin() + static_cast<std::ptrdiff_t>(below(placed.size()));
        w.core.first_token(*at, 100, 0, 100ms, now);
        if (below(2) == 0) w.core.refused_at_decode(*at, now);
        else w.core.finished(*at, now, 10);
        placed.erase(at);
      }
      note(w.advance(now), true);
    }
    w.to.close();
    const auto again = journal::replay(file, "j");
    REQUIRE_MESSAGE(again, to_string(again.error()));
    CHECK_MESSAGE(!again->first, again->first->call << ": " << again->first->recorded << " became "
                                                    << again->first->replayed);
    CHECK(again->requests == 400);
  }
  CHECK(waited > 200);
  CHECK(late > 200);
  CHECK(full > 200);
  CHECK(withdrawn > 20);
}

TEST_CASE("a replay that comes to another decision names the first, with what was recorded") {
  // The journal begins too late: the core knew more than it says.
  const auto keys = chain(1, 10);
  std::string altered;
  recorded_world other{small_options()};
  other.add_pair();
  other.record(kept_in(altered));
  other.core.heartbeat(node_id{1}, start);
  CHECK(other.submit(request_of(7, keys, 1050), start).size() == 1);
  other.to.flush();
  const auto differs = journal::replay(altered, "j");
  REQUIRE(differs);
  REQUIRE(differs->first);
  CHECK(differs->first->record == 2);
  CHECK(differs->first->call == "submit of request 7");
  CHECK(differs->first->recorded.starts_with("7: prefill 1, decode 2"));
  CHECK(differs->first->replayed.find("no live prefill instance") != std::string::npos);
}

TEST_CASE("a replay whose queue lets a request go first that waited behind another one says so") {
  auto options = small_options();
  options.admission = admission_policy::queue;
  // Written with ageing that a replay does not know of.
  std::string file;
  recorded_world w{options, {10, 1s}};
  w.to.begin(w.core.options(), {10, 1h}, kept_in(file));
  w.add_pair(1);
  for (std::uint64_t id = 1; id <= 2; ++id) CHECK(w.submit(request_of(id, {}, 5000), start).size() == 1);
  auto low = request_of(3, {}, 5000), high = request_of(4, {}, 5000);
  low.priority = 2;
  high.priority = 0;
  CHECK(w.submit(low, start).empty());
  CHECK(w.submit(high, start + 10s).empty());
  for (std::uint64_t id = 1; id <= 2; ++id) {
    w.core.first_token(request_id{id}, 5000, 0, 5s, start + 11s);
    w.core.finished(request_id{id}, start + 11s);
  }
  const auto decided = w.advance(start + 12s);
  REQUIRE(!decided.empty());
  CHECK(decided.front().id == request_id{3});
  w.to.close();
  const auto differs = journal::replay(file, "j");
  REQUIRE(differs);
  REQUIRE(differs->first);
  CHECK(differs->first->call == "advance");
  CHECK(differs->first->recorded.starts_with("3: prefill 1"));
  CHECK(differs->first->replayed.starts_with("4: prefill 1"));
}

TEST_CASE("a journal cut anywhere tells what was whole") {
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
    CHECK(!cut->missing);
    CHECK(cut->end == journal::ending::open);
  }
  CHECK(journal::replay("GGUF....", "x").error().detail == "x: offset 0: this is no journal of mooncaf");
}

TEST_CASE("journals of the release before are replayed, later ones are refused and said to be later") {
  // A served burst and a simulated one under `adaptive` with changing roles, written by the release of version 15.
  for (const std::string name : {"conductor", "simulated"}) {
    CAPTURE(name);
    auto file = testing::golden_bytes("journal_15/" + name);
    const auto done = journal::replay(file, name);
    REQUIRE_MESSAGE(done, to_string(done.error()));
    CHECK(!done->first);
    CHECK(done->decisions == (name == "conductor" ? 48 : 206));
    CHECK(done->end == journal::ending::closed);
    CHECK(done->version == 15);
    CHECK(done->from.release.empty());
    file[8] = journal::journal_version;  // read by the layout of the wrong version
    CHECK_FALSE(journal::replay(file, name));
    file[8] = journal::journal_version + 1;
    CHECK(journal::replay(file, name).error().detail ==
          name +
              ": offset 8: version 18, of a later release of mooncaf; this program reads versions 15 to 17");
    file[8] = journal::oldest_version - 1;
    CHECK(journal::replay(file, name).error() == ec::incompatible);
  }
  // Forty simulated requests in a line, written by the release of version 16, which says which one it is.
  const auto last = journal::replay(testing::golden_bytes("journal_16/simulated"), "j16");
  REQUIRE_MESSAGE(last, to_string(last.error()));
  CHECK(!last->first);
  CHECK(last->decisions == 236);
  CHECK(last->version == 16);
  CHECK(!last->from.release.empty());
  const auto own = journal::replay(random_journal(5, 40), "j");
  REQUIRE(own);
  CHECK(own->version == journal::journal_version);
  CHECK(own->from.release == journal::this_program().release);
}

TEST_CASE("what is missing in a journal, or not in its place, is found and counted") {
  const auto file = random_journal(5, 4000);
  const auto whole = journal::replay(file, "j");
  REQUIRE(whole);
  const auto head = file.substr(0, journal::file_header_bytes);
  const auto frames = frames_of(file);
  REQUIRE(frames.size() == 5);
  const auto join = [&](std::vector<std::size_t> which) {
    auto out = head;
    for (const auto i : which) out += frames[i];
    return out;
  };
  const auto records_in = [&](std::size_t i) { return journal::frame_at(frames[i], 0)->records; };
  const auto gap_in = [](const std::string& altered) {
    const auto again = journal::replay(altered, "j");
    REQUIRE_MESSAGE(again, to_string(again.error()));
    REQUIRE(again->missing);
    CHECK(!again->first);
    return std::pair{*again->missing, again->records};
  };
  REQUIRE(!journal::replay(join({0, 1, 2, 3, 4}), "j")->missing);

  SUBCASE("a frame that is not there") {
    const auto [gap, records] = gap_in(join({0, 1, 3, 4}));
    CHECK(gap.at == head.size() + frames[0].size() + frames[1].size());
    CHECK(gap.missing_frames == 1);
    CHECK(gap.missing_records == records_in(2));
    CHECK(gap.unused_frames == 2);
    CHECK(gap.unused_records == records_in(3));
    CHECK(records == records_in(0) + records_in(1));
  }
  SUBCASE("any bit of a frame in the middle, that of its length first of all") {
    const auto before = head.size() + frames[0].size();
    std::mt19937_64 random{17};
    for (int i = 0; i < 100; ++i) {
      const auto at =
          i < 8 ? before + 4 + static_cast<std::size_t>(i) / 2 : before + random() % frames[1].size();
      CAPTURE(at - before);
      auto altered = file;
      altered[at] ^= static_cast<char>(1 << random() % 8);
      const auto [gap, records] = gap_in(altered);
      CHECK(gap.at == before);
      CHECK(gap.missing_frames == 1);
      CHECK(gap.missing_records == records_in(1));
      CHECK(records == records_in(0));
    }
  }
  SUBCASE("frames in another order") {
    const auto [gap, records] = gap_in(join({0, 2, 1, 3, 4}));
    CHECK(gap.missing_frames == 0);
    CHECK(gap.unused_frames == 4);
    CHECK(gap.problem == "frame 1 should be here, frame 2 is");
    CHECK(records == records_in(0));
  }
  SUBCASE("a frame of another journal") {
    const auto other = frames_of(random_journal(6, 4000));
    const auto [gap, records] = gap_in(head + frames[0] + other[1] + frames[2] + frames[3] + frames[4]);
    CHECK(gap.problem == "frame 1 is not the one that followed the frame before it");
    CHECK(records == records_in(0));
  }
  SUBCASE("frames behind the end") {
    const auto [gap, records] = gap_in(file + frames[3]);
    CHECK(gap.problem == "frames follow the one that closes the journal");
    CHECK(records == whole->records);
  }
  SUBCASE("the first frame: nothing can be made again") {
    const auto refused = journal::replay(join({1, 2, 3, 4}), "j");
    REQUIRE(!refused);
    CHECK(refused.error().code == ec::corrupt);
    CHECK(refused.error().detail.find("frame 0 should be here, frame 1 is: 1 frame with ") !=
          std::string::npos);
  }
}

TEST_CASE("a recorder that may write no more goes on without its journal, and the journal says why it ends") {
  for (const auto refusal : {journal::written::no_room, journal::written::failed}) {
    std::string file;
    recorded_world w{small_options()};
    w.record([&](std::string_view bytes, bool last) {
      if (!last && file.size() + bytes.size() > 60'000) return refusal;
      file += bytes;
      return journal::written::whole;
    });
    random_life life{w, 3};
    for (int i = 0; i < 50; ++i) {
      life.steps(50);
      w.to.flush();
    }
    CHECK(file.size() <= 60'000 + journal::closing_frame_bytes);
    const auto kept = journal::replay(file, "j");
    REQUIRE(kept);
    CHECK(!kept->first);
    CHECK(!kept->missing);
    CHECK(kept->end ==
          (refusal == journal::written::no_room ? journal::ending::full : journal::ending::failed));
    CHECK(kept->requests < life.scheduled);
  }
}

TEST_CASE("keys that were seen before cost next to nothing") {
  std::string file;
  recorded_world w{small_options()};
  w.record(kept_in(file));
  const auto keys = chain(1, 200);
  const auto cost = [&](auto&& call) {
    w.to.flush();
    const auto before = file.size();
    call();
    w.to.flush();
    return file.size() - before - journal::frame_header_bytes;
  };
  const auto ask = [&](std::uint64_t id) {
    CHECK(w.submit(request_of(id, keys, 20'050), start).size() == 1);
  };
  CHECK(cost([&] { ask(1); }) > 200 * 16);
  CHECK(cost([&] { ask(2); }) < 100);  // the rejection's text is most of it
  static_cast<void>(w.core.add_node(node_id{1}, start));
  CHECK(cost([&] { w.core.blocks_held(node_id{1}, keys, storage_tier::dram); }) <= 200 * 6 + 20);
}

TEST_CASE("an explanation lists every instance, and the first is what the policy takes") {
  /// Compares what was weighed with what was decided.
  struct comparison final : journal::replay_watcher {
    void asks(std::uint64_t, const schedule_request&, time_point) override {}
    void waits(const conductor_core&, const admission_queue&, request_id, time_point) override {}
    void weighs(const conductor_core& core, const schedule_request& request, time_point now) override {
      why = explain(core, request, now);
      // Where links are broken not everything that is listed could be taken.
      plain = !request.gateway && request.avoid.empty();
    }
    void decided(const decision& d, time_point) override {
      if (!d.outcome || !plain) return;
      const auto chosen = std::ranges::find(why.prefill, d.outcome->prefill, &prefill_candidate::id);
      REQUIRE(chosen != why.prefill.end());
      if (chosen->ttft() == why.prefill.front().ttft()) ++compared;
      CHECK(to_text(why, d.outcome).find("> " + to_string(d.outcome->prefill)) != std::string::npos);
    }
    void ended(request_id, journal::request_end) override {}

    explanation why;
    bool plain = false;
    int compared = 0;
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    auto options = options_of(seed);
    options.policy = placement_policy::kvcache_centric;
    options.admission = admission_policy::none;
    std::string file;
    recorded_world w{options};
    w.record(kept_in(file));
    random_life{w, seed}.steps(1500);
    w.to.flush();
    comparison compares;
    REQUIRE(journal::replay(file, "j", &compares));
    CHECK(compares.compared > 20);
  }
}

TEST_CASE(
    "the log of a journal says why a request waited, was refused, and what became of it after its place") {
  auto options = small_options();
  options.admission = admission_policy::queue;
  std::string file;
  recorded_world w{options, {2, 30s}};
  w.record(kept_in(file));
  w.add_pair(1);
  for (std::uint64_t id = 1; id <= 2; ++id) CHECK(w.submit(request_of(id, {}, 5000), start).size() == 1);
  for (std::uint64_t id = 3; id <= 5; ++id) static_cast<void>(w.submit(request_of(id, {}, 5000), start + 1s));
  w.core.first_token(request_id{1}, 5000, 0, 5s, start + 6s);
  w.core.refused_at_decode(request_id{1}, start + 6s);
  w.core.first_token(request_id{2}, 5000, 0, 5s, start + 7s);
  w.core.finished(request_id{2}, start + 7s, 9);
  CHECK(w.advance(start + 8s).size() == 2);
  w.core.failed(request_id{5}, start + 8s);  // the gateway's word on what was refused
  CHECK(w.submit(request_of(6, {}, 5000), start + 9s).empty());
  CHECK(w.queue.withdraw(request_id{6}));
  auto stranger = request_of(7, {}, 100);
  stranger.gateway = node_id{77};
  CHECK(w.submit(stranger, start + 10s).size() == 1);
  w.to.close();

  const auto log_of = [&](const std::string& wanted) {
    journal::request_log log{wanted};
    const auto again = journal::replay(file, "j", &log);
    REQUIRE(again);
    CHECK(!again->first);
    CHECK(again->requests == 7);
    return std::pair{log.lines(), log.why()};
  };
  const auto [lines, why] = log_of("4");
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  REQUIRE(lines.size() == 7);
  CHECK(lines[0].starts_with("#1 1 prefill 1, decode 2"));
  CHECK(has(lines[0], "; refused at decode: "));
  CHECK(!has(lines[1], "; "));
  CHECK(lines[2].ends_with("; waited 7000 ms"));
  CHECK(lines[3].ends_with("; waited 7000 ms"));
  CHECK(has(lines[4], "refused at placement"));
  CHECK(has(lines[4], "the queue is full"));
  CHECK(!has(lines[4], "failed"));
  CHECK(lines[5] == "#6 6 withdrawn while it waited");
  CHECK(has(lines[6], "the gateway is no member"));
  CHECK(has(why, "it had to wait: 1 of 1 others that waited were before it"));
  CHECK(has(why, "every decode instance had a full batch"));
  CHECK(has(why, "it was decided after 7000 ms"));
  CHECK(has(why, "\n> 1 "));
  CHECK(has(log_of("#5").second, "the queue is full"));
  CHECK(has(log_of("#5").second, "no instance was weighed for it"));
  CHECK(has(log_of("1").second, "in the end: refused at decode"));
  CHECK(log_of("99").second.empty());
}

TEST_CASE(
    "a journal's requests are a trace: each once, with its arrival, blocks and answer, however often it was "
    "placed") {
  std::string file;
  auto options = small_options();
  options.admission = admission_policy::queue;
  recorded_world w{options, {1, 30s}};
  w.record(kept_in(file));
  w.add_pair(4);
  REQUIRE(w.core.add_node(node_id{9}));
  const auto at = [](int ms) { return time_point{} + std::chrono::milliseconds(1000 + ms); };
  const auto keys = chain(7, 50);
  const auto block = w.core.options().block_tokens;
  const auto one_try = [](std::uint64_t request, std::uint64_t attempt) {
    return request_id{(request << attempt_bits) + 2 * attempt};
  };
  const auto ask = [&](request_id id, std::size_t blocks, std::uint32_t more_tokens, int arrival, int now,
                       bool resumed) {
    schedule_request r;
    r.id = id;
    r.keys = std::span{keys}.first(blocks);
    r.prompt_tokens = static_cast<std::uint32_t>(blocks) * block + more_tokens;
    r.gateway = node_id{9};
    r.arrival = at(arrival);
    r.resumed = resumed;
    return w.submit(r, at(now));
  };
  ask(one_try(11, 0), 3, 5, 100, 900, false);
  ask(one_try(12, 0), 2, 0, 40, 910, false);  // came earlier
  ask(one_try(12, 0), 2, 0, 40, 950, false);  // asked again
  ask(one_try(13, 0), 1, 1, 300, 960, false);
  w.core.failed(one_try(11, 0), at(970));     // its worker was lost
  ask(one_try(11, 1), 3, 9, 101, 980, true);  // and its age is known less exactly
  w.core.finished(one_try(12, 0), at(2000), 20);
  w.core.finished(one_try(11, 1), at(3000), 30);
  w.core.cancelled(one_try(13, 0), at(3000));
  for (std::uint64_t id = 20; id < 30; ++id) ask(one_try(id, 0), 50, 0, 4000, 4000, false);
  w.core.refused_at_decode(one_try(20, 0), at(5000));
  w.to.flush();

  const auto found = journal::requests_of(file, "j");
  REQUIRE(found);
  CHECK(found->left_out.given_up == 1);
  CHECK(found->left_out.refused_at_decode == 1);
  CHECK(found->left_out.refused == w.queue.refused());
  CHECK(found->left_out.refused > 2);
  CHECK(found->left_out.sum() == 11);
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

  journal::request_log tries{"#1"};
  REQUIRE(journal::replay(file, "j", &tries));
  CHECK(tries.explained() == one_try(11, 0));
  CHECK(tries.why().find("\nanother try of it: #5 " + to_string(one_try(11, 1)) + " prefill 1") !=
        std::string::npos);
}

TEST_CASE("every record has the bytes that journals of this version have") {
  std::string file, text;
  conductor_options options = small_options();
  options.ttft_slo = 3s;
  journal::encoder to{options, {7, 8s}, kept_in(file), {"1.2.3"}};
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
  journal::submit asked{{}, start + 5s};
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
  record_with(asked, std::vector{decision{request_id{77}, placed}});
  rejection refused;
  refused.cause = {ec::overloaded, "not in time"};
  refused.retry_after = 2s;
  refused.stage = static_cast<reject_stage>(2);
  record_with(asked, std::vector{decision{request_id{77}, tl::unexpected(refused)}});
  record_with(journal::advance{start + 5500ms}, std::vector<decision>{});
  record_with(journal::withdraw{request_id{77}}, true);
  record(journal::refused_at_decode{request_id{77}, start + 5700ms});
  record(journal::prefill_started{request_id{77}, start + 6s});
  record(journal::first_token{request_id{77}, 100, 350, 45ms, start + 7s});
  record(journal::finished{request_id{77}, start + 8s, 30, 25ms});
  record(journal::failed{request_id{78}, start + 9s});
  record(journal::cancelled{request_id{79}, start + 10s});
  record(journal::memory_of{node_id{1}, 4000});
  record_with(journal::copy_hot_blocks{start + 11s},
              std::vector{hot_copy{node_id{1}, node_id{3}, {{keys[0], {}, 0}, {keys[1], keys[0], 1}}}});
  record(journal::link_measured{node_id{1}, node_id{3}, 1.5e9, 80us});
  record(journal::disk_measured{node_id{1}, 2.5e9});
  record_with(journal::assign_roles{start + 12s, true},
              std::vector{role_change{node_id{1}, worker_role::decode, role_step::leaves, 0.75, 0.25}});
  record_with(journal::wish_nodes{start + 13s}, std::vector{scale_wish{3, 2, 0, 0.875, 0.125}});
  const admission_rule rule{admission_policy::priced, 0.9};
  record(journal::play_by{rule, {{rule, 90, 100}, {{}, 80, 100}}, start + 14s});
  testing::check_golden("status/journal.txt", text);
}
