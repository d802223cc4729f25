#pragma once
// Looking for an answer again and again for a moment before sleeping: being woken takes 20 to 50 µs where
// processors rest meanwhile, more than most answers do.

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/base/units.hpp"

namespace mooncaf {

/// Says how long to look for work before a sleep, by how often looking paid lately. Where no work comes it
/// says "not at all" after a few waits, so that an idle thread sleeps.
/// @thread  not synchronised
class short_wait {
 public:
  static constexpr duration usual = std::chrono::microseconds(50);
  /// For a thread that answers: as long as it takes the asking side to copy a MiB before its next question.
  static constexpr duration between_questions = std::chrono::microseconds(250);

  /// @param longest  zero: never look. A process with one processor never does either, as no other process
  /// could answer meanwhile.
  explicit short_wait(duration longest, int processors = own_processors())
      : longest_(processors > 1 ? longest : duration{}) {}

  /// Asks `came` again and again for a while, if that paid lately. Other threads run in between, as they may
  /// bring the work. @returns whether it said yes; if not it is time to sleep, and to call `slept`.
  template <class Came, class Now, class Pause>
  bool look(Came&& came, Now&& now, Pause&& pause) {
    if (credit_ <= 0 || longest_ <= duration{}) return false;
    for (auto at = now(), until = at + longest_; at < until;) {
      if (came()) {
        credit_ = std::min(credit_ + 2, credit_max);
        return true;
      }
      pause();
      const auto before = std::exchange(at, now());
      // Other threads want the processor, and a thread that slept is scheduled before one that yields.
      if (at - before > longest_) credit_ = crowded;
    }
    return false;
  }
  template <class Came>
  bool look(Came&& came) {
    return look(
        came, [] { return clock_type::now(); }, [] { std::this_thread::yield(); });
  }
  /// The thread was awake again `gap` after its wait began.
  void slept(duration gap) noexcept {
    constexpr auto waking = std::chrono::microseconds(150);  // the share of a gap that waking takes
    if (credit_ > 0) --credit_;
    else if (gap <= longest_ + waking) ++credit_;
  }

  /// A hint to the processor, for the thread that shares its core.
  static void pause() noexcept {
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
  /// Between looks that are no system calls: a pause, and now and then a turn for other threads.
  static void rest(unsigned looks) noexcept {
    constexpr unsigned looks_per_yield = 16;
    if (looks % looks_per_yield == 0) std::this_thread::yield();
    else pause();
  }

  static int own_processors() noexcept {
    ::cpu_set_t mine;
    return ::sched_getaffinity(0, sizeof(mine), &mine) == 0 ? CPU_COUNT(&mine) : 2;
  }

 private:
  static constexpr int credit_max = 8, crowded = -64;
  duration longest_;
  int credit_ = 0;
};

}  // namespace mooncaf
