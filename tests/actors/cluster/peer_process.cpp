// A process with an echo actor behind a link, for tests that kill it: peer_process PORT [SECRET].
// Prints the port that it listens on, and runs until a signal.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "actors/cluster/shutdown.hpp"
#include "tests/actors/cluster/echo.hpp"
#include "tests/support/actor_fixture.hpp"

using namespace mooncaf;

int main(int argc, char** argv) {
  claim_stop_signals();
  const key_ring secret = argc > 2 ? key_ring{argv[2]} : key_ring{};
  testing::linked_system<caf::id_block::cluster_tests> node{secret};
  const auto root = node.keep(testing::echo_actor{node.sys.spawn<testing::echo>()});
  const auto port = node.link.publish(root, "127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[1])));
  if (!port) {
    std::fprintf(stderr, "%s\n", to_string(port.error()).c_str());
    return 1;
  }
  std::printf("%u\n", static_cast<unsigned>(*port));
  std::fflush(stdout);
  wait_for_stop();
}
