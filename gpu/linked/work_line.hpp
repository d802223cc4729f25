#pragma once
// A thread that does the work it is given, in order.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "gpu/copy_queue.hpp"

namespace mooncaf {

/// A stream as a graphics card has them: work is handed over and done later, one piece after the other.
/// @thread  Safe.
class work_line {
 public:
  work_line();
  /// Does all work that was handed over, and ends.
  ~work_line();
  work_line(const work_line&) = delete;
  work_line& operator=(const work_line&) = delete;

  void add(std::function<void()> work);
  /// Reached once everything that was handed over before is done.
  event_ptr mark();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool over_ = false;
  std::thread thread_;  // last: it uses what stands above
};

}  // namespace mooncaf
