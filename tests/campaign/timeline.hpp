#pragma once
// Virtual time and the dice of a schedule: everything that happens, in order, from a seed.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/base/units.hpp"

namespace mooncaf::campaign {

using namespace std::chrono_literals;

/// SplitMix64: small, and the same everywhere.
class dice {
 public:
  explicit dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() noexcept {
    auto z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) noexcept { return n == 0 ? 0 : next() % n; }
  bool chance(unsigned percent) noexcept { return !still_ && below(100) < percent; }
  duration between(duration from, duration to) noexcept {
    if (still_) return {};
    return from +
           duration{static_cast<std::int64_t>(below(static_cast<std::uint64_t>((to - from).count()) + 1))};
  }

  /// From now on nothing happens by chance, and what would take some time takes none.
  void hold_still() noexcept { still_ = true; }

 private:
  std::uint64_t state_;
  bool still_ = false;
};

/// Runs what was put down for each time; what is due at the same time in the order in which it was put down.
class timeline {
 public:
  using action = std::function<void()>;

  time_point now() const noexcept { return now_; }
  void at(time_point when, action what) {
    due_.push_back({std::max(when, now_), next_++, std::move(what)});
    std::push_heap(due_.begin(), due_.end(), later);
  }
  void after(duration wait, action what) { at(now_ + wait, std::move(what)); }
  /// Runs all that is due until then.
  void run_until(time_point end) {
    while (!due_.empty() && due_.front().when <= end) {
      std::pop_heap(due_.begin(), due_.end(), later);
      const auto next = std::move(due_.back());
      due_.pop_back();
      now_ = next.when;
      ++events_;
      next.what();
    }
    now_ = end;
  }
  std::uint64_t events() const noexcept { return events_; }

 private:
  struct entry {
    time_point when;
    std::uint64_t number;
    action what;
  };
  static bool later(const entry& a, const entry& b) noexcept {
    return a.when != b.when ? a.when > b.when : a.number > b.number;
  }
  time_point now_ = time_point{} + 1000s;
  std::uint64_t next_ = 0;
  std::uint64_t events_ = 0;
  std::vector<entry> due_;
};

}  // namespace mooncaf::campaign
