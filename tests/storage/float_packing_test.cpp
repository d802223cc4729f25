#include "storage/float_packing.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/half_floats.hpp"

using namespace mooncaf;

namespace {

using bytes = std::vector<std::byte>;

bytes packed(const bytes& from) {
  bytes to(float_packing::bound(from.size())), plainly(to.size());
  to.resize(float_packing::pack(from, to));
  plainly.resize(float_packing::pack(from, plainly, false));
  CHECK(to == plainly);  // whatever processor wrote them
  return to;
}

void check_back(const bytes& packing, const bytes& was) {
  for (const bool fast : {false, float_packing::has_avx2()}) {
    bytes back(was.size(), std::byte{0xA5});
    CHECK(float_packing::unpack(packing, back, fast));
    CHECK(back == was);
  }
}

}  // namespace

TEST_CASE("floating-point numbers come back to the bit in fewer bytes, wherever they begin") {
  std::mt19937_64 random{1};
  struct kind {
    const char* name;
    bytes (*make)(std::size_t, std::mt19937_64&);
    double at_most;
  };
  for (const auto& k : {kind{"BF16", test::bf16_numbers, 0.73}, kind{"F16", test::f16_numbers, 0.91}})
    for (const std::size_t numbers : {1024u, 8192u, 8193u, 16'384u, 100'001u})
      for (const std::size_t lead : {0u, 1u, 2u, 7u}) {
        CAPTURE(k.name);
        CAPTURE(numbers);
        CAPTURE(lead);
        auto was = k.make(numbers, random);
        was.insert(was.begin(), lead, std::byte{0x3F});
        const auto packing = packed(was);
        CHECK(static_cast<double>(packing.size()) < k.at_most * static_cast<double>(was.size()) + 64);
        REQUIRE(!packing.empty());
        check_back(packing, was);
      }
}

TEST_CASE("zeros, infinities, what is no number, and chunks that do not pack come back, too") {
  std::mt19937_64 random{2};
  auto was = test::bf16_numbers(60'000, random);
  for (std::size_t i = 0; i < was.size(); i += 2 * (1 + random() % 40)) {
    constexpr std::uint16_t odd[] = {0, 0x8000, 0x7F80, 0xFF80, 0x7FC1, 1, 0xFFFF};
    std::memcpy(&was[i], &odd[random() % std::size(odd)], 2);
  }
  for (std::size_t i = 40'000; i < 72'000; ++i) was[i] = static_cast<std::byte>(random());
  check_back(packed(was), was);
  check_back(packed(bytes(50'000)), bytes(50'000));
}

TEST_CASE("what holds no such numbers is left alone") {
  std::mt19937_64 random{3};
  bytes noise(300'000);
  for (auto& b : noise) b = static_cast<std::byte>(random());
  CHECK(packed(noise).empty());
  CHECK(packed({}).empty());
  CHECK(packed(bytes(100)).empty());
  bytes eight_bits(300'000);  // as int8 rows are
  std::normal_distribution<float> normal(0, 40);
  for (auto& b : eight_bits)
    b = static_cast<std::byte>(static_cast<std::int8_t>(std::clamp(normal(random), -127.f, 127.f)));
  if (const auto p = packed(eight_bits); !p.empty()) check_back(p, eight_bits);
}

TEST_CASE("damaged packings give wrong bytes or none, and nothing is read or written beside them") {
  std::mt19937_64 random{4};
  const auto was = test::f16_numbers(20'000, random);
  const auto packing = packed(was);
  for (int round = 0; round < 3000; ++round) {
    bytes damaged(packing.begin(),
                  packing.begin() +
                      static_cast<std::ptrdiff_t>(random() % 2 ? packing.size() : random() % packing.size()));
    for (auto hits = random() % 4; hits > 0 && !damaged.empty(); --hits)
      damaged[random() % std::min<std::size_t>(damaged.size(), random() % 2 ? 64 : damaged.size())] =
          static_cast<std::byte>(random());
    damaged.shrink_to_fit();
    bytes plainly(was.size()), back(was.size());
    const bool good = float_packing::unpack(damaged, back);
    CHECK(good == float_packing::unpack(damaged, plainly, false));
    if (good) CHECK(back == plainly);
  }
  bytes other(was.size() - 2);
  CHECK_FALSE(float_packing::unpack(packing, other));
  CHECK_FALSE(float_packing::unpack({}, other));
}
