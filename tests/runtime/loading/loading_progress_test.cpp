#include "runtime/loading/loading_progress.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "gpu/host/host_device.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

TEST_CASE("loading says how far it is every two seconds, and nothing if it is short") {
  const auto host = make_host_device({.threads = 1, .exact = true});
  auto now = time_point{} + 1h;
  std::vector<std::string> said;
  const std::vector<std::byte> data(MiB);
  const auto load = [&](std::size_t total, int tensors, duration each) {
    said.clear();
    loading_progress watched{*host, total, [&] { return now; },
                             [&](const std::string& s) { said.push_back(s); }};
    for (int i = 0; i < tensors; ++i) {
      now += each;
      CHECK(watched.load_weight(ggml_type::f32, 1024, 256, data).has_value());
    }
    return said;
  };
  CHECK(load(10 * MiB, 10, 150ms).empty());
  CHECK(load(10 * MiB, 10, 500ms) == std::vector<std::string>{"4 of 10 MiB, 40 %", "8 of 10 MiB, 80 %"});
  CHECK(load(0, 4, 1s) == std::vector<std::string>{"2 MiB", "4 MiB"});
  // A tensor that is used twice, and loaded twice.
  CHECK(load(2 * MiB, 4, 1s) == std::vector<std::string>{"2 of 2 MiB, 100 %", "4 MiB"});
}
