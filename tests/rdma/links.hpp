#pragma once
// The links beneath the virtual machine's two rails, taken down and up.

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

namespace mooncaf::test {

inline void set_link(int rail, bool up) {
  const auto command = "/usr/sbin/ip link set v" + std::to_string(rail) + (up ? " up" : " down");
  REQUIRE(std::system(command.c_str()) == 0);
}

/// Puts both links up again, whatever a test did.
struct links_restored {
  ~links_restored() {
    for (const int n : {0, 1}) set_link(n, true);
  }
};

}  // namespace mooncaf::test
