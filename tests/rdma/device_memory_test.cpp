// Device memory over real queue pairs, in the virtual machine. Soft-RoCE imports no dma-bufs, and takes any
// memory of the process for peer memory: so one way is refused for real and the other one carries bytes for
// real.

#include "tests/conformance/transport_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

device_memory as_device(const shared_memory& m, int dma_buf = -1) {
  return {.address = reinterpret_cast<std::uintptr_t>(m.bytes().data()),
          .length = m.bytes().size(),
          .dma_buf = dma_buf};
}

}  // namespace

TEST_CASE("a NIC that refuses a dma-buf is named with its reason, and transfers of that memory are refused") {
  world<rdma_path> w;
  const shared_memory memory{1 * MiB};
  const auto mine = w.plane().register_device_region(as_device(memory, memory.fd()));
  const auto theirs = w.receiver().plane->register_device_region(as_device(memory, memory.fd()));
  REQUIRE(mine);
  REQUIRE(theirs);
  introduce(w.sender(), w.receiver());
  for (const auto& r : w.plane().rails())
    CHECK(r.last_error.find(r.name.substr(0, 4) + " refuses the dma-buf") != std::string::npos);
  for (const auto op : {transfer_op::write, transfer_op::read}) {
    for (const auto& pair : {slice_pair{{mine->id, 0, 4096}, {w.there().id, 0, 4096}, {}},
                             slice_pair{{w.here().id, 0, 4096}, {theirs->id, 0, 4096}, {}}}) {
      const auto done = run(w.plane(), w.make(op, {pair}));
      REQUIRE(!done.outcome);
      CHECK(done.outcome.error() == ec::unsupported);
      CHECK(done.outcome.error().detail.find("refuses the dma-buf") != std::string::npos);
    }
  }
  CHECK(run(w.plane(), w.make(transfer_op::write, {w.pair(0, 0, 1 * MiB)})).outcome);
}

TEST_CASE("peer memory is written and read by the NICs alone, in any mixture with host memory") {
  world<rdma_path> w;
  const shared_memory near{2 * MiB};
  const shared_memory far{2 * MiB};
  near.fill(3);
  const auto mine = w.plane().register_device_region(as_device(near));
  const auto theirs = w.receiver().plane->register_device_region(as_device(far));
  REQUIRE(mine);
  REQUIRE(theirs);
  introduce(w.sender(), w.receiver());
  // Short ones too: the processor must not copy them into an order.
  for (const std::uint64_t n : {std::uint64_t{40}, std::uint64_t{5000}, 2 * MiB}) {
    CAPTURE(n);
    const auto write = w.make(transfer_op::write, {{{mine->id, 0, n}, {theirs->id, 0, n}, {}},
                                                   {{w.here().id, 0, n}, {w.there().id, 0, n}, {}}});
    const auto done = run(w.plane(), write);
    REQUIRE_MESSAGE(done.outcome, to_string(done.outcome.error()));
    CHECK(w.receiver().landings.take().bytes == 2 * n);
    CHECK(std::memcmp(near.bytes().data(), far.bytes().data(), n) == 0);
    CHECK(std::memcmp(w.from().bytes().data(), w.to().bytes().data(), n) == 0);
  }
  far.fill(4);
  const auto read =
      w.make(transfer_op::read, {{{w.here().id, 0, 1 * MiB}, {theirs->id, 512 * KiB, 1 * MiB}, {}}});
  REQUIRE(run(w.plane(), read).outcome);
  CHECK(std::memcmp(w.from().bytes().data(), far.bytes().data() + 512 * KiB, 1 * MiB) == 0);
}
