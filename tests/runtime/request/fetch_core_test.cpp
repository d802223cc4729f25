// Which node sends which piece of a fetch, what breaks off, what is verified, and that no pin is left:
// scripted, and in random histories. tests/actors/messenger_test.cpp has the same over real data planes.

#include "runtime/request/fetch_core.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr node_id source{2}, beside{3}, third{4};

/// 1 KiB a layer; two layers are read at full speed.
constexpr kv_layout layout{
    .n_layers = 8, .n_kv_heads = 2, .head_dim = 32, .block_tokens = 4, .dtype = kv_dtype::f16};
constexpr kv_layout in_pieces{.n_layers = 8,
                              .n_kv_heads = 2,
                              .head_dim = 32,
                              .block_tokens = 4,
                              .dtype = kv_dtype::f16,
                              .pages = page_order::layer_first};

fetch_options options(const kv_layout& of_blocks = layout) {
  fetch_options out;
  out.layout = of_blocks;
  out.pieces.run_blocks = 4;
  out.pieces.full_speed = 2 * of_blocks.layer_bytes();
  out.link = [](node_id, std::uint64_t bytes, time_point) { return duration{bytes}; };
  return out;
}

remote_blocks blocks(std::uint32_t count, std::uint64_t at = 0) {
  remote_blocks out{region_id{at + 1}, {}};
  for (std::uint32_t i = 0; i < count; ++i) out.blocks.push_back({{i + 1, 1}, at + i, 100 + i});
  return out;
}

fetch_plan plan(std::uint32_t count, std::uint32_t skip = 0, std::vector<prefix_holder> others = {}) {
  static std::uint64_t requests = 0;
  fetch_plan out;
  out.id = {request_id{++requests}, 0};
  out.source = source;
  for (const auto& b : blocks(count).blocks) out.keys.push_back(b.key);
  out.skip = skip;
  for (auto i = skip; i < count; ++i) out.slots.push_back(50 + i);
  out.beside = std::move(others);
  return out;
}

struct fetch_world {
  explicit fetch_world(fetch_options o = options()) : core(std::move(o)) {
    for (const auto node : {source, beside, third}) core.peer_up(node);
  }
  void begin(const fetch_plan& what, bool by_layers = false) {
    core.fetch(ticket, what, by_layers);
    look();
  }
  void pinned(node_id node, remote_blocks held) {
    core.pinned(ticket, node, std::move(held), time_point{});
    look();
  }
  void look() { seen = core.take_actions(); }
  /// Of this kind, since the last look.
  template <class T>
  std::vector<T> all() const {
    std::vector<T> out;
    for (const auto& a : seen) {
      if (const auto* wanted = std::get_if<T>(&a)) out.push_back(*wanted);
    }
    return out;
  }
  template <class T>
  T one() const {
    const auto found = all<T>();
    REQUIRE(found.size() == 1);
    return found.front();
  }
  /// The oldest read of the node ends.
  void end(node_id from, const error& failure = {}) {
    const auto i = std::ranges::find(reads, from, &fetch_action::read::from);
    REQUIRE(i != reads.end());
    const auto id = i->id;
    reads.erase(i);
    core.ended(id, failure);
    take_reads();
  }
  void take_reads() {
    look();
    for (auto& r : all<fetch_action::read>()) reads.push_back(r);
  }
  std::size_t under_way(node_id from) const {
    return static_cast<std::size_t>(std::ranges::count(reads, from, &fetch_action::read::from));
  }

  static constexpr fetch_ticket ticket = 7;
  fetch_core core;
  fetch_actions seen;
  std::vector<fetch_action::read> reads;
};

const error lost{ec::peer_lost, "gone"};

}  // namespace

TEST_CASE_FIXTURE(fetch_world, "runs of whole blocks come two at a time, verified as they come") {
  begin(plan(11, 1));
  core.pinned(ticket, source, blocks(11), time_point{});
  take_reads();
  REQUIRE(reads.size() == 2);  // of three runs
  CHECK(reads[0].at == 0);
  CHECK(reads[0].length == layout.block_bytes());
  REQUIRE(reads[0].blocks.size() == 4);
  CHECK(reads[0].blocks[0].slot == 51);
  CHECK(reads[0].blocks[0].offset == 1);
  CHECK(reads[0].blocks[0].checksum == 101);
  CHECK(reads[1].blocks[0].slot == 55);
  end(source);
  end(source);
  CHECK(reads.at(0).blocks.size() == 2);
  end(source);
  CHECK(one<fetch_action::release>().node == source);
  CHECK(one<fetch_action::answer>().got.blocks.size() == 10);
  CHECK(core.size() == 0);
}

TEST_CASE_FIXTURE(fetch_world,
                  "layers come in pieces at full speed, all of them at once, and are verified at the end") {
  begin(plan(3), true);
  core.pinned(ticket, source, blocks(3), time_point{});
  take_reads();
  REQUIRE(reads.size() == 4);
  CHECK(reads[1].first_layer == 2);
  CHECK(reads[1].layers == 2);
  CHECK(reads[1].at == 2 * layout.layer_bytes());
  CHECK(reads[1].length == 2 * layout.layer_bytes());
  CHECK(reads[1].blocks.size() == 3);
  CHECK(!reads[1].blocks[0].checksum);
  for (int i = 0; i < 4; ++i) end(source);
  CHECK(one<fetch_action::verify>().slots == std::vector<slot_index>{50, 51, 52});
  CHECK(one<fetch_action::release>().node == source);
  SUBCASE("all are as they should be") {
    core.verified(ticket, 3);
    look();
    CHECK(one<fetch_action::answer>().got.blocks.size() == 3);
  }
  SUBCASE("one is not: a prefix that is computed with is right as a whole or not at all") {
    core.verified(ticket, 2);
    look();
    CHECK(one<fetch_action::answer>().got.blocks.empty());
  }
}

TEST_CASE(
    "runs of blocks that lie in several pieces are verified at the end, and count as far as they are good") {
  fetch_world w{options(in_pieces)};
  w.begin(plan(4));
  w.core.pinned(w.ticket, source, blocks(4), time_point{});
  w.take_reads();
  CHECK(!w.reads.at(0).blocks[0].checksum);
  w.end(source);
  CHECK(w.one<fetch_action::verify>().checksums == std::vector<std::uint64_t>{100, 101, 102, 103});
  w.core.verified(w.ticket, 2);
  w.look();
  CHECK(w.one<fetch_action::answer>().got.blocks.size() == 2);
}

TEST_CASE_FIXTURE(fetch_world, "pieces come from every node that has them, the fewest first") {
  begin(plan(32, 0, {{beside, 32}, {third, 9}}));
  const auto pins = all<fetch_action::pin>();
  REQUIRE(pins.size() == 3);
  CHECK(pins[2].keys.size() == 9);
  CHECK(pins[1].worth_ns == 1);  // of memory alone
  SUBCASE("that pinned before the source") {
    core.pinned(ticket, beside, blocks(32, 1000), time_point{});
    core.pinned(ticket, third, blocks(9, 2000), time_point{});
    core.pinned(ticket, source, blocks(32), time_point{});
  }
  SUBCASE("or after it") {
    core.pinned(ticket, source, blocks(32), time_point{});
    core.pinned(ticket, beside, blocks(32, 1000), time_point{});
    core.pinned(ticket, third, blocks(9, 2000), time_point{});
  }
  take_reads();
  CHECK(under_way(source) == 2);
  CHECK(under_way(beside) == 2);
  // Of eight runs the third node has the first two, which may be on their way already.
  CHECK(under_way(third) <= 1);
  while (!reads.empty()) end(reads.front().from);
  CHECK(all<fetch_action::release>().size() == 3);
  CHECK(one<fetch_action::answer>().got.blocks.size() == 32);
}

TEST_CASE_FIXTURE(fetch_world, "what a node beside the source cannot give comes from the source") {
  const auto others = std::vector<prefix_holder>{{beside, 4}};
  auto there = blocks(4, 1000);
  bool pins = true;
  SUBCASE("it has other bytes: another device computed them") { there.blocks[2].checksum ^= 1; }
  SUBCASE("it has fewer than it was said to") { there.blocks.resize(3); }
  SUBCASE("it does not answer") { pins = false; }
  SUBCASE("it refuses") {
    pins = false;
    begin(plan(4, 0, others), true);
    core.not_pinned(ticket, beside, lost);
  }
  if (core.size() == 0) begin(plan(4, 0, others), true);
  if (pins) core.pinned(ticket, beside, there, time_point{});
  core.pinned(ticket, source, blocks(4), time_point{});
  take_reads();
  CHECK(under_way(beside) == 0);
  for (int i = 0; i < 4; ++i) end(source);
  CHECK(one<fetch_action::verify>().slots.size() == 4);
  CHECK(all<fetch_action::release>().size() == 2);  // it may pin them still
}

TEST_CASE_FIXTURE(fetch_world, "a node that is no peer, or has nothing behind what is here, is not asked") {
  core.peer_down(third);
  begin(plan(4, 2, {{beside, 2}, {third, 4}}));
  CHECK(one<fetch_action::pin>().node == source);
}

TEST_CASE_FIXTURE(fetch_world, "a fetch from a node that is no peer fails, by layers with nothing") {
  core.peer_down(source);
  SUBCASE("runs") {
    begin(plan(4));
    CHECK(one<fetch_action::answer>().failure.code == ec::unavailable);
  }
  SUBCASE("layers") {
    begin(plan(4), true);
    CHECK(one<fetch_action::answer>().failure.code == ec::none);
    CHECK(all<fetch_action::give_up>().size() == 1);
  }
  CHECK(all<fetch_action::release>().empty());
}

TEST_CASE_FIXTURE(fetch_world, "a source that refuses ends the fetch, and every pin of it") {
  begin(plan(8, 0, {{beside, 8}}));
  core.pinned(ticket, beside, blocks(8, 1000), time_point{});
  core.not_pinned(ticket, source, lost);
  look();
  CHECK(all<fetch_action::release>().size() == 2);
  CHECK(one<fetch_action::answer>().failure.code == ec::peer_lost);
  core.pinned(ticket, source, blocks(8), time_point{});  // too late: nobody's business
  look();
  CHECK(seen.empty());
}

TEST_CASE_FIXTURE(fetch_world, "without blocks of its source nothing comes, whoever is beside it") {
  begin(plan(4, 0, {{beside, 4}}), true);
  core.pinned(ticket, beside, blocks(4, 1000), time_point{});
  core.pinned(ticket, source, blocks(3), time_point{});
  look();
  CHECK(all<fetch_action::read>().empty());
  CHECK(all<fetch_action::give_up>().size() == 1);
  CHECK(one<fetch_action::answer>().got.blocks.empty());
}

TEST_CASE_FIXTURE(fetch_world, "a fetch that is expected to take longer than it is worth is not begun") {
  auto what = plan(4);
  what.worth_ns = static_cast<std::int64_t>(4 * layout.block_bytes());
  SUBCASE("it is not") {
    begin(what);
    pinned(source, blocks(4));
    CHECK(all<fetch_action::read>().size() == 1);
  }
  SUBCASE("it is") {
    --what.worth_ns;
    begin(what);
    pinned(source, blocks(4));
    CHECK(one<fetch_action::answer>().got.blocks.empty());
  }
}

TEST_CASE_FIXTURE(fetch_world,
                  "the pieces of a node that fails come from the others, as far as they have them") {
  begin(plan(32, 0, {{beside, 20}}));
  core.pinned(ticket, source, blocks(32), time_point{});
  core.pinned(ticket, beside, blocks(20, 1000), time_point{});
  take_reads();
  SUBCASE("the source") {
    end(source, lost);
    end(source, lost);
    CHECK(under_way(source) == 0);
    while (!reads.empty()) end(beside);
    CHECK(one<fetch_action::answer>().got.blocks.size() == 20);
  }
  SUBCASE("the other") {
    end(beside, lost);
    while (!reads.empty()) end(reads.front().from);
    CHECK(one<fetch_action::answer>().got.blocks.size() == 32);
  }
  SUBCASE("both: what is behind the gap is no prefix") {
    end(source);
    end(source, lost);
    while (!reads.empty()) end(reads.front().from, lost);
    const auto answer = one<fetch_action::answer>();
    CHECK(answer.failure.code == ec::none);
    CHECK(answer.got.blocks.size() == 4);
  }
}

TEST_CASE_FIXTURE(fetch_world,
                  "layers that nobody can send any more are given up at once, not when the last read ends") {
  begin(plan(3, 0, {{beside, 2}}), true);
  core.pinned(ticket, source, blocks(3), time_point{});
  take_reads();
  CHECK(reads.size() == 2);
  end(source, lost);
  CHECK(all<fetch_action::give_up>().size() == 1);
  CHECK(all<fetch_action::answer>().empty());
  end(source);
  CHECK(one<fetch_action::answer>().got.blocks.empty());
}

TEST_CASE_FIXTURE(fetch_world, "a fetch that is stopped cancels its reads, and answers with what arrived") {
  const auto what = plan(32);
  begin(what);
  core.pinned(ticket, source, blocks(32), time_point{});
  take_reads();
  end(source);
  core.stop(what.id);
  look();
  CHECK(all<fetch_action::cancel>().size() == 2);
  CHECK(all<fetch_action::answer>().empty());
  end(source);  // it was too late to cancel it
  CHECK(all<fetch_action::read>().empty());
  end(source, {ec::cancelled, "stopped"});
  CHECK(one<fetch_action::answer>().got.blocks.size() == 8);
}

TEST_CASE_FIXTURE(fetch_world, "a fetch that is stopped before its source has pinned does not wait for it") {
  const auto what = plan(4, 0, {{beside, 4}});
  begin(what);
  core.pinned(ticket, beside, blocks(4, 1000), time_point{});
  core.stop(what.id);
  look();
  CHECK(all<fetch_action::release>().size() == 2);
  const auto answer = one<fetch_action::answer>();
  CHECK(answer.got.blocks.empty());
  CHECK(answer.failure.code == ec::none);
}

// ---- random histories

namespace {

/// A fetch among nodes that pin late, refuse, have other bytes, fail and leave; every rule is looked at with
/// every action.
class fetch_history {
 public:
  explicit fetch_history(std::uint64_t seed) : luck_(seed), core_(options(chance(20) ? in_pieces : layout)) {}

  void play() {
    for (const auto node : nodes) {
      if (!chance(10)) core_.peer_up(node);
    }
    const auto fetches = 1 + below(3);
    for (std::uint64_t f = 1; f <= fetches; ++f) begin(f);
    look();
    while (core_.size() > 0) {
      REQUIRE(steps_++ < 2000);
      step();
      look();
    }
    // Pins may be answered after the end, and then nothing may come of it.
    for (const auto& p : pins_) core_.pinned(p.fetch, p.node, blocks(4), time_point{});
    CHECK(core_.take_actions().empty());
    for (const auto& [fetch, k] : known_) {
      CHECK(k.answers == 1);
      CHECK(k.asked == k.released);
    }
    CHECK(reads_.empty());
  }

 private:
  static constexpr node_id nodes[] = {source, beside, third};
  struct known {
    fetch_plan plan;
    bool by_layers = false, stopped = false, gave_up = false;
    std::multiset<node_id> asked, released;
    std::set<node_id> failed;                                     ///< asked for nothing more
    std::map<std::pair<slot_index, std::uint32_t>, int> arrived;  ///< by slot and first layer
    std::set<std::pair<slot_index, std::uint32_t>> flying;
    std::optional<std::uint32_t> verifies;
    int answers = 0;
  };

  bool chance(unsigned percent) { return luck_() % 100 < percent; }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(luck_() % n); }

  void begin(std::uint64_t ticket) {
    const auto count = 1 + below(30);
    auto what = plan(count, below(std::min(count, 6u)));
    for (const auto node : {beside, third}) {
      if (chance(70)) what.beside.push_back({node, 1 + below(count + 2)});
    }
    if (chance(10)) what.worth_ns = 1 + below(2 * count * static_cast<std::uint32_t>(layout.block_bytes()));
    auto& k = known_[ticket];
    k.plan = what;
    k.by_layers = chance(50);
    core_.fetch(ticket, what, k.by_layers);
  }

  void step() {
    if (chance(3)) {
      auto& k = known_.at(1 + below(static_cast<std::uint32_t>(known_.size())));
      core_.stop(k.plan.id);
      k.stopped = true;
    } else if (chance(5)) {
      core_.peer_down(nodes[below(3)]);
    } else if (!pins_.empty() && (reads_.empty() || chance(40))) {
      answer_pin();
    } else if (!reads_.empty()) {
      end_read();
    } else {
      for (auto& [ticket, k] : known_) {
        if (!k.verifies) continue;
        const auto all = *std::exchange(k.verifies, std::nullopt);
        core_.verified(ticket, chance(80) ? all : below(all));
        break;
      }
    }
  }

  void answer_pin() {
    const auto i = pins_.begin() + below(static_cast<std::uint32_t>(pins_.size()));
    const auto p = *i;
    pins_.erase(i);
    if (chance(15)) return core_.not_pinned(p.fetch, p.node, lost);
    auto held = blocks(chance(70) ? static_cast<std::uint32_t>(p.keys.size())
                                  : below(static_cast<std::uint32_t>(p.keys.size()) + 1),
                       1000 * p.node.value);
    if (!held.blocks.empty() && p.node != source && chance(20))
      held.blocks[below(static_cast<std::uint32_t>(held.blocks.size()))].checksum ^= 1;
    core_.pinned(p.fetch, p.node, std::move(held), time_point{});
  }

  void end_read() {
    const auto i = reads_.begin() + below(static_cast<std::uint32_t>(reads_.size()));
    const auto read = *i;
    reads_.erase(i);
    auto& k = known_.at(read.fetch);
    const bool failed = cancelled_.contains(read.id) ? chance(80) : chance(10);
    if (failed) k.failed.insert(read.from);
    for (const auto& b : read.blocks) {
      k.flying.erase({b.slot, read.first_layer});
      if (!failed) ++k.arrived[{b.slot, read.first_layer}];
    }
    core_.ended(read.id, failed ? lost : error{});
  }

  void look() {
    for (auto& action : core_.take_actions()) std::visit([this](auto& what) { see(what); }, action);
  }
  void see(fetch_action::pin& what) {
    auto& k = known_.at(what.fetch);
    CHECK(!k.asked.contains(what.node));
    k.asked.insert(what.node);
    pins_.push_back(what);
  }
  void see(const fetch_action::release& what) {
    for (auto& [ticket, k] : known_) {
      if (k.plan.id.reader() == what.reader) k.released.insert(what.node);
    }
  }
  void see(const fetch_action::read& what) {
    auto& k = known_.at(what.fetch);
    CHECK(k.answers == 0);
    CHECK(!k.stopped);
    CHECK(!k.gave_up);
    CHECK(!k.failed.contains(what.from));
    CHECK(k.asked.contains(what.from));
    CHECK(k.released.empty());
    for (const auto& b : what.blocks) {
      // It comes from where this sender has it, is not on its way twice, and is not here yet.
      CHECK(b.offset / 1000 == what.from.value);
      CHECK(b.slot - 50 == b.offset % 1000);
      CHECK(k.flying.insert({b.slot, what.first_layer}).second);
      CHECK(!k.arrived.contains({b.slot, what.first_layer}));
    }
    const auto mine = std::ranges::count_if(
        reads_, [&](const auto& r) { return r.fetch == what.fetch && r.from == what.from; });
    CHECK((mine < 2 || (k.by_layers && k.plan.beside.empty())));
    reads_.push_back(what);
  }
  void see(const fetch_action::cancel& what) {
    CHECK(std::ranges::find(reads_, what.id, &fetch_action::read::id) != reads_.end());
    cancelled_.insert(what.id);
  }
  void see(const fetch_action::give_up& what) { known_.at(what.fetch).gave_up = true; }
  void see(const fetch_action::verify& what) {
    auto& k = known_.at(what.fetch);
    CHECK(!k.verifies);
    CHECK(what.slots.size() == what.checksums.size());
    k.verifies = static_cast<std::uint32_t>(what.slots.size());
    verified_.insert(what.fetch);
  }
  void see(const fetch_action::answer& what) {
    auto& k = known_.at(what.fetch);
    ++k.answers;
    CHECK(k.flying.empty());  // nothing may write these slots any more
    const auto& got = what.got.blocks;
    if (what.failure.code != ec::none) CHECK(got.empty());
    if (k.by_layers) {
      CHECK((got.empty() || got.size() == k.plan.slots.size()));
      if (!got.empty()) CHECK(!k.gave_up);
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i].key == k.plan.keys[k.plan.skip + i]);
      const auto pieces = std::ranges::count_if(
          k.arrived, [&](const auto& a) { return a.first.first == k.plan.slots[i] && a.second == 1; });
      CHECK(pieces == (k.by_layers ? 4 : 1));
    }
    if (k.by_layers && !got.empty()) CHECK(verified_.contains(what.fetch));
  }

  std::mt19937_64 luck_;
  fetch_core core_;
  std::map<fetch_ticket, known> known_;
  std::vector<fetch_action::pin> pins_;
  std::vector<fetch_action::read> reads_;
  std::set<std::uint64_t> cancelled_;
  std::set<fetch_ticket> verified_;
  int steps_ = 0;
};

}  // namespace

TEST_CASE(
    "whatever the nodes do: no piece twice, every pin let go, one answer of what arrived and verified") {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    fetch_history{seed}.play();
  }
}
