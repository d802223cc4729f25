#include "actors/cluster/shutdown.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <caf/actor_registry.hpp>
#include <caf/exit_reason.hpp>
#include <caf/send.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include "runtime/log/log.hpp"

namespace mooncaf {

namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

}  // namespace

void claim_stop_signals() {
  const auto set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int wait_for_stop() {
  const auto set = stop_signals();
  int signal = 0;
  while (sigwait(&set, &signal) != 0) {
  }
  return signal;
}

stop_at_once::stop_at_once(const char* state) : over_(eventfd(0, EFD_CLOEXEC)) {
  watcher_ = std::thread([over = over_, state] {
    const auto set = stop_signals();
    const int signals = signalfd(-1, &set, SFD_CLOEXEC);
    pollfd waits[] = {{signals, POLLIN, 0}, {over, POLLIN, 0}};
    while (poll(waits, 2, -1) < 0 && errno == EINTR) {
    }
    // A signal that comes as the guard ends is left pending, for `wait_for_stop`.
    signalfd_siginfo seen{};
    if (waits[1].revents == 0 && waits[0].revents != 0 && read(signals, &seen, sizeof seen) == sizeof seen) {
      log_info("stopped", {{"signal", std::to_string(seen.ssi_signo)}, {"state", state}});
      leave_now(128 + static_cast<int>(seen.ssi_signo));
    }
    close(signals);
  });
}

stop_at_once::~stop_at_once() {
  const std::uint64_t one = 1;
  if (write(over_, &one, sizeof one) != sizeof one) std::abort();
  watcher_.join();
  close(over_);
}

shutdown_result stop_actors(caf::actor_system& system, std::vector<caf::actor> roots, duration limit) {
  for (const auto& root : roots) caf::anon_send_exit(root, caf::exit_reason::user_shutdown);
  roots.clear();
  const auto until = clock_type::now() + limit;
  while (system.registry().running() > 0) {
    if (clock_type::now() >= until) return shutdown_result::stuck;
    // The registry can only be waited for without a limit, so look again.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return shutdown_result::clean;
}

void leave_now(int code) { _exit(code); }

}  // namespace mooncaf
