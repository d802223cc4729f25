#include "storage/memory_room.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/units.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;

namespace {

/// A machine of 8 GiB, half of it in use, whose /proc and /sys say what a test writes there.
class fake_machine {
 public:
  fake_machine() {
    write("proc/meminfo", "MemTotal:        8388608 kB\nMemFree:  1 kB\nMemAvailable:    4194304 kB\n");
  }

  void write(const std::string& name, const std::string& text) {
    const auto path = std::filesystem::path{folder_ / name};
    std::filesystem::create_directories(path.parent_path());
    std::ofstream{path} << text;
  }
  memory_room room() const {
    const auto room = memory_room_now(folder_.path());
    REQUIRE(room);
    return *room;
  }

 private:
  test::temp_dir folder_;
};

}  // namespace

TEST_CASE("without a container the machine's memory counts") {
  fake_machine machine;
  machine.write("proc/self/cgroup", "0::/user.slice/session-1.scope\n");
  machine.write("sys/fs/cgroup/user.slice/memory.max", "max\n");
  const auto room = machine.room();
  CHECK(room.total_bytes == 8 * GiB);
  CHECK(room.available_bytes == 4 * GiB);
  CHECK(room.limited_by == "the machine");
}

TEST_CASE("the lowest limit of a process's cgroups counts, wherever it is set") {
  fake_machine machine;
  SUBCASE("version 2, at its own") {
    machine.write("proc/self/cgroup", "0::/pod/engine\n");
    machine.write("sys/fs/cgroup/pod/memory.max", "5368709120\n");
    machine.write("sys/fs/cgroup/pod/memory.current", "0\n");
    machine.write("sys/fs/cgroup/pod/engine/memory.max", "2147483648\n");
    machine.write("sys/fs/cgroup/pod/engine/memory.current", "1073741824\n");
  }
  SUBCASE("version 2, in a namespace of its own") {
    machine.write("proc/self/cgroup", "0::/\n");
    machine.write("sys/fs/cgroup/memory.max", "2147483648\n");
    machine.write("sys/fs/cgroup/memory.current", "1073741824\n");
  }
  SUBCASE("version 1, above it") {
    machine.write("proc/self/cgroup", "5:cpu:/x\n4:memory:/pod/engine\n0::/\n");
    machine.write("sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "2147483648\n");
    machine.write("sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "1073741824\n");
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  }
  const auto room = machine.room();
  CHECK(room.total_bytes == 2 * GiB);
  CHECK(room.available_bytes == 1 * GiB);
  CHECK(room.limited_by.find("sys/fs/cgroup") != std::string::npos);
}

TEST_CASE("an arena larger than the memory is refused, one larger than what is free now is warned of") {
  const memory_room room{8 * GiB, 4 * GiB, "the machine"};
  const auto fits = check_arena_fits("cache-dram", 4 * GiB, room);
  REQUIRE(fits);
  CHECK(fits->empty());
  const auto tight = check_arena_fits("cache-dram", 5 * GiB, room);
  REQUIRE(tight);
  CHECK(tight->find("4096 MiB") != std::string::npos);
  const auto refused = check_arena_fits("cache-dram", 9 * GiB, room);
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == ec::out_of_space);
  for (const auto* part : {"cache-dram", "9216 MiB", "8192 MiB", "the machine"})
    CHECK(refused.error().detail.find(part) != std::string::npos);
}
