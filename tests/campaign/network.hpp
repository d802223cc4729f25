#pragma once
// A scripted network between processes that die and pause: control links as CAF has them (in order per
// direction, lost with their connection, noticed late), and one-sided writes that know no order and outlive
// the interest of who began them.

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/campaign/timeline.hpp"

namespace mooncaf::campaign {

/// A process of the schedule; a restarted one gets a new number, as it gets a new node id.
using process = std::size_t;

class network {
 public:
  using action = timeline::action;
  static constexpr std::size_t most = 24;  ///< processes of one schedule, dead ones included

  network(timeline& time, dice& luck) : time_(time), luck_(luck), links_(most * most) {}

  /// Called in a process whose connection with the other one broke.
  std::function<void(process here, process other)> on_lost;

  // ---- processes ----
  process start();
  void kill(process who);
  /// Nothing runs there until `resume`; what comes meanwhile waits.
  void pause(process who);
  void resume(process who);
  bool alive(process who) const { return nodes_[who].alive; }
  bool paused(process who) const { return nodes_[who].paused; }
  std::size_t size() const noexcept { return nodes_.size(); }
  /// Runs this in a process, later; never, if it dies before.
  void in(process who, duration later, action what);

  // ---- connections ----
  void dial(process from, process to, std::function<void(bool connected)> answer);
  /// Whether this end takes the connection for alive.
  bool connected(process here, process other) const;
  /// Arrives in order, unless the connection breaks before. To itself: always.
  void send(process from, process to, action what);
  /// The same, of an attempt: between gateways and workers, and prefill and decode of two processes. They
  /// compare what they are at, so that it does not matter if a defect somewhere swallows it.
  void send_of_attempt(process from, process to, action what);
  /// Nothing passes between two processes in these directions.
  void cut(process a, process b, bool forth, bool back);
  void heal(process a, process b);
  /// Of what is said of attempts, so many percent vanish while the connection holds: CAF does no such thing.
  void swallow(unsigned percent) { swallows_ = percent; }
  /// Every message takes so much longer.
  void slow(process a, process b, duration extra);
  bool passes(process from, process to) const;

 private:
  struct node {
    bool alive = true;
    bool paused = false;
    std::uint64_t pauses = 0;
    std::vector<action> waiting;
    time_point last{};  ///< of what it sent to itself
  };
  struct link {  // of an unordered pair; [0] is the smaller number's end, or the way from it
    bool open = false;
    std::uint32_t epoch = 0;
    std::uint32_t cuts = 0;
    std::array<bool, 2> blocked{}, thinks_open{};
    std::array<time_point, 2> last{};
    std::array<std::vector<action>, 2> held;
    duration extra{};
  };
  link& between(process a, process b) { return links_[std::min(a, b) * most + std::max(a, b)]; }
  const link& between(process a, process b) const { return links_[std::min(a, b) * most + std::max(a, b)]; }
  void run_in(process who, action what);
  void pass(process from, process to, action what);
  void break_link(process a, process b, duration notice);
  void tell_lost(process here, process other, std::uint32_t epoch);

  timeline& time_;
  dice& luck_;
  std::vector<node> nodes_;
  std::vector<link> links_;
  unsigned swallows_ = 0;
};

}  // namespace mooncaf::campaign
