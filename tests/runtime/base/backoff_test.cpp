#include "runtime/base/backoff.hpp"

#include <doctest/doctest.h>

using namespace mooncaf;

TEST_CASE("waits double up to the longest, with jitter, and begin anew after a reset") {
  using std::chrono::milliseconds;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    backoff wait{milliseconds(100), milliseconds(1500), seed};
    for (const int round : {0, 1}) {
      CAPTURE(round);
      duration whole = milliseconds(100);
      for (int i = 0; i < 100; ++i) {
        const auto next = wait.next();
        CHECK(next <= whole);
        CHECK(next >= whole / 2);
        whole = std::min<duration>(2 * whole, milliseconds(1500));
      }
      wait.reset();
    }
  }
  backoff a{milliseconds(100), milliseconds(100), 1};
  backoff b{milliseconds(100), milliseconds(100), 2};
  CHECK(a.next() != b.next());
}
