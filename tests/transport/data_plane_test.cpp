// The choice of path and what the data plane refuses by itself.

#include "transport/data_plane.hpp"

#include "tests/conformance/transport_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

struct any_path {
  static constexpr auto path = transfer_path::shm;
  static void configure(data_plane_options&) {}
};

}  // namespace

TEST_CASE("nodes of one host use shared memory, others TCP") {
  world<any_path> near;
  CHECK(near.plane().preferred_path(near.receiver().id()) == transfer_path::shm);
  CHECK(near.plane().preferred_path(near.sender().id()) == transfer_path::local);
  CHECK(near.plane().preferred_path(node_id{99}) == transfer_path::none);
  auto far = near.receiver().plane->local_announcement();
  far.address.host_id = "elsewhere";
  REQUIRE(near.plane().add_peer(far.address, far.regions));
  CHECK(near.plane().preferred_path(near.receiver().id()) == transfer_path::tcp);
  CHECK(run(near.plane(), near.make(transfer_op::write, {near.pair(0, 0, 1 * MiB)})).path ==
        transfer_path::tcp);
}

TEST_CASE("a shared-memory link that breaks is replaced by TCP, and the write lands once") {
  world<any_path> w;
  w.faults.set([](transfer_path path, transfer_id, std::uint32_t index) {
    return path == transfer_path::shm && index == 2 ? fault{fault::kind::cut, {}} : fault{};
  });
  const auto done = run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 4 * MiB)}));
  REQUIRE_MESSAGE(done.outcome, to_string(done.outcome.error()));
  CHECK(done.path == transfer_path::tcp);
  CHECK(std::memcmp(w.from().bytes().data(), w.to().bytes().data(), 4 * MiB) == 0);
  CHECK(w.receiver().landings.take().verified);
  CHECK(w.receiver().landings.size() == 0);
  std::uint64_t retries = 0;
  for (const auto& s : w.plane().stats()) retries += s.retries;
  CHECK(retries == 1);
}

TEST_CASE("a TCP connection that breaks is made anew, and the write lands once") {
  world<tcp_path> w;
  std::atomic<int> cuts{0};
  w.faults.set([&](transfer_path, transfer_id, std::uint32_t index) {
    return index == 5 && cuts++ == 0 ? fault{fault::kind::cut, {}} : fault{};
  });
  const auto done = run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 8 * MiB)}));
  REQUIRE_MESSAGE(done.outcome, to_string(done.outcome.error()));
  CHECK(done.fenced);
  CHECK(std::memcmp(w.from().bytes().data(), w.to().bytes().data(), 8 * MiB) == 0);
  CHECK(w.receiver().landings.take().verified);
  CHECK(w.receiver().landings.size() == 0);
}

TEST_CASE("a region without shared memory behind it is reached over TCP even on one host") {
  world<any_path> w;
  std::vector<std::byte> heap(1 * MiB);
  const auto region = w.receiver().plane->register_region(heap);
  REQUIRE(region);
  introduce(w.sender(), w.receiver());
  const auto done =
      run(w.plane(), w.make(transfer_op::write, {{{w.here().id, 0, 1 * MiB}, {region->id, 0, 1 * MiB}, {}}}));
  REQUIRE(done.outcome);
  CHECK(done.path == transfer_path::tcp);
  CHECK(std::memcmp(heap.data(), w.from().bytes().data(), heap.size()) == 0);
}

TEST_CASE("processes of one host work in memory that both have mapped, as long as either holds it") {
  world<any_path> w;
  const auto view = w.plane().map(w.receiver().id(), w.there().id);
  REQUIRE_MESSAGE(view, to_string(view.error()));
  REQUIRE(view->bytes.size() == w.to().bytes().size());
  view->bytes[70'000] = std::byte{42};
  CHECK(w.to().bytes()[70'000] == std::byte{42});
  w.to().bytes()[3] = std::byte{7};
  CHECK(view->bytes[3] == std::byte{7});
  CHECK(w.plane().map(w.receiver().id(), region_id{99}).error() == ec::not_found);
  std::vector<std::byte> heap(1 * MiB);
  const auto unshared = w.receiver().plane->register_region(heap);
  REQUIRE(unshared);
  introduce(w.sender(), w.receiver());
  CHECK(w.plane().map(w.receiver().id(), unshared->id).error() == ec::unsupported);
  auto other_key = w.receiver().plane->local_announcement();
  for (auto& r : other_key.regions) ++r.access_key;
  REQUIRE(w.plane().add_peer(other_key.address, other_key.regions));
  CHECK_FALSE(w.plane().map(w.receiver().id(), w.there().id));
  w.plane().remove_peer(w.receiver().id());
  CHECK(view->bytes[70'000] == std::byte{42});
  CHECK(w.plane().map(w.receiver().id(), w.there().id).error() == ec::not_found);
  auto far = w.receiver().plane->local_announcement();
  far.address.host_id = "elsewhere";
  REQUIRE(w.plane().add_peer(far.address, far.regions));
  CHECK(w.plane().map(w.receiver().id(), w.there().id).error() == ec::unsupported);
  world<tcp_path> by_wire;
  CHECK(by_wire.plane().map(by_wire.receiver().id(), by_wire.there().id).error() == ec::unsupported);
}

TEST_CASE(
    "memory that the peer cannot map is still written from over shared memory, and what changes is corrupt") {
  world<shm_path> w;
  std::vector<std::byte> heap(3 * MiB, std::byte{42});
  const auto source = w.plane().register_region(heap);
  REQUIRE(source);
  const slice_pair pair{{source->id, 0, heap.size()}, {w.there().id, 5, heap.size()}, {}};
  const auto done = run(w.plane(), w.make(transfer_op::write, {pair}));
  REQUIRE_MESSAGE(done.outcome, to_string(done.outcome.error()));
  CHECK(std::memcmp(w.to().bytes().data() + 5, heap.data(), heap.size()) == 0);
  CHECK(w.receiver().landings.take().verified);
  w.faults.set([](transfer_path, transfer_id, std::uint32_t index) {
    return index == 3 ? fault{fault::kind::corrupt, {}} : fault{};
  });
  CHECK(run(w.plane(), w.make(transfer_op::write, {pair})).outcome.error() == ec::corrupt);
  CHECK(!w.receiver().landings.take().verified);
}

TEST_CASE("a source that was unregistered and made anew is written from again") {
  world<shm_path> w;
  for (int i = 0; i < 3; ++i) {
    const shared_memory memory{1 * MiB};
    memory.fill(static_cast<std::uint64_t>(i) + 50);
    const auto source = w.plane().register_region(memory.bytes(), memory.fd());
    REQUIRE(source);
    REQUIRE(run(w.plane(),
                w.make(transfer_op::write, {{{source->id, 0, 1 * MiB}, {w.there().id, 0, 1 * MiB}, {}}}))
                .outcome);
    CHECK(std::memcmp(w.to().bytes().data(), memory.bytes().data(), 1 * MiB) == 0);
    REQUIRE(w.plane().unregister_region(source->id));
  }
}

TEST_CASE("options out of range are refused by name") {
  auto bad = plain_options(1);
  bad.tcp_streams = 0;
  auto r = data_plane::start(bad, {});
  REQUIRE(!r);
  CHECK(r.error().detail.find("tcp_streams") != std::string::npos);
  bad = plain_options(1);
  bad.cluster_secret = {};
  CHECK(!data_plane::start(bad, {}));
  bad = plain_options(1);
  bad.listen_host = "203.0.113.7";
  CHECK(!data_plane::start(bad, {}));
}

TEST_CASE("regions that could harm a peer or are none are refused") {
  test_node n{plain_options(1), 1 * MiB};
  CHECK(!n.plane->register_region({}));
  CHECK(!n.plane->register_region(n.memory.bytes(), n.memory.fd(), 4096));
  CHECK(!n.plane->register_region(n.memory.bytes(), 0));
  CHECK(n.plane->unregister_region(region_id{12345}).error() == ec::not_found);
}

TEST_CASE("more transfers than allowed are refused as overload, at once") {
  world<shm_path> w{[](data_plane_options& o) { o.max_transfers = 4; }};
  w.faults.set([](transfer_path, transfer_id, std::uint32_t index) {
    return index == 0 ? fault{fault::kind::delay, std::chrono::milliseconds(50)} : fault{};
  });
  mailbox<completion> done;
  for (int i = 0; i < 10; ++i)
    w.plane().submit(w.make(transfer_op::write, {w.pair(0, 0, 1000)}),
                     [&](const completion& c) { done.put(c); });
  int refused = 0;
  for (int i = 0; i < 10; ++i) {
    const auto c = done.take();
    if (!c.outcome && c.outcome.error() == ec::overloaded) ++refused;
  }
  CHECK(refused == 6);
}

TEST_CASE("callbacks run where their owner wants them") {
  std::mutex mutex;
  std::vector<std::function<void()>> queue;
  mailbox<completion> done;
  auto started = data_plane::start(plain_options(1), {}, [&](std::function<void()> f) {
    std::lock_guard lock{mutex};
    queue.push_back(std::move(f));
  });
  REQUIRE(started);
  (*started)->submit({transfer_id{1}, node_id{9}, transfer_op::write, {}, {}, time_point::max()},
                     [&](const completion& c) { done.put(c); });
  CHECK(done.size() == 0);
  REQUIRE(queue.size() == 1);
  queue[0]();
  CHECK(done.take().outcome.error() == ec::not_found);
}
