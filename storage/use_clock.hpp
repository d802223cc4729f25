#pragma once
// When a thing was used, for orders by a time that no clock shows.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// Remembers pairs of a time of uses and the clock's time: a second apart lately, and long ago as far apart
/// as that matters, by share of its age. @thread not synchronised. Both times never go back.
class use_clock {
 public:
  /// @param time  of the latest use so far.
  void note(std::uint64_t time, time_point now) {
    if (!marks_.empty() && (time == marks_.back().time || now - marks_.back().at < apart)) return;
    if (marks_.size() == marks_max) forget_one(now);
    marks_.push_back({time, now});
  }
  /// How long ago a use was, as far as is known: less than that ago if it is not.
  duration age(std::uint64_t time, time_point now) const {
    const auto mark = std::lower_bound(marks_.begin(), marks_.end(), time,
                                       [](const mark_t& m, std::uint64_t t) { return m.time < t; });
    return mark == marks_.end() ? duration{} : now - mark->at;
  }

 private:
  static constexpr std::size_t marks_max = 512;
  static constexpr duration apart = std::chrono::seconds(1);
  struct mark_t {
    std::uint64_t time;
    time_point at;
  };
  /// Forgets the look with the nearest neighbours, for their age.
  void forget_one(time_point now) {
    std::size_t least = 1;
    double least_gap = 1;
    for (std::size_t i = 1; i + 1 < marks_.size(); ++i) {
      const auto gap = static_cast<double>((marks_[i + 1].at - marks_[i - 1].at).count()) /
                       static_cast<double>((now - marks_[i - 1].at).count());
      if (gap < least_gap) {
        least = i;
        least_gap = gap;
      }
    }
    marks_.erase(marks_.begin() + static_cast<std::ptrdiff_t>(least));
  }

  std::vector<mark_t> marks_;
};

}  // namespace mooncaf
