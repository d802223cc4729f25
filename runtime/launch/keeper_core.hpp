#pragma once
// The decisions of a host's agent: which process to start, to end or to kill, and when.

#include <map>
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
  std::string text;  ///< spawn: its configuration
};

/// A process as `status` shows it.
struct kept_node {
  std::string phase;     ///< starting, ready, waiting (to be started again), ending
  std::string text;      ///< the configuration that it was started with
  std::string last_end;  ///< "exit status 4", "signal 9"; empty: it never ended by itself
  std::uint32_t starts = 0;
  bool loops = false;  ///< it ends soon after every start
  time_point since{};  ///< of the phase
};

/// Makes what runs equal to the wish.
///
///   (wished) --spawn--> starting --became_ready--> ready
///                          |  ended by itself        |
///                          +--> waiting <------------+     waiting --wait is over--> spawn
///   (not wished, or another text) --terminate--> ending --stop_within--> kill
class keeper_core {
 public:
  explicit keeper_core(duration stop_limit, restart_limits limits = {})
      : stop_within_(stop_limit), limits_(limits) {}

  void wish(node_texts nodes) { wished_ = std::move(nodes); }
  void stop_within(duration limit) { stop_within_ = limit; }
  void became_ready(const std::string& node, time_point now);
  /// @param how  it ended, in words.
  void ended(const std::string& node, const std::string& how, time_point now);

  /// The orders that are due. Each is given once.
  std::vector<keeper_action> due(time_point now);
  /// Longest time until `due` may have something without another event; `longest` if nothing is waited for.
  duration until_next(time_point now, duration longest) const;

  std::map<std::string, kept_node> view(time_point now) const;
  bool idle() const { return wished_.empty() && nodes_.empty(); }

 private:
  enum class phase_of : std::uint8_t { starting, ready, waiting, ending };
  struct kept {
    phase_of phase = phase_of::starting;
    std::string text, last_end;
    std::uint32_t starts = 0;
    time_point since{}, started{}, at{};  ///< `at`: of the next start, or of the kill
    bool killed = false;
    restart_policy policy;
  };

  void enter(kept& k, phase_of phase, time_point now);
  keeper_action spawn(const std::string& name, const std::string& text, kept& k, time_point now);

  duration stop_within_;
  restart_limits limits_;
  node_texts wished_;
  std::map<std::string, kept> nodes_;
};

}  // namespace mooncaf::launch
