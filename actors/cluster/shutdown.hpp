#pragma once
// How a process ends: a signal, a deadline, and no way to hang. CAF's actor system blocks in its destructor
// for as long as one actor lives, so the process waits for its actors first, and gives up in time.

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// Blocks SIGTERM, SIGINT and SIGHUP in this thread and those it starts, so that `wait_for_stop` gets them,
/// and ignores SIGPIPE. Call first thing in main(), before any thread exists.
void claim_stop_signals();

/// Waits for a stop signal. @returns its number. @thread one, after `claim_stop_signals`
int wait_for_stop();

/// While it lives, a stop signal ends the process at once with status 128 + its number: for the time in which
/// nothing has begun that would have to end in order, and for the end, when whoever asks again wants no order. Afterwards signals wait for `wait_for_stop` again.
/// @thread One thread of its own, after `claim_stop_signals`.
class stop_at_once {
 public:
  /// @param state  of the process, for the log: "was not ready yet".
  explicit stop_at_once(const char* state);
  ~stop_at_once();
  stop_at_once(const stop_at_once&) = delete;
  stop_at_once& operator=(const stop_at_once&) = delete;

 private:
  int over_;  ///< eventfd
  std::thread watcher_;
};

enum class shutdown_result { clean, stuck };

/// Tells the roots to quit and waits until no actor is left.
/// @param roots  all handles that the caller still holds of them; gone afterwards.
/// @returns `stuck` if actors were still running at the limit: the system cannot be destroyed then, and the
/// process
///          should end by `leave_now`.
shutdown_result stop_actors(caf::actor_system& system, std::vector<caf::actor> roots, duration limit);

/// Ends the process at once with `code`: no destructors, no exit handlers, which could wait for a stuck
/// actor.
[[noreturn]] void leave_now(int code);

}  // namespace mooncaf
