#pragma once
// Waking a process of the same host on purpose: it sleeps beside its connection, not on it, so that what is
// not urgent reaches the connection without waking it. (Over TCP SO_RCVLOWAT does that; Unix sockets wake for
// every byte.)

#include <string>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// The end of who sleeps. @thread  one at a time
class bell {
 public:
  static result<bell> hang();
  /// In the abstract namespace, as `unix_address` takes it.
  const std::string& name() const noexcept { return name_; }
  /// Sleeps until somebody rings, or rang before, or the time has come.
  void wait(time_point until);

 private:
  bell(unique_fd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  unique_fd fd_;
  std::string name_;
};

/// The other end, for all bells of a host.
/// @thread  any
class bell_ringer {
 public:
  /// Where no bell of that name is (its owner is gone, say) nothing happens; nor does it ever wait.
  void ring(const std::string& name);

 private:
  unique_fd fd_{make()};
  static unique_fd make();
};

}  // namespace mooncaf
