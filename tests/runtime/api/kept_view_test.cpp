// Prefixes that are kept, as a tenant sees them.

#include "runtime/api/kept_view.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

using namespace mooncaf;

TEST_CASE("a prefix that several nodes keep is there once, with the longest time") {
  const block_key one{1, 2}, other{3, 4};
  const std::vector<kept_status> kept{{one, 5, 7'900'000'000}, {other, 2, -1}, {one, 5, 60'000'000'000}};
  const auto list = nlohmann::json::parse(format_kept(kept, 64, false))["data"];
  REQUIRE(list.size() == 2);
  CHECK(list[0]["id"] == to_string(one));
  CHECK(list[0]["tokens"] == 320);
  CHECK(list[0]["expires_in_s"] == 60);
  CHECK(list[1]["expires_in_s"] == 0);
  CHECK_FALSE(list[0].contains("deleted"));
  const auto dropped = nlohmann::json::parse(format_kept(kept, 64, true))["data"];
  CHECK(dropped[0]["deleted"] == true);
  CHECK_FALSE(dropped[0].contains("expires_in_s"));
}

TEST_CASE("a prefix is named by the digits that the list shows, and nothing else") {
  const block_key key{0x0123456789abcdef, 0xfedcba9876543210};
  CHECK(prefix_named(to_string(key)) == key);
  CHECK(prefix_named("") == every_prefix);
  for (const auto* wrong : {"1", "0123456789abcdeffedcba987654321", "0123456789abcdeffedcba98765432100",
                            "0123456789abcdefgedcba9876543210", "-123456789abcdeffedcba9876543210"})
    CHECK_MESSAGE(!prefix_named(wrong), wrong);
}
