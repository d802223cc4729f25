// Device memory where no NIC is there to reach it: everything refuses, with the reason, and nobody touches
// it.

#include "gpu/cuda/dma_buf.hpp"
#include "tests/conformance/transport_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

// An address that would crash whoever touched it.
constexpr device_memory nowhere{.address = 0x7'0000'0000, .length = 1 * MiB};

struct without_rdma {
  static constexpr auto path = transfer_path::shm;
  static void configure(data_plane_options& o) { o.rdma.enabled = false; }
};

slice_pair between(const region_desc& local, const region_desc& remote) {
  return {{local.id, 0, 64 * KiB}, {remote.id, 0, 64 * KiB}, {}};
}

}  // namespace

TEST_CASE("device memory is refused over every path but RDMA, and the reason says so") {
  world<without_rdma> w;
  const auto mine = w.plane().register_device_region(nowhere);
  const auto theirs = w.receiver().plane->register_device_region(nowhere);
  REQUIRE(mine);
  REQUIRE(theirs);
  CHECK(mine->kind == memory_kind::device);
  CHECK(mine->base == nowhere.address);
  CHECK(w.plane().reaches(mine->id).error().detail == "this node has no RDMA");
  introduce(w.sender(), w.receiver());
  for (const auto op : {transfer_op::write, transfer_op::read}) {
    for (const auto& pair :
         {between(*mine, w.there()), between(w.here(), *theirs), between(*mine, *theirs)}) {
      const auto done = run(w.plane(), w.make(op, {pair}));
      REQUIRE(!done.outcome);
      CHECK(done.outcome.error() == ec::unsupported);
      CHECK(done.outcome.error().detail.find(
                "device memory, which only RDMA reaches: this node has no RDMA") != std::string::npos);
    }
  }
  // What touches none of it still goes as before.
  CHECK(run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 64 * KiB)})).path == transfer_path::shm);
  REQUIRE(w.plane().unregister_region(mine->id));
}

TEST_CASE("device memory of this node is not copied by the processor, and its checksum not promised") {
  world<local_path> w;
  const auto mine = w.plane().register_device_region(nowhere);
  REQUIRE(mine);
  CHECK(run(w.plane(), w.make(transfer_op::write, {between(w.here(), *mine)})).outcome.error() ==
        ec::unsupported);
  auto checked = between(*mine, w.here());
  checked.expected_checksum = 7;
  CHECK(run(w.plane(), w.make(transfer_op::read, {checked})).outcome.error() == ec::invalid_argument);
}

TEST_CASE_TEMPLATE("a peer that takes device memory for host memory is refused by its owner", P, shm_path,
                   tcp_path) {
  world<P> w;
  const auto theirs = w.receiver().plane->register_device_region(nowhere);
  REQUIRE(theirs);
  auto told = w.receiver().plane->local_announcement();
  for (auto& r : told.regions) r.kind = memory_kind::host;
  REQUIRE(w.plane().add_peer(told.address, told.regions));
  for (const auto op : {transfer_op::write, transfer_op::read})
    CHECK(!run(w.plane(), w.make(op, {between(w.here(), *theirs)})).outcome);
  CHECK(w.receiver().landings.size() == 0);
}

TEST_CASE("device regions that are none are refused") {
  world<local_path> w;
  CHECK(!w.plane().register_device_region({.address = 4096, .length = 0}));
  CHECK(!w.plane().register_device_region({.address = 0, .length = 4096}));
  CHECK(!w.plane().register_device_region({.address = UINT64_MAX, .length = 4096}));
  CHECK(!w.plane().register_device_region({.address = 4096, .length = 4096, .dma_buf_offset = 1}));
  CHECK(!w.plane().register_device_region({.address = 4096, .length = 4096, .dma_buf = 1 << 20}));
}

TEST_CASE("memory that is of no GPU is not exported, and what the host offers is said") {
  const int here = 0;
  const auto exported = export_dma_buf(reinterpret_cast<std::uintptr_t>(&here), sizeof(here));
  REQUIRE(!exported);
  CHECK(!exported.error().detail.empty());
  const auto support = describe_dma_buf_support();
  CHECK(!(support ? *support : support.error().detail).empty());
}
