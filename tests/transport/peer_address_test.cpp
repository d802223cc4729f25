#include "transport/peer_address.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace mooncaf;

namespace {

announcement sample() {
  announcement a;
  a.address = {node_id{7}, 99,       "10.0.0.1",
               4000,       "boot:1", "@name",
               1234,       4001,     {{"mlx5_0:1", {1, 2, 3}, true}, {"mlx5_1:1", {4}, false}}};
  a.regions = {{node_id{7}, region_id{1}, 4096, 1 << 20, memory_kind::host, 5, {}},
               {node_id{7},
                region_id{2},
                8192,
                2 << 20,
                memory_kind::device,
                6,
                {{"rdma", {std::byte{1}, std::byte{2}}}}}};
  return a;
}

}  // namespace

TEST_CASE("an announcement survives the control plane") {
  const auto back = decode_announcement(encode(sample()));
  REQUIRE(back);
  CHECK(*back == sample());
}

TEST_CASE("a truncated or altered announcement is an error or another announcement, never a crash") {
  const auto good = encode(sample());
  for (std::size_t n = 0; n < good.size(); ++n) CHECK(!decode_announcement(std::span{good}.first(n)));
  std::mt19937_64 random{5};
  for (int i = 0; i < 20000; ++i) {
    auto bad = good;
    for (int k = 0; k < 3; ++k) bad[random() % bad.size()] = static_cast<std::byte>(random());
    decode_announcement(bad);
  }
  auto longer = good;
  longer.push_back({});
  CHECK(decode_announcement(longer).error() == ec::corrupt);
  auto older = good;
  older[4] = std::byte{1};
  CHECK(decode_announcement(older).error() == ec::incompatible);
}

TEST_CASE("an announcement of a later release is read where it says that it can be, without what it adds") {
  const auto now = encode(sample());
  const auto later = [&](std::byte version, std::byte readable_as) {
    auto bytes = now;
    bytes[4] = version;
    bytes.insert(bytes.begin() + 8, {readable_as, std::byte{}, std::byte{}, std::byte{}});
    bytes.insert(bytes.end(), 24, std::byte{0xAB});
    return bytes;
  };
  const auto read = decode_announcement(later(std::byte{4}, std::byte{2}));
  REQUIRE(read);
  CHECK(*read == sample());
  const auto refused = decode_announcement(later(std::byte{4}, std::byte{3}));
  REQUIRE(!refused);
  CHECK(refused.error() == ec::incompatible);
  CHECK(refused.error().detail.find("version 4") != std::string::npos);
}
