// What several rails promise, on real queue pairs: runs in the virtual machine of run-in-vm.sh, whose two
// rails rxe0 and rxe1 sit on the interfaces v0 and v1.

#include <algorithm>
#include <map>

#include "tests/conformance/transport_world.hpp"
#include "tests/rdma/links.hpp"
#include "transport/rdma/device.hpp"
#include "transport/rdma/queue_pair.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

std::uint64_t slices_of(const data_plane& p, std::size_t rail) { return p.rails().at(rail).slices; }

/// Writes until `until` says so, one after another; a bound for hangs only.
void write_until(world<rdma_path>& w, const std::function<bool()>& until) {
  const auto end = clock_type::now() + patience;
  while (!until()) {
    REQUIRE_MESSAGE(clock_type::now() < end, "it did not come to that");
    const auto done = run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 8 * MiB)}));
    REQUIRE_MESSAGE(done.outcome, to_string(done.outcome.error()));
  }
}

bool same(const shared_memory& a, const shared_memory& b, std::size_t n) {
  return std::memcmp(a.bytes().data(), b.bytes().data(), n) == 0;
}

}  // namespace

TEST_CASE("long transfers stripe over both rails") {
  world<rdma_path> w;
  REQUIRE(w.plane().rails().size() == 2);
  write_until(w, [&] { return slices_of(w.plane(), 0) > 16 && slices_of(w.plane(), 1) > 16; });
  CHECK(same(w.from(), w.to(), 8 * MiB));
  for (const auto& r : w.plane().rails()) {
    CHECK(r.up);
    CHECK(r.bytes_written > 0);
    CHECK(r.latency.count == r.slices);
  }
}

TEST_CASE(
    "a rail taken down in the middle of transfers costs none of them, and is used again when it is back") {
  const links_restored restore;
  world<rdma_path> w{[](data_plane_options& o) { o.rdma.retry_count = 2; }};
  write_until(w, [&] { return slices_of(w.plane(), 0) > 0 && slices_of(w.plane(), 1) > 0; });
  while (w.receiver().landings.size() > 0) w.receiver().landings.take();
  constexpr std::size_t count = 24;
  mailbox<completion> done;
  for (std::size_t i = 0; i < count; ++i)
    w.plane().submit(w.make(i % 4 == 3 ? transfer_op::read : transfer_op::write,
                            {i % 4 == 3 ? w.pair(32 * MiB, 32 * MiB, 4 * MiB) : w.pair(0, 0, 16 * MiB)}),
                     [&](const completion& c) { done.put(c); });
  done.await(2);
  set_link(1, false);
  for (std::size_t i = 0; i < count; ++i) {
    const auto c = done.take();
    REQUIRE_MESSAGE(c.outcome, to_string(c.outcome.error()));
    CHECK(c.path == transfer_path::rdma);
  }
  w.receiver().landings.await(count * 3 / 4);
  CHECK(w.receiver().landings.size() == count * 3 / 4);
  CHECK(done.size() == 0);
  CHECK(same(w.from(), w.to(), 16 * MiB));
  const auto rails = w.plane().rails();
  CHECK(!rails[1].up);
  CHECK(rails[1].failures > 0);
  CHECK(!rails[1].last_error.empty());
  CHECK(rails[0].retries > 0);

  const auto before = slices_of(w.plane(), 1);
  set_link(1, true);
  write_until(w, [&] { return slices_of(w.plane(), 1) > before; });
  CHECK(w.plane().rails()[1].up);
}

TEST_CASE("with no rail left TCP takes over, and RDMA comes back") {
  const links_restored restore;
  // Its own world: with TCP.
  const auto both = [](data_plane_options& o) {
    o.tcp = true;
    o.retry_after = std::chrono::milliseconds(200);
    o.rdma.retry_count = 2;
  };
  world<rdma_path> w{both};
  CHECK(run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 8 * MiB)})).path == transfer_path::rdma);
  constexpr int count = 12;
  mailbox<completion> done;
  for (int i = 0; i < count; ++i)
    w.plane().submit(w.make(transfer_op::write, {w.pair(0, 0, 16 * MiB)}),
                     [&](const completion& c) { done.put(c); });
  done.await(1);
  for (const int n : {0, 1}) set_link(n, false);
  std::size_t over_tcp = 0;
  for (int i = 0; i < count; ++i) {
    const auto c = done.take();
    REQUIRE_MESSAGE(c.outcome, to_string(c.outcome.error()));
    over_tcp += c.path == transfer_path::tcp;
  }
  CHECK(over_tcp > 0);
  w.receiver().landings.await(count + 1);
  CHECK(w.receiver().landings.size() == count + 1);
  CHECK(same(w.from(), w.to(), 16 * MiB));
  for (const int n : {0, 1}) set_link(n, true);
  const auto end = clock_type::now() + patience;
  while (run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 1 * MiB)})).path != transfer_path::rdma)
    REQUIRE_MESSAGE(clock_type::now() < end, "RDMA did not come back");
}

TEST_CASE("queue pairs that break at random cost no transfer that is sent again, and none lands twice") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    CAPTURE(seed);
    world<rdma_path> w{[](data_plane_options& o) { o.rdma.rail_retry_after = std::chrono::milliseconds(1); }};
    std::mt19937_64 random{seed};
    std::mutex m;
    w.faults.set([&](transfer_path, transfer_id, std::uint32_t) {
      std::lock_guard lock{m};
      return random() % 40 == 0 ? fault{fault::kind::cut, {}} : fault{};
    });
    constexpr std::size_t count = 60;
    mailbox<completion> done;
    std::map<transfer_id, std::size_t> piece_of;
    const auto send = [&](std::size_t piece) {
      const auto at = piece * 512 * KiB;
      auto t = w.make(transfer_op::write, {w.pair(at, at, 512 * KiB)});
      piece_of[t.id] = piece;
      w.plane().submit(std::move(t), [&](const completion& c) { done.put(c); });
    };
    for (std::size_t i = 0; i < count; ++i) send(i);
    std::map<transfer_id, std::size_t> landings;  // of those that succeeded, how often
    while (landings.size() < count) {
      const auto c = done.take();
      CHECK(c.fenced);
      if (c.outcome) {
        REQUIRE(landings.emplace(c.id, 0).second);
        continue;
      }
      // With both rails broken at once and TCP not allowed an attempt may end; it must say so, and the next
      // may do.
      CHECK((c.outcome.error() == ec::unavailable || c.outcome.error() == ec::peer_lost));
      REQUIRE(piece_of.size() < 20 * count);
      send(piece_of.at(c.id));
    }
    CHECK(w.plane().transfers_in_flight() == 0);
    CHECK(done.size() == 0);
    CHECK(same(w.from(), w.to(), count * 512 * KiB));
    w.receiver().landings.await(count);
    while (w.receiver().landings.size() > 0) {
      const auto landed = w.receiver().landings.take();
      CHECK(landed.verified);
      // An attempt whose end was not heard of may have landed, too.
      CHECK(++landings[landed.id] == 1);
    }
    for (const auto& [id, times] : landings) CHECK(times == 1);
  }
}

TEST_CASE("more peers than the cap allows take turns") {
  auto options = [](std::uint64_t node) {
    auto o = plain_options(node);
    rdma_path::configure(o);
    o.rdma.max_links = 1;
    return o;
  };
  test_node a{options(1), 1 * MiB};
  test_node b{options(2), 1 * MiB};
  test_node c{options(3), 1 * MiB};
  introduce(a, b);
  introduce(a, c);
  for (std::uint64_t i = 0; i < 6; ++i) {
    auto& to = i % 2 ? b : c;
    transfer t;
    t.id.value = i + 1;
    t.peer = to.id();
    t.slices = {{{a.region.id, 0, 100 * KiB}, {to.region.id, 0, 100 * KiB}, {}}};
    const auto done = run(*a.plane, t);
    REQUIRE_MESSAGE(done.outcome, to_string(done.outcome.error()));
    CHECK(to.landings.take().id == t.id);
  }
}

TEST_CASE("a short queue in small pieces, with a loop that polls before it sleeps, moves the same bytes") {
  world<rdma_path> w{[](data_plane_options& o) {
    o.rdma.queue_depth = 16;
    o.rdma.signal_every = 8;
    o.rdma.slice_bytes = 4 * KiB;
    o.rdma.read_depth = 1;
    o.rdma.poll_spin = std::chrono::milliseconds(1);
  }};
  constexpr std::uint64_t bytes = 2 * MiB + 77;  // 32 times what the queues of both rails hold
  for (const auto op : {transfer_op::write, transfer_op::read}) {
    w.from().fill(op == transfer_op::write ? 11 : 12);
    const auto done = run(w.plane(), w.make(op, {w.pair(0, 0, bytes)}));
    REQUIRE_MESSAGE(done.outcome, to_string(done.outcome.error()));
    CHECK(same(w.from(), w.to(), bytes));
  }
}

TEST_CASE("a device list that matches nothing leaves no RDMA path, and says so") {
  auto o = plain_options(1);
  rdma_path::configure(o);
  o.tcp = true;
  o.rdma.devices = {"mlx5_77"};
  const auto plane = data_plane::start(o, {});
  REQUIRE(plane);
  CHECK((*plane)->rails().empty());
  REQUIRE(!(*plane)->rdma_notes().empty());
  CHECK((*plane)->rdma_notes().back().find("no usable RDMA device") != std::string::npos);
}

// ---- verbs
// ---------------------------------------------------------------------------------------------------------

namespace {

struct collector final : queue_pair_owner {
  void on_done(const rdma_item&) override { ++done; }
  void on_message(std::span<const std::byte>) override {}
  unsigned done = 0;
};

/// Two queue pairs of one rail, connected to each other.
struct bare_pair {
  bare_pair() : found(discover(options)) {
    REQUIRE(!found.rails.empty());
    for (auto* q : {&a, &b}) {
      auto made = queue_pair::make(*found.rails[0], options);
      REQUIRE_MESSAGE(made, to_string(made.error()));
      *q = std::move(*made);
    }
    REQUIRE(a->connect(b->endpoint()));
    REQUIRE(b->connect(a->endpoint()));
  }
  /// @returns the error that the order met, or none.
  result<void> outcome(const rdma_order& o) {
    a->add(o, {});
    REQUIRE(a->flush());
    collector c;
    const auto end = clock_type::now() + patience;
    while (c.done == 0) {
      const auto n = a->poll(c);
      if (!n) return fail(n.error());
      REQUIRE(clock_type::now() < end);
    }
    return {};
  }
  verbs_memory share(std::vector<std::byte>& bytes) {
    auto mr = found.rails[0]->device->register_memory(bytes);
    REQUIRE(mr);
    return std::move(*mr);
  }

  rdma_options options;
  discovery found;
  std::unique_ptr<queue_pair> a;
  std::unique_ptr<queue_pair> b;
  std::vector<std::byte> here = std::vector<std::byte>(64 * KiB, std::byte{1});
  std::vector<std::byte> there = std::vector<std::byte>(64 * KiB, std::byte{2});
};

std::uint64_t address(const std::vector<std::byte>& v) { return reinterpret_cast<std::uintptr_t>(v.data()); }

}  // namespace

TEST_CASE("verbs: what is registered is written and read") {
  bare_pair p;
  const auto mine = p.share(p.here);
  const auto theirs = p.share(p.there);
  CHECK(p.outcome({false, p.here.data(), mine->lkey, address(p.there), theirs->rkey, 64 * KiB}));
  CHECK(p.there == p.here);
  p.there.assign(64 * KiB, std::byte{9});
  CHECK(p.outcome({true, p.here.data(), mine->lkey, address(p.there), theirs->rkey, 64 * KiB}));
  CHECK(p.here == p.there);
}

TEST_CASE("verbs: one completion stands for many orders, and every order is reported") {
  bare_pair p;
  const auto mine = p.share(p.here);
  const auto theirs = p.share(p.there);
  constexpr unsigned orders = 64;
  for (unsigned i = 0; i < orders; ++i)
    p.a->add({false, p.here.data(), mine->lkey, address(p.there), theirs->rkey, 512}, {});
  REQUIRE(p.a->flush());
  collector c;
  unsigned completions = 0;
  const auto end = clock_type::now() + patience;
  while (c.done < orders) {
    const auto n = p.a->poll(c);
    REQUIRE(n);
    completions += *n;
    REQUIRE(clock_type::now() < end);
  }
  CHECK(c.done == orders);
  CHECK(completions == orders / p.options.signal_every);
  CHECK(p.a->unfinished().empty());
}

TEST_CASE("verbs: a source that is not registered sends nothing") {
  bare_pair p;
  const auto theirs = p.share(p.there);
  const auto before = p.there;
  CHECK(!p.outcome({false, p.here.data(), 0x123456, address(p.there), theirs->rkey, 64 * KiB}));
  CHECK(p.there == before);
}

TEST_CASE(
    "verbs: an address outside of the region, a wrong key and a stale key are refused by the peer's NIC") {
  for (const int what : {0, 1, 2}) {
    CAPTURE(what);
    bare_pair p;
    const auto mine = p.share(p.here);
    auto theirs = p.share(p.there);
    const auto before = p.there;
    rdma_order o{false, p.here.data(), mine->lkey, address(p.there), theirs->rkey, 32 * KiB};
    if (what == 0) o.remote += 48 * KiB;
    if (what == 1) o.remote_key ^= 0x5500;
    if (what == 2) theirs.reset();
    CHECK(!p.outcome(o));
    CHECK(p.a->access_refused());
    CHECK(p.there == before);
  }
}

TEST_CASE("verbs: memory shared without permission to write is not written") {
  bare_pair p;
  const auto mine = p.share(p.here);
  const auto& device = *p.found.rails[0]->device;
  const verbs_memory read_only{
      ::ibv_reg_mr(device.domain.get(), p.there.data(), p.there.size(), IBV_ACCESS_REMOTE_READ)};
  REQUIRE(read_only);
  const auto before = p.there;
  CHECK(!p.outcome({false, p.here.data(), mine->lkey, address(p.there), read_only->rkey, 32 * KiB}));
  CHECK(p.there == before);
}
