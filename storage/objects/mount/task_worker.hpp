#pragma once
// Carries out the directory's tasks for a process that mounts memory: copies objects to other segments.

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "storage/objects/terms/store_task.hpp"
#include "storage/objects/wire/directory_link.hpp"

namespace mooncaf {

/// One order after the other, on connections that are made when the first one comes. The outcome of each is
/// told to the directory.
/// @thread  All functions may be called from any thread.
class task_worker {
 public:
  explicit task_worker(directory_address directory) : directory_(std::move(directory)) {}
  ~task_worker();  ///< waits for the object that is being copied; orders that are left are not carried out

  void take(task_order order);

 private:
  void work();

  directory_address directory_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<task_order> orders_;
  bool stopping_ = false;
  std::thread thread_;  // once there was an order
};

}  // namespace mooncaf
