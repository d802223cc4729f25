#include "actors/http/work_pool.hpp"

#include <utility>

namespace mooncaf {

work_pool::work_pool(unsigned threads, std::size_t max_waiting_bytes)
    : max_waiting_bytes_(max_waiting_bytes) {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

work_pool::~work_pool() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto& t : threads_) t.join();
}

bool work_pool::post(std::size_t bytes, std::function<void()> task) {
  const std::lock_guard lock{mutex_};
  if (stopping_ || waiting_bytes_ + bytes > max_waiting_bytes_) return false;
  waiting_bytes_ += bytes;
  waiting_.emplace(bytes, std::move(task));
  changed_.notify_one();
  return true;
}

void work_pool::work() {
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    auto next = waiting_.extract(waiting_.begin());
    waiting_bytes_ -= next.key();
    lock.unlock();
    next.mapped()();
    next = {};  // the task's captures die before the lock is taken
    lock.lock();
  }
}

}  // namespace mooncaf
