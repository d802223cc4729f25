#pragma once
// The end of a process for want of threads or memory, told in words.

#include <atomic>
#include <csignal>
#include <exception>
#include <string>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// `ec::out_of_space`, with the limits to raise and the options to lower. @param what  was not to be had.
result<void> out_of_resources(const std::string& what);

/// Libraries that start several threads end the program when one of them cannot be had: what they have built
/// so far is torn down with threads in it. Memory that a thread cannot get ends the program as well, then and
/// later. So this handler tells the reason, in a text made while there was memory for it. Until `started`
/// nothing else ends a process there. The C library aborts where it cannot note a thread's destructor: an
/// abort at a time when there is no room says the same.
/// @thread  One in a process, made by the main thread.
class terminate_guard {
 public:
  terminate_guard();
  ~terminate_guard();
  terminate_guard(const terminate_guard&) = delete;
  terminate_guard& operator=(const terminate_guard&) = delete;

  void started() noexcept { started_ = true; }

 private:
  static bool for_want_of_resources() noexcept;
  [[noreturn]] static void leave();
  /// Calls nothing that a signal's handler may not call; returns to the abort where there is room.
  static void leave_without_room(int) noexcept;
  [[noreturn]] static void say_why_and_leave() noexcept;

  static inline std::string while_starting_;
  static inline std::atomic<bool> started_;
  static inline std::terminate_handler before_;
  static inline struct sigaction abort_before_;
};

}  // namespace mooncaf
