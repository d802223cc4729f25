#include "transport/rdma/rail.hpp"

#include <doctest/doctest.h>

using namespace mooncaf;

namespace {

rdma_gid v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  rdma_gid g{};
  g[10] = g[11] = 0xff;
  g[12] = a;
  g[13] = b;
  g[14] = c;
  g[15] = d;
  return g;
}
rdma_gid v6(std::uint8_t first, std::uint8_t second, std::uint8_t last) {
  rdma_gid g{};
  g[0] = first;
  g[1] = second;
  g[15] = last;
  return g;
}
std::optional<rdma_gid> no_route(const rdma_gid&) { return {}; }

using kind = gid_entry::kind;

}  // namespace

TEST_CASE("a RoCE port speaks with its IPv4 address over version 2, never over version 1") {
  const gid_entry table[] = {{v6(0xfe, 0x80, 1), 0, kind::roce_v1},
                             {v6(0xfe, 0x80, 1), 1, kind::roce_v2},
                             {v4(10, 0, 0, 1), 2, kind::roce_v1},
                             {v4(10, 0, 0, 1), 3, kind::roce_v2},
                             {v6(0x20, 1, 9), 4, kind::roce_v2}};
  CHECK(choose_gid(table, true, -1)->index == 3);
  CHECK(choose_gid(std::span{table}.first(2), true, -1)->index == 1);
  CHECK(!choose_gid(std::span{table}.first(1), true, -1));
  CHECK(choose_gid(table, true, 4)->index == 4);
  CHECK(!choose_gid(table, true, 9));
}

TEST_CASE("an InfiniBand port speaks with its first address, and an empty one is no address") {
  const gid_entry table[] = {{{}, 0, kind::infiniband}, {v6(0xfe, 0x80, 7), 1, kind::infiniband}};
  CHECK(choose_gid(table, false, -1)->index == 1);
}

TEST_CASE("rails in one network belong together, in whatever order they are listed") {
  const rdma_rail_address remote[] = {{"b1", v4(10, 0, 2, 7), true}, {"b0", v4(10, 0, 1, 7), true}};
  CHECK(counterpart({{"a0", v4(10, 0, 1, 1), true}, 24}, 0, remote, no_route) == 1);
  CHECK(counterpart({{"a1", v4(10, 0, 2, 1), true}, 24}, 1, remote, no_route) == 0);
}

TEST_CASE("across routers the route decides, and where nothing does the rails spread") {
  const rdma_rail_address remote[] = {{"b0", v4(10, 9, 0, 7), true}, {"b1", v4(10, 9, 1, 7), true}};
  const rail_location a1{{"a1", v4(10, 0, 2, 1), true}, 24};
  const auto route = [&](const rdma_gid& to) -> std::optional<rdma_gid> {
    return to == remote[1].gid ? a1.address.gid : v4(10, 0, 1, 1);
  };
  CHECK(counterpart(a1, 0, remote, route) == 1);
  CHECK(counterpart(a1, 0, remote, no_route) == 0);
  CHECK(counterpart(a1, 1, remote, no_route) == 1);
}

TEST_CASE("InfiniBand and RoCE do not reach each other") {
  const rdma_rail_address remote[] = {{"b0", v6(0xfe, 0x80, 1), false}};
  CHECK(!counterpart({{"a0", v4(10, 0, 1, 1), true}, 24}, 0, remote, no_route));
  CHECK(counterpart({{"a1", v6(0xfe, 0x80, 2), false}, 0}, 0, remote, no_route) == 0);
}

TEST_CASE("the kernel names the source of a route and the network of an address") {
  const auto loopback = v4(127, 0, 0, 1);
  CHECK(kernel_route_source(loopback) == loopback);
  CHECK(local_prefix_bits(loopback) == 8);
  CHECK(local_prefix_bits(v4(203, 0, 113, 9)) == 0);
  CHECK(to_string(loopback) == "127.0.0.1");
}
