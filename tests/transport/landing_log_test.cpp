#include <doctest/doctest.h>

#include "transport/node_state.hpp"

using namespace mooncaf;
using landing_state = landing_log::state;

namespace {
constexpr node_id from{7};
constexpr std::uint64_t life = 1;
}  // namespace

TEST_CASE("a landing log knows the last 65,536 ends, whether ids are dense or far apart, and every claim") {
  std::uint64_t step = 0;
  SUBCASE("dense") { step = 1; }
  SUBCASE("far apart") { step = 1000; }
  landing_log log;
  constexpr std::uint64_t n = 200'000, remembered = 65'536;
  const auto id = [&](std::uint64_t i) { return transfer_id{1 + i * step}; };
  CHECK(log.claim(from, life, id(0)) == landing_state::fresh);
  for (std::uint64_t i = 1; i <= n; ++i) {
    CHECK(log.claim(from, life, id(i)) == landing_state::fresh);
    CHECK(log.finish(from, life, id(i), i % 3 != 0));
  }
  for (std::uint64_t i = n - remembered + 1; i <= n; ++i)
    REQUIRE(log.look(from, life, id(i)) == (i % 3 != 0 ? landing_state::landed : landing_state::failed));
  CHECK(!log.finish(from, life, id(n), true));
  CHECK(log.claim(from, life, id(n)) != landing_state::fresh);
  CHECK(log.look(from, life, id(0)) == landing_state::claimed);  // whoever receives it still does

  log.release(from, life, id(0));
  CHECK(log.claim(from, life, id(0)) == landing_state::fresh);
  CHECK(log.finish(from, life, id(0), true));
  for (std::uint64_t i = n + 1; i <= 2 * n; ++i) log.finish(from, life, id(i), true);
  CHECK(log.look(from, life, id(1)) == landing_state::fresh);  // it does not grow for ever
  CHECK(log.look(from, life + 1, id(2 * n)) == landing_state::fresh);
}
