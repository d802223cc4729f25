#pragma once
// Disturbances of a simulated cluster, and their times.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/base/worker_role.hpp"

namespace mooncaf::sim {

enum class disturbance_kind : std::uint8_t {
  slow,     ///< steps take `factor` times as long
  link,     ///< the network has `factor` times its speed
  restart,  ///< drained, then away for as long as it lasts; its memory is lost
  burst,    ///< the trace plays `factor` times as fast
  fail,     ///< dies at once, with its work and all that it holds, disk included; comes back empty
};

/// The last instance of a line that names all.
inline constexpr std::uint32_t all_of_them = 8190;

struct disturbance {
  disturbance_kind kind = disturbance_kind::slow;
  worker_role role = worker_role::prefill;  ///< of the instances; a burst has none
  std::uint32_t first = 0;                  ///< instances [first, last] of it
  std::uint32_t last = 0;
  bool one_by_one = false;  ///< restarts: the next one is drained when the one before is back
  double factor = 1;
  double at_s = 0;  ///< of the replay
  double for_s = 0;
  /// Failures at random between `at_s` and `at_s + for_s`: exponential times, means of being up and of being
  /// away. 0: one failure, at `at_s`, away for `for_s`.
  double mtbf_s = 0, mttr_s = 0;
  double unseen_s = 0;  ///< failures: so long the conductor does not notice, and requests still go there
};

/// A line each, `#` begins a comment:
///
///   # at    for   what                 whom             how much
///   100s    300s  slow                 prefill 3        x2.5
///   100s    300s  link                 decode 0-3       x0.1
///   600s    45s   restart              prefill 2                    # or a reload: 45s is what loading takes
///   600s    45s   restart one_by_one   prefill all
///   900s    60s   burst                                 x3
///   700s    5m    fail                 decode 1                     # its connections break: seen at once
///   700s    5m    fail                 decode 1         unseen 15s  # its machine falls silent
///   0s      2h    fail                 prefill all      mtbf 40m mttr 3m
///
/// Of coupled clusters the instances are `node`.
/// @error `ec::invalid_argument`, "FILE:LINE: …".
result<std::vector<disturbance>> parse_disturbances(std::string_view text, std::string_view file);
/// @error As above; `ec::io_error` if the file cannot be read.
result<std::vector<disturbance>> load_disturbances(const std::string& path);

/// A line as `parse_disturbances` reads it.
std::string to_string(const disturbance& d);

/// Time that an instance was away.
struct absence {
  worker_role role = worker_role::prefill;
  std::uint32_t instance = 0;
  double from_s = 0, until_s = 0;
  bool failed = false;  ///< it died; else it was restarted
};

/// Bursts bend the trace's time: where it plays `factor` times as fast for a while, all that follows comes
/// earlier.
/// @param at_s  of the replay without bursts. @returns when it comes.
double with_bursts(const std::vector<disturbance>& all, double at_s);

}  // namespace mooncaf::sim
