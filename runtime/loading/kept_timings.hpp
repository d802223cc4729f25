#pragma once
// What calibration measured at an earlier start, so that the next start serves seconds sooner.

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/model/calibration.hpp"

namespace mooncaf {

/// The measured passes of one device, model and role: a file of the user's caches. A damaged file and
/// one that is too old are none. Several processes may read and write it at once.
class kept_timings {
 public:
  using wall_clock = std::chrono::system_clock;

  /// "timings" in $CACHE_DIRECTORY (systemd's), $XDG_CACHE_HOME/mooncaf or ~/.cache/mooncaf; empty without a home.
  static std::string default_folder();

  /// @param folder  made when something is kept; empty: nothing ever is.
  /// @param of  all that the times depend on: machine, build, model, device, limits. One line.
  kept_timings(std::string folder, std::string of);

  /// The passes, or none. @param age  older ones do not count.
  std::vector<timing_sample> find(wall_clock::time_point now, std::chrono::nanoseconds age) const;

  /// Keeps them, and removes files of other devices, models and builds that were not renewed for a month.
  /// @error `ec::io_error`; then the next start measures again, and nothing else is lost.
  result<void> keep(const std::vector<timing_sample>& measured, wall_clock::time_point now) const;

 private:
  std::string folder_, of_, path_;
};

}  // namespace mooncaf
