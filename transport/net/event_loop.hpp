#pragma once
// A thread that waits for descriptors (epoll), runs tasks posted by other threads, and may poll shared memory
// in between.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "transport/net/short_wait.hpp"

namespace mooncaf {

/// Work that no descriptor announces: called between waits, on the loop's thread.
class loop_poller {
 public:
  virtual ~loop_poller() = default;
  /// Does a bounded amount of work. @returns true if there was some, so that the loop looks again at once.
  virtual bool poll() = 0;
  /// The loop is about to sleep: from now on a process that makes work must write to the loop's wake
  /// descriptor. Called before a last `poll`.
  virtual void arm() = 0;
  virtual void disarm() = 0;
};

/// @thread  `add`, `modify`, `remove` on the loop's thread only; `post`, `run`, `stop` from any thread.
class event_loop {
 public:
  using io_handler = std::function<void(std::uint32_t events)>;
  using task = std::function<void()>;
  /// Called about every 10 ms while it returns true, else about once per second and after every wake.
  using tick_handler = std::function<bool()>;

  struct options {
    std::string thread_name;
    tick_handler on_tick;
    loop_poller* poller = nullptr;  ///< must outlive the loop
    duration spin{};                ///< with a poller: go on polling this long after the last work
    /// Before sleeping, look for so long whether there is work, as long as that is good for something; see
    /// `short_wait`.
    duration look{};
  };
  static result<std::unique_ptr<event_loop>> start(options o);
  ~event_loop();  ///< stops

  /// Watches a descriptor until `remove`; handlers run level-triggered. @returns a token, never reused.
  std::uint64_t add(int fd, std::uint32_t events, io_handler on_events);
  void modify(std::uint64_t token, std::uint32_t events);
  void remove(std::uint64_t token);

  /// @returns false, and drops the task, if the loop has stopped.
  bool post(task t);
  /// Runs a task on the loop's thread and waits for it; runs it at once if this is the loop's thread. After
  /// `stop` it runs on the caller's.
  void run(const task& t);
  bool in_loop() const noexcept { return std::this_thread::get_id() == thread_.get_id(); }
  /// Writing eight bytes to it wakes the loop; peers that poll shared memory with us get a duplicate.
  int wake_fd() const noexcept { return wake_.get(); }
  /// Lets tasks that were posted before run, then ends the thread.
  void stop();

 private:
  explicit event_loop(options o) : options_(std::move(o)), looking_(options_.look) {}
  void main();
  bool run_tasks();
  bool poll_once();
  int sleep_ms() const;
  bool wait(int timeout_ms);
  bool look();

  struct watch {
    int fd;
    std::shared_ptr<io_handler> handler;
  };

  options options_;
  unique_fd epoll_;
  unique_fd wake_;
  std::unordered_map<std::uint64_t, watch> watches_;  // loop's thread
  std::uint64_t next_token_ = 1;                      // 0 is the wake descriptor
  short_wait looking_;
  unsigned looks_ = 0;
  bool ticking_ = false;
  time_point next_tick_{};

  std::mutex mutex_;
  std::vector<task> tasks_;
  bool closed_ = false;  // no task will run any more
  std::atomic<bool> has_tasks_{false};
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace mooncaf
