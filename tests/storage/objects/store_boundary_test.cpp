// Memory that a holder shares with something else: objects keep out of it, and its pages are given back.

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "tests/storage/objects/store_cluster.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {
/// What memory of this name this process has taken from the kernel, whether mapped or not.
std::uint64_t pages_of(const std::string& memfd) {
  std::set<ino_t> seen;
  std::uint64_t bytes = 0;
  for (const auto& e : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(e.path(), gone).string();
    struct stat s = {};
    if (target.find(memfd) == std::string::npos || ::stat(e.path().c_str(), &s) != 0) continue;
    if (seen.insert(s.st_ino).second) bytes += static_cast<std::uint64_t>(s.st_blocks) * 512;
  }
  return bytes;
}

/// Something else of the process, that has as many bytes of the shared memory as it is not told to do
/// without.
struct neighbour {
  std::atomic<std::uint64_t> withheld{0}, taken{0};
  std::atomic<std::int64_t> coldest_ns{0};
  std::atomic<bool> idle{true};
  static constexpr std::uint64_t own = 8 * MiB;
  std::uint64_t shared;
  std::optional<boundary_report> told(std::uint64_t wanted) {
    withheld = wanted;
    const auto has = own + shared - wanted;
    return boundary_report{wanted, has, idle ? has : 0, taken, duration{coldest_ns}};
  }
};
}  // namespace

TEST_CASE(
    "memory that objects share with something else goes to whom it serves better, and its pages with it") {
  constexpr std::uint64_t own = 8 * MiB, shared = 32 * MiB;
  cluster world{0};
  neighbour other;
  other.shared = shared;
  std::mutex divided_mutex;
  shared_memory_figures divided;
  segment_mount_options segment;
  segment.directory = world.address("host-0");
  segment.directory.secret = secret;
  segment.name = "s";
  segment.bytes = own + shared;
  segment.shared_bytes = shared;
  segment.other = [&](std::uint64_t wanted) { return other.told(wanted); };
  segment.divided = [&](const shared_memory_figures& f) {
    std::lock_guard lock{divided_mutex};
    divided = f;
  };
  auto holder = segment_mount::start(std::move(segment));
  REQUIRE(holder);
  const auto objects_have = [&] {
    std::lock_guard lock{divided_mutex};
    return divided.object_bytes;
  };
  const auto c = world.client();
  REQUIRE(soon([&] { return c->mounted()->at(0).view.withheld_bytes >= shared; }));
  const auto pinned = noise(300'000, 77);
  put_policy hard;
  hard.hard_pin = true;
  REQUIRE(put(*c, "pinned", pinned, hard) == store_code::ok);
  // Objects come and go, and what else there is has most of its memory idle.
  std::map<std::string, unsigned> there;
  unsigned n = 0;
  const auto churn = [&] {
    const auto key = "k" + std::to_string(n);
    if (put(*c, key, noise(200'000, n)) == store_code::ok) there[key] = n;
    ++n;
  };
  REQUIRE(soon([&] {
    churn();
    return objects_have() >= shared;
  }));
  // Both are told within the holder's next look at the latest.
  CHECK(soon([&] { return other.withheld == shared && c->mounted()->at(0).view.withheld_bytes < 2 * MiB; }));
  const auto check_all = [&] {
    std::size_t found = 0;
    for (const auto& [key, seed] : there) {
      store_code code = store_code::ok;
      const auto bytes = get(*c, key, code);
      if (code == store_code::ok) {
        ++found;
        REQUIRE(bytes == noise(200'000, seed));
      }
    }
    store_code code = store_code::ok;
    REQUIRE(get(*c, "pinned", code) == pinned);
    return found;
  };
  CHECK(check_all() > 30 * MiB / 200'000);
  // Now the other fills, and what it would give up is warmer than any object.
  other.idle = false;
  REQUIRE(soon([&] {
    ++other.taken;
    return objects_have() == 0;
  }));
  CHECK(soon([&] { return other.withheld == 0 && c->mounted()->at(0).view.withheld_bytes >= shared; }));
  CHECK(pages_of("mooncaf-segment") <= own + 1 * MiB);
  CHECK(check_all() > 0);  // the newest, or what was read last
}
