#pragma once
// The decisions of a host's agent: which process to start, to end or to kill, and when.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/launch/launch_plan.hpp"
#include "runtime/launch/restart_policy.hpp"

namespace mooncaf::launch {

enum class keeper_order : std::uint8_t { spawn, terminate, kill };

struct keeper_action {
  keeper_order order = keeper_order::spawn;
  std::string node;
  std::string text;       ///< spawn: its configuration
  std::uint32_t run = 0;  ///< the process; each gets a number of its own
};

/// A node that shall run. Another text or generation than that of the running process makes a new process necessary.
struct wished_node {
  std::string text;
  std::uint32_t generation = 0;
  bool overlaps = false;  ///< the new process is ready before the old one is told to end

  bool operator==(const wished_node&) const = default;
};
using node_wishes = std::map<std::string, wished_node>;

/// A process as `status` shows it.
struct kept_node {
  std::string phase;     ///< starting, ready, waiting (to be started again), ending
  std::string text;      ///< the configuration that it was started with
  std::string last_end;  ///< "exit status 4", "signal 9"; empty: it never ended by itself
  std::uint32_t starts = 0;
  std::uint32_t generation = 0, run = 0;
  bool loops = false;    ///< it ends soon after every start
  bool refused = false;  ///< a successor ended before it was ready; the process goes on as it was
  bool leaving = false;  ///< its predecessor has not ended yet
  time_point since{};    ///< of the phase
};

/// Makes what runs equal to the wish.
///
///   (wished) --spawn--> starting --became_ready--> ready
///                          |  ended by itself        |
///                          +--> waiting <------------+     waiting --wait is over--> spawn
///   (not wished, or another text) --terminate--> ending --stop_within--> kill
///
/// With `overlaps` a ready process stays until its successor is ready, and for good if that one ends before.
class keeper_core {
 public:
  explicit keeper_core(duration stop_limit, restart_limits limits = {})
      : stop_within_(stop_limit), limits_(limits) {}

  void wish(node_wishes nodes);
  void stop_within(duration limit) { stop_within_ = limit; }
  void became_ready(std::uint32_t run, time_point now);
  /// @param how  it ended, in words.
  void ended(std::uint32_t run, const std::string& how, time_point now);

  /// The orders that are due. Each is given once.
  std::vector<keeper_action> due(time_point now);
  /// Longest time until `due` may have something without another event; `longest` if nothing is waited for.
  duration until_next(time_point now, duration longest) const;

  std::map<std::string, kept_node> view(time_point now) const;
  bool idle() const { return wished_.empty() && nodes_.empty() && leaving_.empty(); }

 private:
  enum class phase_of : std::uint8_t { starting, ready, waiting, ending };
  /// One process.
  struct process {
    std::uint32_t run = 0, generation = 0;
    std::string text;
    phase_of phase = phase_of::starting;
    time_point since{}, started{}, at{};  ///< `at`: of the next start, or of the kill
    bool killed = false;
  };
  struct kept {
    process now;
    std::optional<process> before;  ///< it is ready, and `now` will succeed it
    std::string last_end;
    std::uint32_t starts = 0;
    bool refused = false;
    restart_policy policy;
  };
  using orders = std::vector<keeper_action>;

  void spawn(const std::string& name, const wished_node& wanted, kept& k, time_point now, orders& out);
  void terminate(const std::string& name, process& p, time_point now, orders& out);
  void kill_late(const std::string& name, process& p, time_point now, orders& out);
  /// @returns whether nothing is left of the node.
  bool adapt(const std::string& name, kept& k, time_point now, orders& out);

  duration stop_within_;
  restart_limits limits_;
  node_wishes wished_;
  std::map<std::string, kept> nodes_;
  std::vector<std::pair<std::string, process>> leaving_;  ///< those that have a successor
  std::uint32_t runs_ = 0;
};

}  // namespace mooncaf::launch
