#include "transport/net/event_loop.hpp"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <condition_variable>

namespace mooncaf {
namespace {

constexpr auto tick_interval = std::chrono::milliseconds(10);
constexpr int idle_ms = 1000;

// Waiting for shared memory to change: at first without a system call, then letting others run.
void relax(unsigned idle_polls) {
  constexpr unsigned polls_before_yield = 100;
  if (idle_polls > polls_before_yield) std::this_thread::yield();
  else short_wait::pause();
}

}  // namespace

result<std::unique_ptr<event_loop>> event_loop::start(options o) {
  std::unique_ptr<event_loop> loop{new event_loop(std::move(o))};
  loop->epoll_ = unique_fd{::epoll_create1(EPOLL_CLOEXEC)};
  loop->wake_ = unique_fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!loop->epoll_ || !loop->wake_)
    return fail(ec::io_error, "cannot make an event loop: " + errno_text(errno));
  ::epoll_event ev{};
  ev.events = EPOLLIN;
  ev.data.u64 = 0;
  if (::epoll_ctl(loop->epoll_.get(), EPOLL_CTL_ADD, loop->wake_.get(), &ev) != 0)
    return fail(ec::io_error, "cannot make an event loop: " + errno_text(errno));
  loop->thread_ = std::thread([self = loop.get()] { self->main(); });
  ::pthread_setname_np(loop->thread_.native_handle(), loop->options_.thread_name.substr(0, 15).c_str());
  return loop;
}

event_loop::~event_loop() { stop(); }

void event_loop::stop() {
  stopping_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
}

std::uint64_t event_loop::add(int fd, std::uint32_t events, io_handler on_events) {
  const auto token = next_token_++;
  ::epoll_event ev{};
  ev.events = events;
  ev.data.u64 = token;
  watches_[token] = {fd, std::make_shared<io_handler>(std::move(on_events))};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &ev);
  return token;
}

void event_loop::modify(std::uint64_t token, std::uint32_t events) {
  const auto it = watches_.find(token);
  if (it == watches_.end()) return;
  ::epoll_event ev{};
  ev.events = events;
  ev.data.u64 = token;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, it->second.fd, &ev);
}

void event_loop::remove(std::uint64_t token) {
  const auto it = watches_.find(token);
  if (it == watches_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, it->second.fd, nullptr);
  watches_.erase(it);
}

bool event_loop::post(task t) {
  {
    std::lock_guard lock{mutex_};
    if (closed_) return false;
    tasks_.push_back(std::move(t));
    has_tasks_ = true;
  }
  // Either the loop sees the task before it sleeps, or we see that it sleeps: both sides store, then load.
  if (!sleeping_.exchange(false)) return true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof(one));
  return true;
}

void event_loop::run(const task& t) {
  if (in_loop()) return t();
  std::mutex m;
  std::condition_variable cv;
  bool done = false;
  const bool posted = post([&] {
    t();
    std::lock_guard lock{m};
    done = true;
    cv.notify_one();
  });
  if (!posted) return t();
  std::unique_lock lock{m};
  cv.wait(lock, [&] { return done; });
}

bool event_loop::run_tasks() {
  if (!has_tasks_.load()) return false;
  std::vector<task> now;
  {
    std::lock_guard lock{mutex_};
    now.swap(tasks_);
    has_tasks_ = false;
  }
  for (auto& t : now) t();
  return !now.empty();
}

bool event_loop::poll_once() { return options_.poller && options_.poller->poll(); }

int event_loop::sleep_ms() const {
  return ticking_ ? static_cast<int>(std::chrono::milliseconds(tick_interval).count()) : idle_ms;
}

/// @returns whether anything had happened.
bool event_loop::wait(int timeout_ms) {
  ::epoll_event events[64];
  const int n = ::epoll_wait(epoll_.get(), events, 64, timeout_ms);
  sleeping_ = false;
  if (options_.poller && timeout_ms != 0) options_.poller->disarm();
  for (int i = 0; i < n; ++i) {
    if (events[i].data.u64 == 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto r = ::read(wake_.get(), &count, sizeof(count));
      continue;
    }
    // A handler may remove itself or another watch of this batch.
    const auto it = watches_.find(events[i].data.u64);
    if (it == watches_.end()) continue;
    const auto handler = it->second.handler;
    (*handler)(events[i].events);
  }
  return n > 0;
}

/// Descriptors cost a system call each time: with a poller they are looked at now and then.
bool event_loop::look() {
  constexpr unsigned looks_per_wait = 16;
  if (!options_.poller) return looking_.look([this] { return has_tasks_ || stopping_ || wait(0); });
  const auto came = [this] {
    return has_tasks_ || stopping_ || poll_once() || (++looks_ % looks_per_wait == 0 && wait(0));
  };
  return looking_.look(
      came, [] { return clock_type::now(); }, [this] { short_wait::rest(looks_); });
}

// Works, ticks and polls while there is work; then spins, looks and sleeps, each of which costs less
// processor and more latency than the one before.
void event_loop::main() {
  constexpr unsigned polls_per_look = 64;  // how often descriptors are looked at while shared memory is busy
  time_point spin_until{};
  unsigned polls = 0;
  unsigned idle_polls = 0;
  while (!stopping_) {
    bool busy = run_tasks();
    busy |= poll_once();
    const auto now = clock_type::now();
    if (options_.on_tick && now >= next_tick_) {
      ticking_ = options_.on_tick();
      next_tick_ = now + tick_interval;
    }
    if (busy && options_.poller) spin_until = now + options_.spin;
    if (busy || now < spin_until) {
      if (++polls % polls_per_look == 0) wait(0);
      idle_polls = busy ? 0 : idle_polls + 1;
      if (!busy) relax(idle_polls);
      continue;
    }
    if (look()) continue;
    const auto since = clock_type::now();
    sleeping_ = true;
    if (options_.poller) options_.poller->arm();
    if (has_tasks_ || poll_once()) {
      sleeping_ = false;
      if (options_.poller) options_.poller->disarm();
      continue;
    }
    wait(sleep_ms());
    looking_.slept(clock_type::now() - since);
    // Work that came with the wake may need ticks from now on.
    next_tick_ = {};
  }
  std::vector<task> last;
  {
    std::lock_guard lock{mutex_};
    closed_ = true;
    last.swap(tasks_);
  }
  for (auto& t : last) t();
}

}  // namespace mooncaf
