#include "transport/net/short_wait.hpp"

#include <doctest/doctest.h>

#include <utility>

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

/// On a clock of its own, where each look takes a microsecond and what is waited for comes at a set time.
struct waiter {
  explicit waiter(int processors = 2, duration longest = 50us) : wait(longest, processors) {}

  /// @returns how long was looked before the answer came, or a sleep was due.
  duration wait_for_answer(duration after) {
    const auto begin = now;
    const auto came = [&] { return now - begin >= after; };
    const bool in_time = wait.look(
        came, [&] { return now; }, [&] { now += pause; });
    const auto looked = now - begin;
    if (in_time) return looked;
    now = std::max(now, begin + after) + waking;
    wait.slept(now - begin);
    return looked;
  }

  short_wait wait;
  time_point now{1h};
  duration pause = 1us, waking = 40us;
};

}  // namespace

TEST_CASE("answers that come soon are looked for, once one has") {
  waiter w;
  CHECK(w.wait_for_answer(1s) == duration{});
  CHECK(w.wait_for_answer(10us) == duration{});
  for (int i = 0; i < 100; ++i) CHECK(w.wait_for_answer(10us) == 10us);
}

TEST_CASE("who is idle, or asked now and then, looks no more after a few waits") {
  for (const auto gap : {1ms, 1000ms}) {
    waiter w;
    for (int i = 0; i < 100; ++i) w.wait_for_answer(10us);
    duration looked{};
    for (int i = 0; i < 1000; ++i) looked += w.wait_for_answer(gap);
    CHECK(looked <= 8 * 51us);
  }
}

TEST_CASE("who answers looks until the next question, where a MiB is copied in between, and no longer") {
  for (const auto& [gap, looks] : {std::pair{10us, true}, {110us, true}, {240us, true}, {450us, false}}) {
    CAPTURE(gap.count());
    waiter w{2, short_wait::between_questions};
    for (int i = 0; i < 100; ++i) w.wait_for_answer(gap);
    CHECK(w.wait_for_answer(gap) == (looks ? gap : duration{}));
  }
}

TEST_CASE("who gave the processor away and did not get it back soon sleeps for a while instead") {
  waiter w;
  for (int i = 0; i < 100; ++i) w.wait_for_answer(10us);
  w.pause = 4ms;  // somebody else's slice
  CHECK(w.wait_for_answer(10us) == 4ms);
  for (int i = 0; i < 50; ++i) CHECK(w.wait_for_answer(10us) == duration{});
  w.pause = 1us;
  for (int i = 0; i < 50; ++i) w.wait_for_answer(10us);
  CHECK(w.wait_for_answer(10us) == 10us);
}

TEST_CASE("a process with one processor never looks: who would answer meanwhile?") {
  waiter w{1};
  for (int i = 0; i < 100; ++i) CHECK(w.wait_for_answer(10us) == duration{});
}
