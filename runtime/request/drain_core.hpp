#pragma once
// When a process that was told to stop may leave without a request being lost: its clients' requests end first,
// while its workers still serve everybody; then the conductor places nothing on them, and their requests end.
//
//   serving ── told to stop ──► front ──────────────► work ──────────────► over
//                               clients' requests      announced, and held   │ leave
//                               end; no new ones       requests end          │
//                                 └── limit ─────────────┴── limit: handed over: gateways go on elsewhere

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// The requests and connections that the process holds.
struct drain_facts {
  std::uint64_t at_front = 0;     ///< clients' requests without their whole answer
  std::uint64_t connections = 0;  ///< of clients, idle ones too
  std::uint64_t held = 0;         ///< requests that its workers hold
  bool announced = false;         ///< the conductor has said that it places nothing here any more
  bool last = false;              ///< … and that no other node can do the work of some worker here
};

enum class drain_order : std::uint8_t {
  close_front,  ///< take no more connections; each one that there is may bring one more request
  announce,     ///< tell the conductor that this node takes no more work
  hand_over,    ///< workers give their requests back, to be placed again elsewhere
  leave,        ///< end
};

/// The parts of a process that have to drain.
struct drain_parts {
  bool front = false;  ///< clients come here
  bool works = false;  ///< requests are placed here
};

/// @thread  One at a time; not synchronised.
class drain_core {
 public:
  /// @param limit  for all of it; 0: nothing is waited for.
  drain_core(drain_parts parts, duration limit) : parts_(parts), limit_(limit) {}

  /// The process was told to stop; a second time changes nothing.
  void begin(time_point now);
  /// To be called several times a second from then on.
  void look(const drain_facts& facts, time_point now);
  /// The orders that the calls so far led to; each is given once, `leave` is the last.
  std::vector<drain_order> take_orders();

  bool over() const noexcept { return stage_ == stage::over; }
  /// For people: the requests that are waited for.
  std::string waits_for(const drain_facts& facts) const;

 private:
  enum class stage : std::uint8_t { serving, front, work, handing_over, over };

  void enter(stage next, time_point now);
  void end_front(const drain_facts& facts, time_point now);
  void end_work(const drain_facts& facts, time_point now);
  bool late(time_point now) const { return now - began_ >= limit_; }

  drain_parts parts_;
  duration limit_;
  stage stage_ = stage::serving;
  time_point began_{};
  time_point entered_{};  ///< when the stage began
  time_point busy_{};     ///< when something was last held in it
  std::vector<drain_order> orders_;
};

}  // namespace mooncaf
