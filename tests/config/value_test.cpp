#include "config/value.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace mooncaf;
using namespace mooncaf::config;
using namespace std::chrono_literals;

TEST_CASE("sizes are read with their unit and in no other way") {
  CHECK(parse_size("512MiB") == 512ull << 20);
  CHECK(parse_size("1.5GiB") == 3ull << 29);
  CHECK(parse_size("2GB") == 2'000'000'000ull);
  CHECK(parse_size("0B") == 0ull);
  for (const auto* bad :
       {"", "5", "MiB", "5 MiB", "5mib", "-1KiB", "1e3B", "1..5GiB", "5MiBx", "999999999TiB", ".B"})
    CHECK_MESSAGE(!parse_size(bad), bad);
}

TEST_CASE("durations are read with their unit and in no other way") {
  CHECK(parse_duration("250ms") == 250ms);
  CHECK(parse_duration("1.5s") == 1500ms);
  CHECK(parse_duration("2m") == 2min);
  CHECK(parse_duration("1h") == 1h);
  CHECK(parse_duration("7ns") == 7ns);
  for (const auto* bad : {"", "30", "s", "30 s", "-1s", "1d", "1e300h", "99999999999h", "nans"})
    CHECK_MESSAGE(!parse_duration(bad), bad);
}

TEST_CASE("endpoints need a host and a port") {
  CHECK(parse_endpoint("127.0.0.1:80") == host_port{"127.0.0.1", 80});
  CHECK(parse_endpoint("[::1]:0") == host_port{"::1", 0});
  CHECK(parse_endpoint("node-3.example:65535") == host_port{"node-3.example", 65535});
  for (const auto* bad :
       {"", ":80", "host", "host:", "host:65536", "host:-1", "::1:80", "a b:80", "[]:80", "host:80:90"})
    CHECK_MESSAGE(!parse_endpoint(bad), bad);
}

TEST_CASE("what is formatted reads back to the same value") {
  std::mt19937_64 rng(3);
  for (int round = 0; round < 2000; ++round) {
    const std::uint64_t bytes = (rng() >> (rng() % 53 + 11)) << (rng() % 2 ? 0 : rng() % 3 * 10);
    INFO("seed 3, round ", round, ", ", format_size(bytes));
    if (bytes <= 1ull << 53) REQUIRE(parse_size(format_size(bytes)) == bytes);
    const std::chrono::nanoseconds time{static_cast<std::int64_t>(rng() >> (rng() % 50 + 11))};
    REQUIRE(parse_duration(format_duration(time)) == time);
    const double real = static_cast<double>(rng() % 1'000'000) / 997.0;
    REQUIRE(parse_real(format_real(real)) == real);
    const host_port at{rng() % 2 ? "::1" : "host", static_cast<std::uint16_t>(rng())};
    REQUIRE(parse_endpoint(to_string(at)) == at);
  }
}

TEST_CASE("the nearest name is offered only if it is near") {
  const std::vector<std::string> names = {"chunk-tokens", "block-tokens", "threads", "tcp"};
  CHECK(nearest("chunk-token", names) == "chunk-tokens");
  CHECK(nearest("thraeds", names) == "threads");
  CHECK(nearest("completely-else", names).empty());
  CHECK(nearest(std::string(100'000, 'x'), names).empty());
}
