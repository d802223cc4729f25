#include "runtime/base/request_ids.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace mooncaf;

TEST_CASE("no two issuers of a cluster give out the same id, nor one that makes the same owner") {
  std::set<std::uint64_t> seen;
  std::size_t given = 0;
  for (const std::uint64_t node : {0x1234567890000001ull, 0x1234567890000003ull, 0xFFFFFFFFFFFFFFFFull}) {
    for (const auto issuer : {request_issuer::gateway, request_issuer::pool_keeper}) {
      request_ids ids{node_id{node}, issuer};
      for (int i = 0; i < 1000; ++i) {
        const auto id = ids.next();
        CHECK(id);
        seen.insert(id.value * 128);  // as `attempt_id::owner` does
        ++given;
      }
    }
  }
  CHECK(seen.size() == given);
}
