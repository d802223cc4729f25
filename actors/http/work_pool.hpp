#pragma once
// Threads for work that takes longer than an I/O thread may be held: parsing long bodies, tokenizing long
// prompts.

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace mooncaf {

/// Runs the smallest waiting task first, so that a flood of large bodies delays small ones by one of them at
/// most per thread. @thread Safe.
class work_pool {
 public:
  /// @param max_waiting_bytes  of all tasks that wait.
  work_pool(unsigned threads, std::size_t max_waiting_bytes);
  /// Drops tasks that wait; waits for tasks that run.
  ~work_pool();
  work_pool(const work_pool&) = delete;
  work_pool& operator=(const work_pool&) = delete;

  /// @param bytes  that the task holds, a measure of its time, too. @returns false if too many wait already;
  /// the task is then dropped.
  bool post(std::size_t bytes, std::function<void()> task);

 private:
  void work();

  const std::size_t max_waiting_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<std::size_t, std::function<void()>>
      waiting_;  ///< by bytes; equal ones in the order they came
  std::size_t waiting_bytes_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mooncaf
