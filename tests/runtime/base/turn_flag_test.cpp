#include "runtime/base/turn_flag.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

using namespace mooncaf;
using outcome = turn_flag::outcome;
using namespace std::chrono_literals;

namespace {

/// Whether the kernel has put this process to sleep.
bool sleeps(::pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/stat");
  std::string number, name, state;
  in >> number >> name >> state;
  return state != "R";
}

}  // namespace

TEST_CASE(
    "a process raises a flag in shared memory for another, asleep or not, past the end of the numbers") {
  void* at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(at != MAP_FAILED);
  auto* flags = static_cast<turn_flag*>(at);  // zeros
  const std::uint32_t begin = UINT32_MAX - 500;
  flags[0].raise(begin);
  flags[1].raise(begin);
  const auto child = ::fork();
  if (child == 0) {
    for (std::uint32_t i = 1; i <= 1000; ++i) {
      if (flags[0].await(begin + i, 10s) != outcome::raised) ::_exit(1);
      flags[1].raise(begin + i);
    }
    ::_exit(flags[0].await(begin + 1001, 10s) == outcome::ended ? 0 : 2);
  }
  bool all = true;
  for (std::uint32_t i = 1; all && i <= 1000; ++i) {
    while (i % 100 == 0 && !sleeps(child)) std::this_thread::yield();
    flags[0].raise(begin + i);
    all = flags[1].await(begin + i, 10s) == outcome::raised;
  }
  CHECK(all);
  flags[0].end();
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  ::munmap(at, 4096);
}

TEST_CASE("a wait for what is not raised is late, and one for what was is not") {
  turn_flag f;
  CHECK(f.await(1, 1ms) == outcome::late);
  f.raise(3);
  CHECK(f.await(1, 1ms) == outcome::raised);
  CHECK(f.await(4, 1ms) == outcome::late);
  f.end();
  CHECK(f.await(1, 1ms) == outcome::ended);
  f.renew();
  CHECK(f.await(1, 1ms) == outcome::late);
}
