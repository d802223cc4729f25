// What every path between two nodes promises. Shared memory, TCP and the copy inside a node pass the same
// suite.

#include <algorithm>
#include <random>

#include "runtime/base/hash.hpp"
#include "tests/conformance/transport_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

constexpr std::uint64_t seeds[] = {1, 2, 3};

std::uint64_t random_length(std::mt19937_64& random) {
  // Mostly small and odd, sometimes several slices long, now and then nothing or 16 MiB.
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:
      return 16 * MiB;
    case 2:
      return 256 * KiB + random() % 3 - 1;
    case 3:
      return random() % (3 * MiB);
    default:
      return random() % (64 * KiB);
  }
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

// RDMA passes the same suite where there is a device: in a binary of its own, in a virtual machine.
#ifdef MOONCAF_CONFORMANCE_OF_RDMA
#define EVERY_PATH rdma_path
#define EVERY_LINK rdma_path
#else
#define EVERY_PATH local_path, shm_path, tcp_path
#define EVERY_LINK shm_path, tcp_path
#endif

TEST_CASE_TEMPLATE("writes of any size and alignment arrive unharmed, and nothing beside them", P,
                   EVERY_PATH) {
  world<P> w;
  for (const auto seed : seeds) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    for (int round = 0; round < 8; ++round) {
      std::vector<std::byte> expected{w.to().bytes().begin(), w.to().bytes().end()};
      std::vector<slice_pair> slices;
      std::uint64_t at = random() % 1000;
      std::uint64_t total = 0;
      for (auto n = random() % 5; n-- > 0;) {
        const auto length = random_length(random);
        if (at + length > 36 * MiB) break;
        const auto from = random() % (40 * MiB - length);
        slices.push_back(w.pair(from, at, length));
        std::memcpy(expected.data() + at, w.from().bytes().data() + from, length);
        at += length + random() % 1000;
        total += length;
      }
      const auto t = w.make(transfer_op::write, slices);
      const auto done = run(w.plane(), t);
      REQUIRE_MESSAGE(done.outcome, to_string(done.outcome.error()));
      CHECK(done.bytes == total);
      CHECK(done.path == P::path);
      const auto l = w.receiver().landings.take();
      CHECK(l.verified);
      CHECK(l.from == w.sender().id());
      CHECK(l.id == t.id);
      CHECK(l.tag == t.tag);
      CHECK(l.bytes == total);
      REQUIRE(same(expected, w.to().bytes()));
    }
  }
  CHECK(w.receiver().landings.size() == 0);
  CHECK(w.plane().transfers_in_flight() == 0);
}

TEST_CASE_TEMPLATE("reads of any size and alignment bring the peer's bytes", P, EVERY_PATH) {
  world<P> w;
  std::mt19937_64 random{7};
  for (int round = 0; round < 16; ++round) {
    std::vector<std::byte> expected{w.from().bytes().begin(), w.from().bytes().end()};
    std::vector<slice_pair> slices;
    std::uint64_t at = random() % 1000;
    for (int i = 0; i < 3; ++i) {
      const auto length = random_length(random);
      if (at + length > 36 * MiB) break;
      const auto from = random() % (40 * MiB - length);
      auto pair = w.pair(at, from, length);
      const auto source = w.to().bytes().subspan(from, length);
      if (i % 2 == 0) pair.expected_checksum = checksum64(source);
      slices.push_back(pair);
      std::memcpy(expected.data() + at, source.data(), length);
      at += length + random() % 1000;
    }
    const auto done = run(w.plane(), w.make(transfer_op::read, slices));
    REQUIRE_MESSAGE(done.outcome, to_string(done.outcome.error()));
    REQUIRE(same(expected, w.from().bytes()));
  }
  CHECK(w.receiver().landings.size() == 0);
}

TEST_CASE_TEMPLATE("a read that does not match the owner's checksum is corrupt", P, EVERY_PATH) {
  world<P> w;
  auto pair = w.pair(0, 100, 600 * KiB);
  pair.expected_checksum = checksum64(w.to().bytes().subspan(100, 600 * KiB)) + 1;
  const auto done = run(w.plane(), w.make(transfer_op::read, {pair}));
  REQUIRE(!done.outcome);
  CHECK(done.outcome.error() == ec::corrupt);
}

TEST_CASE_TEMPLATE("many transfers at once in both directions complete once each", P, EVERY_PATH) {
  world<P> w;
  constexpr int count = 300;
  std::vector<std::atomic<int>> completions(2 * count);
  mailbox<std::string> done;  // what went wrong, or nothing
  std::mt19937_64 random{11};
  for (int i = 0; i < count; ++i) {
    const auto length = random() % (96 * KiB);
    const auto spot = static_cast<std::uint64_t>(i) * 100 * KiB;
    const auto note = [&done](std::atomic<int>& n) {
      return [&done, &n](const completion& c) {
        ++n;
        done.put(c.outcome ? std::string{} : to_string(c.outcome.error()));
      };
    };
    const auto op = i % 3 == 0 ? transfer_op::read : transfer_op::write;
    w.plane().submit(w.make(op, {w.pair(spot, spot, length)}),
                     note(completions[static_cast<std::size_t>(i)]));
    // The other way, from and into memory that nothing else touches.
    auto back = w.make(transfer_op::write, {});
    const auto aside = 32 * MiB + static_cast<std::uint64_t>(i) * KiB;
    const slice_pair there{{w.there().id, aside, 1 * KiB}, {w.here().id, aside, 1 * KiB}, {}};
    back.peer = w.sender().id();
    back.slices = {there};
    w.receiver().plane->submit(back, note(completions[static_cast<std::size_t>(count + i)]));
  }
  for (int i = 0; i < 2 * count; ++i) CHECK(done.take() == "");
  for (const auto& n : completions) CHECK(n == 1);
  CHECK(w.plane().transfers_in_flight() == 0);
}

TEST_CASE_TEMPLATE("a cancelled write completes once, and nothing of it lands afterwards", P, EVERY_PATH) {
  world<P> w;
  mailbox<bool> held;
  w.faults.set([&](transfer_path, transfer_id, std::uint32_t index) {
    if (index != 2) return fault{};
    held.put(true);
    return fault{fault::kind::delay, std::chrono::milliseconds(200)};
  });
  const auto t = w.make(transfer_op::write, {w.pair(0, 0, 8 * MiB)});
  mailbox<completion> done;
  w.plane().submit(t, [&](const completion& c) { done.put(c); });
  held.take();
  w.plane().cancel(t.id);
  const auto c = done.take();
  REQUIRE(!c.outcome);
  CHECK(c.outcome.error() == ec::cancelled);
  CHECK(c.fenced);
  w.faults.set({});
  // The memory belongs to somebody else now.
  w.to().fill(99);
  const std::vector<std::byte> mine{w.to().bytes().begin(), w.to().bytes().end()};
  CHECK(run(w.plane(), w.make(transfer_op::write, {w.pair(0, 20 * MiB, 0)})).outcome);
  CHECK(same(mine, w.to().bytes()));
  CHECK(w.receiver().landings.take().bytes == 0);
  CHECK(w.receiver().landings.size() == 0);
  CHECK(done.size() == 0);
}

TEST_CASE_TEMPLATE("thousands of regions are reachable, each by its own key", P, EVERY_PATH) {
  world<P> w;
  constexpr std::size_t count = 3000;
  std::vector<region_desc> regions;
  for (std::size_t i = 0; i < count; ++i) {
    auto r = w.receiver().plane->register_region(w.to().bytes().subspan(i * 8192 + i % 7, 4096), w.to().fd(),
                                                 i * 8192 + i % 7);
    REQUIRE(r);
    regions.push_back(*r);
  }
  if (!world<P>::one_node) introduce(w.sender(), w.receiver());
  mailbox<bool> done;
  for (std::size_t i = 0; i < count; ++i) {
    auto t = w.make(transfer_op::write, {{{w.here().id, i * 4096, 4096}, {regions[i].id, 0, 4096}, {}}});
    w.plane().submit(t, [&](const completion& c) { done.put(c.outcome.has_value()); });
  }
  for (std::size_t i = 0; i < count; ++i) REQUIRE(done.take());
  for (std::size_t i = 0; i < count; ++i)
    REQUIRE(same(w.to().bytes().subspan(i * 8192 + i % 7, 4096), w.from().bytes().subspan(i * 4096, 4096)));
}

TEST_CASE_TEMPLATE("a slice outside its region or in none is refused with the reason", P, EVERY_PATH) {
  world<P> w;
  const auto outcome = [&](slice_pair pair, transfer_op op) {
    return run(w.plane(), w.make(op, {pair})).outcome;
  };
  for (const auto op : {transfer_op::write, transfer_op::read}) {
    auto r = outcome(w.pair(0, 40 * MiB - 10, 11), op);
    REQUIRE(!r);
    CHECK(r.error() == ec::invalid_argument);
    CHECK(r.error().detail.find("outside region") != std::string::npos);
    r = outcome(w.pair(UINT64_MAX - 5, 0, 10), op);
    REQUIRE(!r);
    CHECK(r.error() == ec::invalid_argument);
    auto unknown = w.pair(0, 0, 10);
    unknown.remote.region.value = 777;
    r = outcome(unknown, op);
    REQUIRE(!r);
    CHECK(r.error() == ec::not_found);
    CHECK(r.error().detail.find("777") != std::string::npos);
    auto uneven = w.pair(0, 0, 10);
    uneven.remote.length = 11;
    r = outcome(uneven, op);
    REQUIRE(!r);
    CHECK(r.error() == ec::invalid_argument);
  }
  CHECK(w.plane().transfers_in_flight() == 0);
}

TEST_CASE_TEMPLATE("the owner itself refuses a wrong key, a wrong length and a region that is gone", P,
                   EVERY_LINK) {
  world<P> w;
  const std::vector<std::byte> before{w.to().bytes().begin(), w.to().bytes().end()};
  const auto outcome_with = [&](region_desc told, slice_pair pair, transfer_op op) {
    REQUIRE(w.plane().add_peer(w.receiver().plane->local_address(), {told}));
    return run(w.plane(), w.make(op, {pair})).outcome;
  };
  for (const auto op : {transfer_op::write, transfer_op::read}) {
    auto told = w.there();
    told.access_key ^= 1;
    auto r = outcome_with(told, w.pair(0, 0, 1 * MiB), op);
    REQUIRE(!r);
    CHECK(r.error() == ec::invalid_argument);
    CHECK(r.error().detail.find("access key") != std::string::npos);
    told = w.there();
    told.length += 1 * MiB;
    r = outcome_with(told, w.pair(0, 40 * MiB - 5, 1 * MiB), op);
    REQUIRE(!r);
    CHECK(r.error() == ec::invalid_argument);
    told.id.value = 4242;
    r = outcome_with(told, {{w.here().id, 0, 10}, {told.id, 0, 10}, {}}, op);
    REQUIRE(!r);
    CHECK(r.error() == ec::not_found);
  }
  CHECK(same(before, w.to().bytes()));
  CHECK(w.receiver().landings.size() == 0);
  CHECK(outcome_with(w.there(), w.pair(0, 0, 1 * MiB), transfer_op::write));
}

TEST_CASE_TEMPLATE("a slice that changes on its way is corrupt on both sides and never lands", P,
                   EVERY_PATH) {
  world<P> w;
  w.faults.set([](transfer_path, transfer_id, std::uint32_t index) {
    return index == 3 ? fault{fault::kind::corrupt, {}} : fault{};
  });
  const auto t = w.make(transfer_op::write, {w.pair(0, 0, 2 * MiB)});
  const auto done = run(w.plane(), t);
  REQUIRE(!done.outcome);
  CHECK(done.outcome.error() == ec::corrupt);
  const auto l = w.receiver().landings.take();
  CHECK(!l.verified);
  CHECK(l.id == t.id);
  w.faults.set({});
  CHECK(run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 2 * MiB)})).outcome);
  CHECK(w.receiver().landings.take().verified);
}

TEST_CASE_TEMPLATE("a write that is submitted twice lands once", P, EVERY_PATH) {
  world<P> w;
  const auto t = w.make(transfer_op::write, {w.pair(0, 0, 1 * MiB)});
  CHECK(run(w.plane(), t).outcome);
  w.to().fill(5);
  const std::vector<std::byte> mine{w.to().bytes().begin(), w.to().bytes().end()};
  CHECK(run(w.plane(), t).outcome);
  CHECK(w.receiver().landings.take().id == t.id);
  CHECK(w.receiver().landings.size() == 0);
  CHECK(same(mine, w.to().bytes()));
}

TEST_CASE_TEMPLATE("an id that is under way is not taken twice", P, EVERY_PATH) {
  world<P> w;
  w.faults.set([](transfer_path, transfer_id, std::uint32_t index) {
    return index == 1 ? fault{fault::kind::delay, std::chrono::milliseconds(50)} : fault{};
  });
  const auto t = w.make(transfer_op::write, {w.pair(0, 0, 2 * MiB)});
  mailbox<completion> first;
  w.plane().submit(t, [&](const completion& c) { first.put(c); });
  const auto second = run(w.plane(), t);
  w.faults.set({});
  if (!second.outcome) CHECK(second.outcome.error() == ec::already_exists);
  CHECK(first.take().outcome);
  CHECK(w.receiver().landings.take().verified);
  CHECK(w.receiver().landings.size() == 0);
}

TEST_CASE_TEMPLATE("a lost slice ends with the deadline, not with a hang", P, EVERY_LINK) {
  world<P> w;
  w.faults.set([](transfer_path, transfer_id, std::uint32_t index) {
    return index == 2 ? fault{fault::kind::drop, {}} : fault{};
  });
  auto t = w.make(transfer_op::write, {w.pair(0, 0, 2 * MiB)});
  t.deadline = clock_type::now() + std::chrono::milliseconds(150);
  const auto done = run(w.plane(), t);
  REQUIRE(!done.outcome);
  CHECK(done.outcome.error() == ec::timed_out);
  CHECK(done.fenced);
  w.faults.set({});
  CHECK(run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 2 * MiB)})).outcome);
}

TEST_CASE_TEMPLATE("after close no byte of that peer lands, and it stays out until it is added again", P,
                   EVERY_LINK) {
  world<P> w;
  constexpr int count = 40;
  // However long this thread is kept from running, some are under way when it closes.
  w.faults.set([&](transfer_path, transfer_id, std::uint32_t) {
    return w.receiver().landings.size() < 2 ? fault{}
                                            : fault{fault::kind::delay, std::chrono::milliseconds(5)};
  });
  mailbox<completion> done;
  for (int i = 0; i < count; ++i)
    w.plane().submit(w.make(transfer_op::write, {w.pair(0, 0, 16 * MiB)}),
                     [&](const completion& c) { done.put(c); });
  w.receiver().landings.await(2);
  REQUIRE(w.receiver().plane->close_peer(w.sender().id()));
  w.to().fill(77);
  const std::vector<std::byte> mine{w.to().bytes().begin(), w.to().bytes().end()};
  int failed = 0;
  for (int i = 0; i < count; ++i) failed += !done.take().outcome;
  w.faults.set({});
  CHECK(failed > 0);
  CHECK(done.size() == 0);
  const auto out = run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 16 * MiB)}));
  CHECK(!out.outcome);
  CHECK(same(mine, w.to().bytes()));

  introduce(w.receiver(), w.sender());
  introduce(w.sender(), w.receiver());
  // The answer to a dial of before may be on its way still.
  bool there = false;
  for (int tries = 0; tries < 100 && !there; ++tries)
    there = run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 16 * MiB)})).outcome.has_value();
  CHECK(there);
}

TEST_CASE_TEMPLATE("after unregistering no peer reaches the region, while others still work", P, EVERY_LINK) {
  world<P> w;
  auto extra = w.receiver().plane->register_region(w.to().bytes().first(8 * MiB), w.to().fd());
  REQUIRE(extra);
  introduce(w.sender(), w.receiver());
  mailbox<completion> done;
  constexpr int count = 60;
  for (int i = 0; i < count; ++i)
    w.plane().submit(w.make(transfer_op::write, {{{w.here().id, 0, 8 * MiB}, {extra->id, 0, 8 * MiB}, {}}}),
                     [&](const completion& c) { done.put(c); });
  w.receiver().landings.await(2);
  REQUIRE(w.receiver().plane->unregister_region(extra->id));
  w.to().fill(78);
  const std::vector<std::byte> mine{w.to().bytes().begin(), w.to().bytes().end()};
  for (int i = 0; i < count; ++i) done.take();
  CHECK(same(mine, w.to().bytes()));
  const auto gone =
      run(w.plane(), w.make(transfer_op::write, {{{w.here().id, 0, 8}, {extra->id, 0, 8}, {}}}));
  REQUIRE(!gone.outcome);
  CHECK(gone.outcome.error() == ec::not_found);
  CHECK(run(w.plane(), w.make(transfer_op::write, {w.pair(0, 20 * MiB, 1 * MiB)})).outcome);
}

TEST_CASE_TEMPLATE("a region in use cannot be unregistered under its transfers", P, EVERY_PATH) {
  world<P> w;
  w.faults.set([](transfer_path, transfer_id, std::uint32_t index) {
    return index == 1 ? fault{fault::kind::delay, std::chrono::milliseconds(100)} : fault{};
  });
  mailbox<completion> done;
  w.plane().submit(w.make(transfer_op::write, {w.pair(0, 0, 1 * MiB)}),
                   [&](const completion& c) { done.put(c); });
  const auto r = w.plane().unregister_region(w.here().id);
  REQUIRE(!r);
  CHECK(r.error() == ec::overloaded);
  w.faults.set({});
  CHECK(done.take().outcome);
  CHECK(w.plane().unregister_region(w.here().id));
}

TEST_CASE_TEMPLATE("a peer with another secret gets nothing, in either role", P, EVERY_LINK) {
  auto options = [](std::uint64_t node, const char* secret) {
    auto o = plain_options(node);
    P::configure(o);
    o.cluster_secret = secret;
    return o;
  };
  test_node a{options(1, "one secret"), 1 * MiB};
  test_node b{options(2, "another secret"), 1 * MiB};
  introduce(a, b);
  introduce(b, a);
  for (auto* pair : {&a, &b}) {
    auto& from = *pair;
    auto& to = pair == &a ? b : a;
    transfer t;
    t.id.value = 1;
    t.peer = to.id();
    t.slices = {{{from.region.id, 0, 100}, {to.region.id, 0, 100}, {}}};
    const auto done = run(*from.plane, t);
    REQUIRE(!done.outcome);
    CHECK_MESSAGE(done.outcome.error() == ec::unauthenticated, to_string(done.outcome.error()));
    CHECK(to.landings.size() == 0);
  }
}

TEST_CASE_TEMPLATE("a restarted peer at the same address is reached once it is announced", P, EVERY_LINK) {
  world<P> w;
  CHECK(run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 1 * MiB)})).outcome);
  auto options = plain_options(2);
  P::configure(options);
  options.data_port = w.receiver().plane->local_address().tcp_port;
  const auto old = w.receiver().plane->local_address();
  w.receiver().plane.reset();
  w.receiver().start(options);
  CHECK(w.receiver().plane->local_address().tcp_port == old.tcp_port);
  // Known by its old description only: what was promised to the former life is not given to the new one.
  const auto stale = run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 1 * MiB)}));
  REQUIRE(!stale.outcome);
  CHECK((stale.outcome.error() == ec::peer_lost || stale.outcome.error() == ec::unavailable));
  introduce(w.sender(), w.receiver());
  CHECK(run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 1 * MiB)})).outcome);
}

TEST_CASE_TEMPLATE("stopping the data plane completes what is under way", P, EVERY_PATH) {
  mailbox<completion> done;
  constexpr int count = 50;
  {
    world<P> w;
    for (int i = 0; i < count; ++i)
      w.plane().submit(w.make(transfer_op::write, {w.pair(0, 0, 4 * MiB)}),
                       [&](const completion& c) { done.put(c); });
    w.sender().plane.reset();
    CHECK(done.size() == count);
  }
}

TEST_CASE_TEMPLATE("control messages per transfer stay bounded", P, EVERY_LINK) {
  world<P> w;
  constexpr std::uint64_t count = 50;
  const auto messages = [&] {
    std::uint64_t n = 0;
    for (const auto* plane : {w.sender().plane.get(), w.receiver().plane.get()})
      for (const auto& s : plane->stats()) n += s.control_messages;
    return n;
  };
  CHECK(
      run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 4096)})).outcome);  // link and mapping are made
  const auto before = messages();
  for (std::uint64_t i = 0; i < count; ++i)
    CHECK(
        run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 1 * MiB), w.pair(2 * MiB, 2 * MiB, 1 * MiB)}))
            .outcome);
  CHECK(messages() - before <= 3 * count);  // where the pieces are, their checksums, an acknowledgement
}
