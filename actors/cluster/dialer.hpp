#pragma once
// Dialling blocks, so it has a thread of its own, which tries again with back-off until it gets through.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "actors/cluster/link.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

struct dial_plan {
  std::string host;
  std::uint16_t port = 0;
  duration attempt_limit = std::chrono::seconds(3);      ///< for one try
  duration first_wait = std::chrono::milliseconds(100);  ///< before the second try
  duration longest_wait = std::chrono::seconds(5);
};

/// One thread that dials for many. A peer that refuses for good (`ec::incompatible`) is reported and not
/// tried again; every other failure is reported and tried again, as peers restart and secrets are corrected.
class dialer {
 public:
  /// Names a dial that was ordered.
  using ticket = std::uint64_t;

  /// @param link  outlives this object.
  /// @param seed  of the jitter.
  dialer(cluster_link& link, std::uint64_t seed);
  ~dialer();  ///< cancels everything and joins the thread; at most one running try is waited for

  dialer(const dialer&) = delete;
  dialer& operator=(const dialer&) = delete;

  /// Dials until it succeeds, or is cancelled. Both functions are called on the dialler's thread: let them
  /// send a message. `missed` is called after each failure.
  template <class Handle>
  ticket dial(dial_plan plan, std::function<void(Handle)> reached,
              std::function<void(const error&)> missed = {}) {
    auto attempt = [this, reached = std::move(reached)](const dial_plan& p) -> result<void> {
      auto found = link_.template dial<Handle>(p.host, p.port, p.attempt_limit);
      if (!found) return fail(std::move(found.error()));
      reached(std::move(*found));
      return {};
    };
    return add(std::move(plan), std::move(attempt), std::move(missed));
  }

  /// Forgets a dial. A try that is under way may still report. Unknown tickets are ignored.
  void cancel(ticket which);

 private:
  class worker;
  using attempt_function = std::function<result<void>(const dial_plan&)>;
  ticket add(dial_plan plan, attempt_function attempt, std::function<void(const error&)> missed);

  cluster_link& link_;
  std::unique_ptr<worker> worker_;
};

}  // namespace mooncaf
