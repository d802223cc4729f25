#include "storage/objects/mount/task_worker.hpp"

#include "storage/objects/client/store_client.hpp"

namespace mooncaf {

namespace {

/// A client may be writing the key's next value, or another task copies the object: that ends.
constexpr int tries_max = 50;
constexpr duration between_tries = std::chrono::milliseconds(100);

store_code carry_out(store_client& store, const task_order& order, const std::string& target) {
  put_policy to;
  to.move = to.keep = to.exactly = true;
  to.for_readers = order.for_readers;
  to.preferred = {target};
  if (order.kind == task_kind::move) to.leaving = order.source;
  const std::string_view key = order.key;
  return store.move({&key, 1}, to).at(0);
}

}  // namespace

task_worker::~task_worker() {
  {
    std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void task_worker::take(task_order order) {
  std::lock_guard lock{mutex_};
  if (stopping_) return;
  orders_.push_back(std::move(order));
  if (!thread_.joinable()) thread_ = std::thread{[this] { work(); }};
  changed_.notify_all();
}

// An order is tried again for a while: a client may be writing the same key just then.
void task_worker::work() {
  std::unique_ptr<store_client> store;
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !orders_.empty(); });
    if (stopping_) return;
    const auto order = std::move(orders_.front());
    orders_.pop_front();
    lock.unlock();
    auto to = directory_;
    to.everyone = true;  // orders are of any tenant's objects
    if (!store)
      if (auto made = store_client::connect({to})) store = std::move(*made);
    lock.lock();
    if (!store) continue;  // the directory is lost, and its orders with it
    auto code = store_code::ok;
    for (const auto& target : order.targets) {
      for (int i = 0; i < tries_max && !stopping_; ++i) {
        lock.unlock();
        code = carry_out(*store, order, target);
        lock.lock();
        if (code != store_code::already_exists) break;
        changed_.wait_for(lock, between_tries, [&] { return stopping_; });
      }
      if (stopping_) return;
      if (code != store_code::ok) break;
    }
    lock.unlock();
    store->end_task(order.id, code);
    lock.lock();
  }
}

}  // namespace mooncaf
