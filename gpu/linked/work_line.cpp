#include "gpu/linked/work_line.hpp"

#include <utility>

namespace mooncaf {

namespace {

class flag_event final : public event {
 public:
  void set() {
    {
      const std::lock_guard lock{mutex_};
      reached_ = true;
    }
    changed_.notify_all();
  }
  void wait() override {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return reached_; });
  }
  bool reached() const override {
    const std::lock_guard lock{mutex_};
    return reached_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
};

}  // namespace

work_line::work_line() : thread_([this] { run(); }) {}

work_line::~work_line() {
  {
    const std::lock_guard lock{mutex_};
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void work_line::add(std::function<void()> work) {
  {
    const std::lock_guard lock{mutex_};
    work_.push_back(std::move(work));
  }
  changed_.notify_one();
}

event_ptr work_line::mark() {
  auto made = std::make_shared<flag_event>();
  add([made] { made->set(); });
  return made;
}

void work_line::run() {
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [this] { return over_ || !work_.empty(); });
    if (work_.empty()) return;
    const auto next = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    next();
    lock.lock();
  }
}

}  // namespace mooncaf
