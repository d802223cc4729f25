#pragma once
// A number that one thread raises and others wait for, in memory that several processes may have mapped.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/base/units.hpp"

namespace mooncaf {

/// A waiter spins first: the ranks of a group compute the same, so the one that it waits for is nearly there. Then it
/// sleeps; the one that raises the flag wakes it. All zeros are a new flag.
class alignas(64) turn_flag {
 public:
  enum class outcome { raised, ended, late };

  /// @thread  one at a time
  void raise(std::uint32_t to) noexcept {
    raised_.store(to, std::memory_order_release);
    ring();
  }
  /// Nobody raises it any more: each wait ends. @thread  any
  void end() noexcept {
    ended_.store(1, std::memory_order_release);
    ring();
  }
  /// @pre nobody waits
  void renew() noexcept { raised_ = ended_ = 0; }
  std::uint32_t raised() const noexcept { return raised_.load(std::memory_order_relaxed); }

  /// Until it is raised to `turn` or beyond, or ended; late if it sleeps longer than `limit` meanwhile.
  outcome await(std::uint32_t turn, duration limit) noexcept {
    for (int i = 0;; ++i) {
      if (ended_.load(std::memory_order_acquire) != 0) return outcome::ended;
      if (reached(turn)) return outcome::raised;
      if (i < spin_rounds) {
        pause();
        continue;
      }
      if (!sleep(turn, limit)) return outcome::late;
    }
  }

 private:
  /// As the threads of a host device between two sections (gpu/host/thread_pool.cpp): some 30 µs.
  static constexpr int spin_rounds = 2000;

  bool reached(std::uint32_t turn) const noexcept {
    return static_cast<std::int32_t>(raised_.load(std::memory_order_acquire) - turn) >= 0;
  }
  // Both sides are sequentially consistent: either the one that rings sees the sleeper, or the sleeper sees the bell.
  void ring() noexcept {
    bell_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0)
      ::syscall(SYS_futex, &bell_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  /// @returns false if nothing rang in time.
  bool sleep(std::uint32_t turn, duration limit) noexcept {
    const auto heard = bell_.load(std::memory_order_seq_cst);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    bool rang = reached(turn) || ended_.load(std::memory_order_acquire) != 0;
    if (!rang) {
      const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count();
      const std::timespec patience{ns / 1'000'000'000, ns % 1'000'000'000};
      ::syscall(SYS_futex, &bell_, FUTEX_WAIT, heard, &patience, nullptr, 0);
      rang = bell_.load(std::memory_order_seq_cst) != heard;
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    return rang;
  }
  static void pause() noexcept {
#if defined(__x86_64__)
    _mm_pause();
#endif
  }

  std::atomic<std::uint32_t> raised_{0}, ended_{0};
  std::atomic<std::uint32_t> bell_{
      0};  ///< counts, so that a sleeper misses none; the word that the kernel looks at
  std::atomic<std::uint32_t> sleepers_{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(turn_flag) == 64);

}  // namespace mooncaf
