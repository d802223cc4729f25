#include <doctest/doctest.h>

#include <random>

#include "transport/rdma/rdma_wire.hpp"

using namespace mooncaf;

namespace {

rdma_notice some_notice() {
  rdma_notice n;
  n.id.value = 9;
  n.tag = {request_id{1}, 2, 3, 4};
  n.total_bytes = 1000;
  n.total_pieces = 40;
  n.has_checksums = true;
  for (std::uint32_t i = 0; i < rdma_notice::pieces_max; ++i)
    n.pieces.push_back({i, {region_id{7}, i * 10ull, 10}, i});
  return n;
}

}  // namespace

TEST_CASE("control messages, notices and acknowledgements come back as they were") {
  rdma_control c;
  c.type = rdma_control_type::map_reply;
  c.rail = 3;
  c.endpoint = {{1, 2, 3}, 77, 0xABCDEF, 5, 4, 16};
  c.region.value = 12;
  c.base = 1ull << 40;
  c.length = 4096;
  c.status = ec::not_found;
  c.detail = "gone";
  c.keys = {1, 0, 3};
  CHECK(parse_control(encode_control(c)) == c);

  std::vector<std::byte> bytes;
  encode_notice(some_notice(), bytes);
  CHECK(bytes.size() <= 1024);  // a message buffer
  const auto n = parse_message(bytes);
  REQUIRE(n);
  CHECK(n->is_notice);
  CHECK(n->notice == some_notice());

  encode_ack({transfer_id{5}, {ec::corrupt, "why"}}, bytes);
  const auto a = parse_message(bytes);
  REQUIRE(a);
  CHECK(!a->is_notice);
  CHECK(a->ack.id.value == 5);
  CHECK(a->ack.outcome.code == ec::corrupt);
}

TEST_CASE("what is cut short or altered is refused or still sound, never read past its end") {
  std::vector<std::byte> notice;
  encode_notice(some_notice(), notice);
  const auto control =
      encode_control({.type = rdma_control_type::connect_rail, .endpoint = {{}, 1, 1, 0, 5, 1}});
  for (std::size_t n = 0; n < notice.size(); ++n) CHECK(!parse_message(std::span{notice}.first(n)));
  for (std::size_t n = 0; n < control.size(); ++n) CHECK(!parse_control(std::span{control}.first(n)));
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    auto bad = seed % 2 ? notice : control;
    for (auto k = 1 + random() % 4; k-- > 0;) bad[random() % bad.size()] = static_cast<std::byte>(random());
    if (const auto m = parse_message(bad); m && m->is_notice)
      for (const auto& p : m->notice.pieces) CHECK(p.index < m->notice.total_pieces);
    [[maybe_unused]] const auto c = parse_control(bad);
  }
}
