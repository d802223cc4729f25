#include "transport/outbound_book.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr node_id peer{7};

struct test_job : outbound_job {
  std::size_t pieces = 0;
  std::size_t piece_count() const noexcept { return pieces; }
};

struct fixture {
  explicit fixture(std::size_t at_once = 2) { node.options.max_transfers_per_peer = at_once; }

  test_job* submit(std::uint64_t id, time_point deadline = time_point::max()) {
    transfer t;
    t.id = {id};
    t.peer = peer;
    t.deadline = deadline;
    t.slices.push_back({{{1}, 0, 100}, {{2}, 0, 100}, {}});
    return book.submit(std::move(t), [this](const completion& c) { told[c.id.value].push_back(c); });
  }
  /// The one completion of a transfer that must have completed by now.
  completion ended(std::uint64_t id) {
    book.take().tell();
    REQUIRE(told[id].size() == 1);
    return told[id].front();
  }
  bool under_way(std::uint64_t id) {
    book.take().tell();
    return !told.contains(id);
  }

  node_state node;
  outbound_book<test_job> book{node, peer, transfer_path::tcp};
  std::map<std::uint64_t, std::vector<completion>> told;
};

ec code_of(const completion& c) { return c.outcome ? ec::none : c.outcome.error().code; }

}  // namespace

TEST_CASE("so many transfers begin at once, and the others in their order as room is made") {
  fixture f;
  auto* first = f.submit(1);
  REQUIRE(first);
  REQUIRE(f.submit(2));
  CHECK(!f.submit(3));
  CHECK(!f.submit(4));
  CHECK(!f.book.find({3}));
  CHECK(!f.book.next());
  f.book.settle(*first, {});
  auto* third = f.book.next();
  REQUIRE(third);
  CHECK(third->what.id == transfer_id{3});
  CHECK(!f.book.next());
  first = nullptr;
  CHECK(f.ended(1).bytes == 100);
  CHECK(!f.book.idle());
}

TEST_CASE("an outcome stands, whatever is said after it") {
  fixture f;
  auto* j = f.submit(1);
  j->pieces = 3;
  f.book.settle(*j, fail(ec::corrupt));
  f.book.settle(*j, {});
  CHECK(!f.book.cancel({1}));
  f.book.end({ec::peer_lost, {}}, [](const test_job&) { return false; });
  const auto c = f.ended(1);
  CHECK(code_of(c) == ec::corrupt);
  CHECK(c.bytes == 0);
  CHECK(c.fenced);
  CHECK(c.path == transfer_path::tcp);
  CHECK(f.node.stats.all().at(0).slices == 3);
}

TEST_CASE("a settled transfer completes when nothing holds its memory any more") {
  fixture f;
  auto* j = f.submit(1);
  f.book.hold(*j);
  f.book.hold(*j);
  f.book.settle(*j, {});
  CHECK(j->settled());
  f.book.release(*j);
  CHECK(f.under_way(1));
  f.book.release(*j);
  CHECK(code_of(f.ended(1)) == ec::none);
  CHECK(f.book.idle());
}

TEST_CASE("cancelling ends a transfer that waits, and leaves one that has begun to its path") {
  fixture f{1};
  auto* j = f.submit(1);
  f.submit(2);
  f.submit(3);
  CHECK(!f.book.cancel({2}));
  CHECK(code_of(f.ended(2)) == ec::cancelled);
  CHECK(f.book.cancel({1}) == j);
  CHECK(!f.book.cancel({9}));
  f.book.settle(*j, fail(end_cause(ec::cancelled)));
  const auto* next = f.book.next();  // the place of 2 in the line is passed over
  REQUIRE(next);
  CHECK(next->what.id == transfer_id{3});
}

TEST_CASE("an id that was cancelled while it waited may come again") {
  fixture f{1};
  auto* j = f.submit(1);
  f.submit(2);
  f.book.cancel({2});
  f.book.take().tell();
  f.submit(2);
  f.book.settle(*j, {});
  auto* again = f.book.next();
  REQUIRE(again);
  f.book.settle(*again, {});
  CHECK(!f.book.next());
  f.book.take().tell();
  REQUIRE(f.told[2].size() == 2);
  CHECK(code_of(f.told[2].back()) == ec::none);
}

TEST_CASE("a transfer that was given up keeps its cause, unless the peer has told another outcome") {
  fixture f{3};
  const auto now = clock_type::now();
  for (const std::uint64_t id : {1, 2, 3}) f.book.give_up(*f.submit(id), end_cause(ec::cancelled), now + 1s);
  CHECK(!f.book.cancel({1}));
  CHECK(!f.book.unconfirmed(now + 1s));
  CHECK(f.book.unconfirmed(now + 2s));
  f.book.confirm(*f.book.find({1}));
  CHECK(code_of(f.ended(1)) == ec::cancelled);
  f.book.settle(*f.book.find({2}), {});
  CHECK(code_of(f.ended(2)) == ec::none);
  f.book.end({ec::peer_lost, {}}, [](const test_job& j) { return j.settled(); });
  CHECK(code_of(f.ended(3)) == ec::cancelled);
  CHECK(!f.ended(3).fenced);
}

TEST_CASE("a deadline ends a transfer that waits, and names one that has begun") {
  fixture f;
  const auto now = clock_type::now();
  auto* j = f.submit(1, now + 1s);
  f.submit(2);
  f.submit(3, now + 1s);
  f.submit(4, now + 9s);
  CHECK(f.book.late(now).empty());
  CHECK(f.book.late(now + 2s) == std::vector<transfer_id>{{1}});
  CHECK(code_of(f.ended(3)) == ec::timed_out);
  CHECK(f.under_way(1));
  f.book.give_up(*j, end_cause(ec::timed_out));
  CHECK(f.book.late(now + 2s).empty());
}

TEST_CASE("the end of a link completes what waits, what has begun, and what is held") {
  fixture f;
  f.book.hold(*f.submit(1));
  auto* settled = f.submit(2);
  f.book.hold(*settled);
  f.book.settle(*settled, {});
  f.submit(3);
  f.book.end({ec::peer_lost, "gone"}, [](const test_job& j) { return j.settled(); });
  CHECK(f.book.idle());
  CHECK(code_of(f.ended(1)) == ec::peer_lost);
  CHECK(!f.ended(1).fenced);
  CHECK(code_of(f.ended(2)) == ec::none);
  CHECK(f.ended(2).fenced);
  CHECK(code_of(f.ended(3)) == ec::peer_lost);
  CHECK(f.ended(3).fenced);
}

TEST_CASE("a peer has stalled when work is under way and nothing has moved for long") {
  fixture f;
  const auto later = clock_type::now() + 1h;
  CHECK(!f.book.stalled(later, 0, 5s));
  f.submit(1);
  CHECK(!f.book.stalled(later, 1, 5s));
  CHECK(!f.book.stalled(later + 5s, 1, 5s));
  CHECK(f.book.stalled(later + 6s, 1, 5s));
  CHECK(!f.book.stalled(later + 6s, 2, 5s));
  f.book.settle(*f.book.find({1}), {});
  CHECK(!f.book.stalled(later + 60s, 2, 5s));
}

TEST_CASE("whatever happens in whichever order, a transfer completes once") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random{seed};
  for (int round = 0; round < 200; ++round) {
    fixture f{1 + random() % 4};
    const auto now = clock_type::now();
    std::map<std::uint64_t, int> holds;
    std::uint64_t submitted = 0;
    const auto any = [&] { return f.book.find({1 + random() % (submitted + 1)}); };
    for (int step = 0; step < 100; ++step) {
      switch (random() % 9) {
        case 0:
        case 1:
          f.submit(++submitted, random() % 4 == 0 ? now : time_point::max());
          break;
        case 2:
          f.book.next();
          break;
        case 3:
          if (auto* j = any()) {
            ++holds[j->what.id.value];
            f.book.hold(*j);
          }
          break;
        case 4:
          if (auto* j = any(); j && holds[j->what.id.value] > 0) {
            --holds[j->what.id.value];
            f.book.release(*j);
          }
          break;
        case 5:
          if (auto* j = any()) f.book.settle(*j, random() % 2 == 0 ? result<void>{} : fail(ec::corrupt));
          break;
        case 6:
          if (auto* j = f.book.cancel({1 + random() % (submitted + 1)}))
            f.book.give_up(*j, end_cause(ec::cancelled));
          break;
        case 7:
          if (auto* j = any(); j && j->given_up()) f.book.confirm(*j);
          break;
        default:
          for (const auto id : f.book.late(now + 1s))
            if (auto* j = f.book.find(id)) f.book.settle(*j, fail(end_cause(ec::timed_out)));
      }
      if (random() % 3 == 0) f.book.take().tell();
    }
    f.book.end({ec::peer_lost, {}}, [](const test_job&) { return true; });
    CHECK(f.book.idle());
    f.book.take().tell();
    for (std::uint64_t id = 1; id <= submitted; ++id) REQUIRE(f.told[id].size() == 1);
  }
}
