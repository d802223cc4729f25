#include "actors/executor.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "actors/exit_codes.hpp"
#include "gpu/device_failure.hpp"
#include "tests/support/actor_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

TEST_CASE("a device that fails ends the process that computes with it, with the reason") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    actor_fixture<caf::id_block::mooncaf> f;
    const auto executor = f.sys.spawn(executor_behavior);
    const auto task = make_task([] { throw device_failure("kernel: the card is no longer there"); });
    f.self->send(executor, run_atom_v, task);
    f.run();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said;
  std::array<char, 512> part{};
  for (::ssize_t n; (n = ::read(ends[0], part.data(), part.size())) > 0;)
    said.append(part.data(), static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == static_cast<int>(exit_code::actor_failed));
  CHECK(said.find("the card is no longer there") != std::string::npos);
}
