#pragma once
// One schedule of the campaign: a cluster, requests and faults, drawn from a seed; and what came of it.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/campaign/machine.hpp"

namespace mooncaf::campaign {

enum class fault_kind : std::uint8_t {
  cut,
  cut_one_way,
  kill,
  pause,
  slow,
  join,
  leave,       ///< told to stop; it comes back, or stays away
  drain,       ///< the same, and it ends what runs before
  disk_fails,  ///< an SSD takes no write
  disk_slow,
  disk_rots,  ///< some of its blocks are not what they were
  swallow,    ///< messages of attempts vanish, on links that hold
};

/// Names a place in the cluster, not a process: who stands there changes with every restart.
struct fault {
  fault_kind what = fault_kind::cut;
  duration when{};
  std::size_t place = 0;
  std::size_t other = 0;  ///< of a cut; of a leave or drain: even, it comes back
  duration length{};      ///< until it is healed, goes on, or is started again
};

struct request_plan {
  duration when{};
  std::size_t gateway = 0;  ///< the n-th place with a gateway
  std::vector<std::int32_t> prompt;
  std::uint32_t tokens = 1;
  std::uint32_t answers = 1;
  duration leaves{};  ///< its client, after so long; zero: it stays
};

struct schedule {
  std::uint64_t seed = 0;
  std::vector<roles> places;  ///< the first is the conductor's
  bool queues = true;         ///< admission: what there is no room for waits
  write_policy writes = write_policy::write_back;
  std::vector<request_plan> requests;
  std::vector<fault> faults;

  static schedule draw(std::uint64_t seed);
  std::string describe() const;
};

struct verdict {
  std::vector<std::string> broken;  ///< promises that were not kept; empty: all were
  std::uint64_t requests = 0, finished = 0, failed = 0, left = 0, lost_with_gateway = 0;
  std::uint64_t written = 0, read_back = 0, copied = 0;  ///< blocks: to SSDs, from them, ahead of need
  std::uint64_t fetched = 0, fetched_beside = 0;         ///< pieces: from other nodes, not from the source
  std::uint64_t faults = 0, tokens = 0, attempts_failed = 0, events = 0;
  std::uint64_t wrong_tokens = 0, leaks = 0, hangs = 0;
  duration settled{};  ///< from the last fault's end until all was as it should be

  bool held() const noexcept { return broken.empty(); }
};

/// Runs it to its end, and looks at everything.
verdict run(const schedule& what);

/// The smallest schedule found that still fails, e.g. by breaking a promise: faults, requests and places are
/// left out as long as it does.
schedule shrink(schedule what, const std::function<bool(const schedule&)>& fails);

}  // namespace mooncaf::campaign
