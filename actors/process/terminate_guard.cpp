#include "actors/process/terminate_guard.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <string_view>
#include <system_error>

#include "actors/cluster/shutdown.hpp"
#include "config/exit_codes.hpp"

namespace mooncaf {

result<void> out_of_resources(const std::string& what) {
  return fail(ec::out_of_space,
              "while starting: " + what +
                  "; raise the limits of this process (ulimit -v, ulimit -u, the container's), "
                  "or give less to --cache-dram, --threads or --prefill-instances");
}

terminate_guard::terminate_guard() {
  while_starting_ =
      "mooncaf: " + to_string(out_of_resources("no thread or no memory was to be had").error()) + "\n";
  started_ = false;
  before_ = std::set_terminate(leave);
  struct sigaction aborted = {};
  aborted.sa_handler = leave_without_room;
  aborted.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGABRT, &aborted, &abort_before_);
}

terminate_guard::~terminate_guard() {
  ::sigaction(SIGABRT, &abort_before_, nullptr);
  std::set_terminate(before_);
}

bool terminate_guard::for_want_of_resources() noexcept {
  try {
    if (const auto why = std::current_exception()) std::rethrow_exception(why);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const std::system_error&) {
    return true;
  } catch (...) {
  }
  return false;
}

void terminate_guard::leave() {
  if (started_ && !for_want_of_resources()) {
    before_();
    std::abort();
  }
  say_why_and_leave();
}

void terminate_guard::leave_without_room(int) noexcept {
  constexpr std::size_t heap_of_a_thread = 64u << 20;  // the C library reserves so much for a thread's heap
  void* room =
      ::mmap(nullptr, heap_of_a_thread, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) say_why_and_leave();
  ::munmap(room, heap_of_a_thread);
}

void terminate_guard::say_why_and_leave() noexcept {
  constexpr std::string_view later =
      "mooncaf: out of space: no thread or no memory was to be had; raise the limits of this process "
      "(ulimit -v, ulimit -u, the container's), or give less to --cache-dram\n";
  const std::string_view words = started_ ? later : std::string_view{while_starting_};
  [[maybe_unused]] const auto said = ::write(STDERR_FILENO, words.data(), words.size());
  leave_now(static_cast<int>(exit_code::resources));
}

}  // namespace mooncaf
