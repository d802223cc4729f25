#include "transport/rdma/topology.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace mooncaf;
namespace fs = std::filesystem;

namespace {

/// A sysfs of its own, gone with the test.
struct fake_sysfs {
  fs::path root = fs::temp_directory_path() / ("mooncaf-sysfs-" + std::to_string(::getpid()));
  fake_sysfs() { fs::create_directories(root / "class/infiniband"); }
  ~fake_sysfs() { fs::remove_all(root); }
  void write(const fs::path& file, const std::string& text) const {
    fs::create_directories((root / file).parent_path());
    std::ofstream{root / file} << text << '\n';
  }
  void add(const std::string& name, const std::string& pci, int numa) const {
    const auto device = fs::path{"devices"} / pci;
    write(device / "numa_node", std::to_string(numa));
    fs::create_directories(root / device / "net" / ("eth-" + name));
    const auto dir = fs::path{"class/infiniband"} / name;
    write(dir / "ports/1/state", "4: ACTIVE");
    write(dir / "ports/1/rate", "100 Gb/sec (4X EDR)");
    fs::create_directory_symlink(root / device, root / dir / "device");
  }
};

}  // namespace

TEST_CASE("NICs are read from sysfs with their place, speed and state") {
  fake_sysfs sys;
  sys.add("mlx5_1", "pci0000:80/0000:80:01.0/0000:81:00.0", 1);
  sys.add("mlx5_0", "pci0000:17/0000:17:01.0/0000:18:00.0", 0);
  const auto nics = read_nic_places(sys.root.string());
  REQUIRE(nics.size() == 2);
  CHECK(nics[0].device == "mlx5_0");
  CHECK(nics[0].numa_node == 0);
  CHECK(nics[0].netdev == "eth-mlx5_0");
  CHECK(nics[0].rate_gbit == 100);
  CHECK(nics[0].state == "ACTIVE");
  CHECK(nics[1].numa_node == 1);
  const auto table = rail_topology::make(nics, {})->render();
  CHECK(table.find("0000:81:00.0") != std::string::npos);
}

TEST_CASE(
    "memory is served by the NICs of its NUMA node, unless there are none or the options say otherwise") {
  fake_sysfs sys;
  sys.add("mlx5_0", "pci0000:17/0000:18:00.0", 0);
  sys.add("mlx5_1", "pci0000:80/0000:81:00.0", 1);
  const auto nics = read_nic_places(sys.root.string());
  const auto found = rail_topology::make(nics, {});
  REQUIRE(found);
  CHECK(found->is_near("mlx5_0", 0));
  CHECK(!found->is_near("mlx5_0", 1));
  CHECK(found->is_near("mlx5_0", 2));   // none is near
  CHECK(found->is_near("mlx5_0", -1));  // nothing is known
  const auto overridden = rail_topology::make(nics, {"1=mlx5_0,mlx5_1"});
  REQUIRE(overridden);
  CHECK(overridden->is_near("mlx5_0", 1));
  CHECK(overridden->is_near("mlx5_0", 0));
  CHECK(!overridden->is_near("mlx5_1", 0));
}

TEST_CASE("an unreadable override is refused by name, and a host without NICs is not an error") {
  for (const auto* bad : {"", "mlx5_0", "x=mlx5_0", "0=", "-1=mlx5_0", "0x=mlx5_0"}) {
    const auto t = rail_topology::make({}, {bad});
    REQUIRE(!t);
    CHECK(t.error() == ec::invalid_argument);
    CHECK(t.error().detail.find(std::string{"'"} + bad + "'") != std::string::npos);
  }
  CHECK(read_nic_places("/nowhere").empty());
  CHECK(rail_topology::make({}, {})->render() == "no RDMA device\n");
}

TEST_CASE("memory of this process lies on a node, or nowhere that the kernel tells") {
  const int here = 0;
  CHECK(numa_node_of(&here) >= -1);
}
