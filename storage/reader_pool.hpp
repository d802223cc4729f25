#pragma once
// A few threads that share one loop: several disk reads in flight through an interface that blocks.

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mooncaf {

/// Runs loops over [0, count) on `threads` threads, the caller's included. @thread one loop at a time.
class reader_pool {
 public:
  /// @param threads  at least 1; with 1 everything runs on the caller's thread.
  explicit reader_pool(unsigned threads);
  ~reader_pool();
  reader_pool(const reader_pool&) = delete;
  reader_pool& operator=(const reader_pool&) = delete;

  /// Calls body(i) once for every i < count, in no order; returns when all calls have. `body` must not throw.
  void run(std::size_t count, const std::function<void(std::size_t)>& body);

 private:
  void serve();
  /// Works until no index is left. Enters and leaves with the lock held.
  void work(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  const std::function<void(std::size_t)>* body_ = nullptr;
  std::size_t next_ = 0;
  std::size_t count_ = 0;
  std::size_t unfinished_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mooncaf
