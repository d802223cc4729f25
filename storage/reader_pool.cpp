#include "storage/reader_pool.hpp"

namespace mooncaf {

reader_pool::reader_pool(unsigned threads) {
  for (unsigned i = 1; i < threads; ++i) threads_.emplace_back([this] { serve(); });
}

reader_pool::~reader_pool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& t : threads_) t.join();
}

void reader_pool::run(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::unique_lock lock(mutex_);
  body_ = &body;
  next_ = 0;
  count_ = unfinished_ = count;
  if (count > 1) wake_.notify_all();
  work(lock);
  idle_.wait(lock, [this] { return unfinished_ == 0; });
  body_ = nullptr;
}

void reader_pool::work(std::unique_lock<std::mutex>& lock) {
  while (next_ < count_) {
    const std::size_t i = next_++;
    const auto* body = body_;
    lock.unlock();
    (*body)(i);
    lock.lock();
    if (--unfinished_ == 0) idle_.notify_all();
  }
}

void reader_pool::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || next_ < count_; });
    if (stop_) return;
    work(lock);
  }
}

}  // namespace mooncaf
