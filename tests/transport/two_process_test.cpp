// What happens between two real processes: bytes arrive, and a peer that is killed, stopped or restarted
// costs its own transfers and nothing else.

#include <algorithm>

#include "runtime/base/hash.hpp"
#include "tests/conformance/transport_world.hpp"
#include "tests/transport/peer_channel.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

// RDMA does the same in a virtual machine.
#ifdef MOONCAF_TWO_PROCESSES_OF_RDMA
#include "tests/rdma/links.hpp"
#define EVERY_PATH rdma_path
#else
#define EVERY_PATH shm_path, tcp_path
#endif

namespace {

constexpr std::size_t bytes = 24 * MiB;

/// This process as node 1 and a child as node 2, introduced to each other.
template <class Path>
struct two_processes {
  static data_plane_options options(bool patient) {
    auto o = plain_options(1);
    Path::configure(o);
    if (patient) {
      o.peer_timeout = o.close_timeout = patience;
    } else {
      o.peer_timeout = std::chrono::seconds(1);
      o.close_timeout = std::chrono::milliseconds(300);
    }
    return o;
  }
  static std::string path() { return std::string{to_string(Path::path)}; }

  /// @param patient  the peer lives, however long it is kept from running: no test of lost peers.
  explicit two_processes(bool patient = false)
      : here(options(patient), bytes), child(MOONCAF_TRANSPORT_PEER, 2, bytes, path()) {
    here.memory.fill(1);
    meet();
  }
  void meet() {
    const auto hello = decode_announcement(child.channel().receive());
    REQUIRE(hello);
    there = hello->regions.at(0);
    REQUIRE(here.plane->add_peer(hello->address, hello->regions));
    auto mine = encode(here.plane->local_announcement());
    mine.insert(mine.begin(), std::byte{'A'});
    child.channel().send(mine);
    REQUIRE(child.channel().receive_text() == "ok");
  }
  transfer write(std::uint64_t length, std::uint64_t at = 0) {
    transfer t;
    t.id.value = next_id++;
    t.peer.value = 2;
    t.slices = {{{here.region.id, 0, length}, {there.id, at, length}, {}}};
    return t;
  }

  test_node here;
  peer_process child;
  region_desc there;
  std::uint64_t next_id = 1;
};

}  // namespace

TEST_CASE_TEMPLATE("bytes written to another process are there when the write completes", P, EVERY_PATH) {
  two_processes<P> two{true};
  std::uint64_t at = 0;
  for (const std::uint64_t length : {1ull, 4096ull, 163840ull, 16777216ull}) {
    const auto done = run(*two.here.plane, two.write(length, at));
    REQUIRE_MESSAGE(done.outcome, to_string(done.outcome.error()));
    CHECK(done.path == P::path);
    two.child.channel().order('C', at, length);
    CHECK(two.child.channel().receive_text() ==
          std::to_string(checksum64(two.here.memory.bytes().first(length))));
    at += length;
  }
}

TEST_CASE_TEMPLATE("a killed peer ends every transfer to it once, soon, and with a reason", P, EVERY_PATH) {
  two_processes<P> two;
  REQUIRE(run(*two.here.plane, two.write(1 * MiB)).outcome);
  constexpr int count = 400;
  mailbox<completion> done;
  for (int i = 0; i < count; ++i)
    two.here.plane->submit(two.write(16 * MiB), [&](const completion& c) { done.put(c); });
  done.await(3);
  two.child.kill();
  int lost = 0;
  for (int i = 0; i < count; ++i) {
    const auto c = done.take();
    if (c.outcome) continue;
    ++lost;
    CHECK((c.outcome.error() == ec::peer_lost || c.outcome.error() == ec::unavailable));
  }
  CHECK(lost > 0);
  CHECK(done.size() == 0);
  CHECK(two.here.plane->transfers_in_flight() == 0);
  CHECK(two.here.plane->close_peer(node_id{2}));
}

TEST_CASE_TEMPLATE("memory is safe to reuse once a writer that was killed is fenced", P, EVERY_PATH) {
  two_processes<P> two;
  two.child.channel().order('W', std::uint64_t{16 * MiB});
  REQUIRE(two.child.channel().receive_text() == "ok");
  two.here.landings.await(3);
  two.child.kill();
  REQUIRE(two.here.plane->close_peer(node_id{2}));
  const auto landed = two.here.landings.size();
  two.here.memory.fill(5);
  const std::vector<std::byte> mine{two.here.memory.bytes().begin(), two.here.memory.bytes().end()};
  // A full round through the data plane gives anything left over its chance.
  CHECK(!run(*two.here.plane, two.write(16)).outcome);
  CHECK(std::memcmp(mine.data(), two.here.memory.bytes().data(), bytes) == 0);
  CHECK(two.here.landings.size() <= landed + 8);
}

TEST_CASE_TEMPLATE("a living writer is fenced in the middle of its work", P, EVERY_PATH) {
  two_processes<P> two;
  two.child.channel().order('W', std::uint64_t{16 * MiB});
  REQUIRE(two.child.channel().receive_text() == "ok");
  two.here.landings.await(3);
  REQUIRE(two.here.plane->close_peer(node_id{2}));
  two.here.memory.fill(5);
  const std::vector<std::byte> mine{two.here.memory.bytes().begin(), two.here.memory.bytes().end()};
  // The child is alive and answers; its writes are refused.
  two.child.channel().order('C', std::uint64_t{0}, std::uint64_t{16 * MiB});
  CHECK(!two.child.channel().receive_text().empty());
  CHECK(std::memcmp(mine.data(), two.here.memory.bytes().data(), bytes) == 0);
}

TEST_CASE_TEMPLATE("a peer that stops answering is given up in bounded time", P, EVERY_PATH) {
  two_processes<P> two;
  REQUIRE(run(*two.here.plane, two.write(1 * MiB)).outcome);
  two.child.stop();
  const auto start = clock_type::now();
  auto t = two.write(16 * MiB);
  t.deadline = start + std::chrono::milliseconds(200);
  const auto late = run(*two.here.plane, t);
  REQUIRE(!late.outcome);
  // Two clocks run: the transfer's deadline and the link's patience. On a machine that stands still for
  // seconds the second may be looked at first.
  CHECK((late.outcome.error() == ec::timed_out || late.outcome.error() == ec::peer_lost));
  const auto lost = run(*two.here.plane, two.write(16 * MiB));
  CHECK(!lost.outcome);
  CHECK(clock_type::now() - start < std::chrono::seconds(12));
}

TEST_CASE_TEMPLATE("a killed peer that comes back under the same name is used again", P, EVERY_PATH) {
  two_processes<P> two;
  REQUIRE(run(*two.here.plane, two.write(1 * MiB)).outcome);
  two.child.kill();
  CHECK(!run(*two.here.plane, two.write(1 * MiB)).outcome);
  peer_process again{MOONCAF_TRANSPORT_PEER, 2, bytes, two_processes<P>::path()};
  const auto hello = decode_announcement(again.channel().receive());
  REQUIRE(hello);
  two.there = hello->regions.at(0);
  REQUIRE(two.here.plane->add_peer(hello->address, hello->regions));
  const auto done = run(*two.here.plane, two.write(1 * MiB));
  CHECK_MESSAGE(done.outcome, (done.outcome ? "" : to_string(done.outcome.error())));
}

#ifdef MOONCAF_TWO_PROCESSES_OF_RDMA
TEST_CASE("a rail that goes down in the middle of transfers between two processes costs none of them") {
  const links_restored restore;
  two_processes<rdma_path> two{true};
  const auto there_holds = [&](std::uint64_t at, std::span<const std::byte> what) {
    two.child.channel().order('C', at, std::uint64_t{what.size()});
    return two.child.channel().receive_text() == std::to_string(checksum64(what));
  };
  // Ours: what is written, 8 MiB; what is read into, 8 MiB. The other's: the same, the other way round.
  const auto written = two.here.memory.bytes().first(8 * MiB);
  const auto read = two.here.memory.bytes().subspan(8 * MiB, 8 * MiB);
  REQUIRE(run(*two.here.plane, two.write(8 * MiB, 8 * MiB)).outcome);
  const auto slices = [&](std::size_t rail) { return two.here.plane->rails().at(rail).slices; };
  const auto bound = clock_type::now() + patience;
  while (slices(0) == 0 || slices(1) == 0) {
    REQUIRE(clock_type::now() < bound);
    REQUIRE(run(*two.here.plane, two.write(8 * MiB)).outcome);
  }
  constexpr std::size_t count = 32;
  mailbox<completion> done;
  for (std::size_t i = 0; i < count; ++i) {
    auto t = two.write(8 * MiB);
    if (i % 2 == 1) {
      t.op = transfer_op::read;
      t.slices = {{{two.here.region.id, 8 * MiB, 8 * MiB}, {two.there.id, 8 * MiB, 8 * MiB}, {}}};
    }
    two.here.plane->submit(std::move(t), [&](const completion& c) { done.put(c); });
  }
  done.await(2);
  set_link(1, false);
  for (std::size_t i = 0; i < count; ++i) {
    const auto c = done.take();
    REQUIRE_MESSAGE(c.outcome, to_string(c.outcome.error()));
    CHECK(c.path == transfer_path::rdma);
  }
  CHECK(done.size() == 0);
  CHECK(!two.here.plane->rails()[1].up);
  CHECK(there_holds(0, written));
  CHECK(std::ranges::equal(read, written));

  const auto before = slices(1);
  set_link(1, true);
  while (slices(1) == before) {
    REQUIRE_MESSAGE(clock_type::now() < bound + patience, "the rail was not used again");
    REQUIRE(run(*two.here.plane, two.write(8 * MiB)).outcome);
  }
}
#endif
