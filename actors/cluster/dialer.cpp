#include "actors/cluster/dialer.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "actors/cluster/backoff.hpp"
#include "actors/log.hpp"

namespace mooncaf {

class dialer::worker {
 public:
  explicit worker(std::uint64_t seed) : seed_(seed), thread_([this] { loop(); }) {}

  ~worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      orders_.clear();
    }
    changed_.notify_all();
    thread_.join();
  }

  ticket add(dial_plan plan, attempt_function attempt, std::function<void(const error&)> missed) {
    const std::lock_guard lock(mutex_);
    const auto id = ++last_;
    backoff wait{plan.first_wait, plan.longest_wait, seed_ ^ id};
    orders_.push_back(
        {id, clock_type::now(),
         std::make_shared<job>(job{std::move(plan), std::move(attempt), std::move(missed), wait})});
    changed_.notify_all();
    return id;
  }

  void cancel(ticket which) {
    const std::lock_guard lock(mutex_);
    std::erase_if(orders_, [which](const order& o) { return o.id == which; });
  }

 private:
  struct job {
    dial_plan plan;
    attempt_function attempt;
    std::function<void(const error&)> missed;
    backoff wait;
  };
  struct order {
    ticket id;
    time_point due;
    std::shared_ptr<job> what;
  };

  void loop() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const auto next = std::min_element(orders_.begin(), orders_.end(),
                                         [](const order& x, const order& y) { return x.due < y.due; });
      if (next == orders_.end()) {
        changed_.wait(lock);
      } else if (next->due > clock_type::now()) {
        changed_.wait_until(lock, next->due);
      } else {
        try_once(lock, next->id, next->what);
      }
    }
  }

  /// Gives the lock back while it dials; the order may be gone afterwards.
  void try_once(std::unique_lock<std::mutex>& lock, ticket id, std::shared_ptr<job> what) {
    lock.unlock();
    const auto outcome = what->attempt(what->plan);
    if (!outcome && what->missed) what->missed(outcome.error());
    lock.lock();
    const auto same =
        std::find_if(orders_.begin(), orders_.end(), [id](const order& o) { return o.id == id; });
    if (same == orders_.end()) return;
    if (outcome || outcome.error() == ec::incompatible || outcome.error() == ec::already_exists) {
      orders_.erase(same);
    } else {
      same->due = clock_type::now() + what->wait.next();
    }
  }

  const std::uint64_t seed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<order> orders_;
  ticket last_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

dialer::dialer(cluster_link& link, std::uint64_t seed)
    : link_(link), worker_(std::make_unique<worker>(seed)) {}
dialer::~dialer() = default;

dialer::ticket dialer::add(dial_plan plan, attempt_function attempt,
                           std::function<void(const error&)> missed) {
  return worker_->add(std::move(plan), std::move(attempt), std::move(missed));
}

void dialer::cancel(ticket which) { worker_->cancel(which); }

}  // namespace mooncaf
