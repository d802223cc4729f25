#include "transport/rdma/topology.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace mooncaf {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in{file};
  std::string line;
  std::getline(in, line);
  return line;
}

int as_int(const std::string& text, int otherwise) {
  int value = otherwise;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  return r.ec == std::errc{} ? value : otherwise;
}

// Components of a path that name PCI buses and devices, outermost first.
std::vector<std::string> pci_parts(const std::string& path) {
  std::vector<std::string> parts;
  for (const auto& part : fs::path{path}) {
    const auto text = part.string();
    const bool bus = text.rfind("pci", 0) == 0 && text.find(':') != std::string::npos;
    const bool device = text.size() == 12 && text[4] == ':' && text[7] == ':' && text[10] == '.';
    if (bus || device) parts.push_back(text);
  }
  return parts;
}

nic_place read_place(const fs::path& dir) {
  nic_place n;
  n.device = dir.filename().string();
  std::error_code error;
  const auto device = fs::canonical(dir / "device", error);
  if (!error && !pci_parts(device.string()).empty()) n.pci_path = device.string();
  n.numa_node = as_int(first_line(dir / "device" / "numa_node"), -1);
  const auto port = dir / "ports" / "1";
  // "4: ACTIVE", "100 Gb/sec (4X EDR)", "2.5 Gb/sec (1X SDR)"
  if (const auto state = first_line(port / "state"); state.size() > 3) n.state = state.substr(3);
  n.rate_gbit = static_cast<std::uint32_t>(std::max(0, as_int(first_line(port / "rate"), 0)));
  for (fs::directory_iterator it{dir / "device" / "net", error}, end; !error && it != end;
       it.increment(error))
    n.netdev = it->path().filename().string();
  if (n.netdev.empty()) n.netdev = first_line(port / "gid_attrs" / "ndevs" / "0");
  return n;
}

}  // namespace

std::vector<nic_place> read_nic_places(const std::string& sysfs_root) {
  std::vector<nic_place> all;
  std::error_code error;
  for (fs::directory_iterator it{fs::path{sysfs_root} / "class" / "infiniband", error}, end;
       !error && it != end; it.increment(error))
    all.push_back(read_place(it->path()));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.device < b.device; });
  return all;
}

result<rail_topology> rail_topology::make(std::vector<nic_place> nics,
                                          const std::vector<std::string>& overrides) {
  rail_topology t;
  t.nics_ = std::move(nics);
  for (const auto& text : overrides) {
    const auto equals = text.find('=');
    assignment a{as_int(text.substr(0, equals), -1), {}};
    if (equals == std::string::npos || a.numa_node < 0 ||
        std::to_string(a.numa_node) != text.substr(0, equals))
      return fail(ec::invalid_argument,
                  "topology entry '" + text + "' is not of the form \"<NUMA node>=<device>,<device>\"");
    std::istringstream list{text.substr(equals + 1)};
    for (std::string name; std::getline(list, name, ',');)
      if (!name.empty()) a.devices.push_back(name);
    if (a.devices.empty()) return fail(ec::invalid_argument, "topology entry '" + text + "' names no device");
    t.overrides_.push_back(std::move(a));
  }
  return t;
}

bool rail_topology::is_near(const std::string& device, int numa_node) const {
  if (numa_node < 0) return true;
  for (const auto& o : overrides_)
    if (o.numa_node == numa_node)
      return std::find(o.devices.begin(), o.devices.end(), device) != o.devices.end();
  bool any_near = false;
  for (const auto& n : nics_) {
    const bool near = n.numa_node == numa_node;
    if (n.device == device && (near || n.numa_node < 0)) return true;
    any_near |= near;
  }
  return !any_near;
}

std::string rail_topology::render() const {
  std::ostringstream out;
  if (nics_.empty()) return "no RDMA device\n";
  out << "device           port     Gbit/s  NUMA  netdev     PCI\n";
  for (const auto& n : nics_) {
    const auto pad = [&](std::string text, std::size_t width) {
      if (text.empty()) text = "-";
      text.resize(std::max(width, text.size() + 1), ' ');
      out << text;
    };
    pad(n.device, 17);
    pad(n.state, 9);
    pad(n.rate_gbit ? std::to_string(n.rate_gbit) : "", 8);
    pad(n.numa_node >= 0 ? std::to_string(n.numa_node) : "", 6);
    pad(n.netdev, 11);
    const auto parts = pci_parts(n.pci_path);
    out << (parts.empty() ? "-" : parts.back()) << '\n';
  }
  for (const auto& o : overrides_) {
    out << "memory of NUMA node " << o.numa_node << " is served by";
    for (const auto& d : o.devices) out << ' ' << d;
    out << " (set by option)\n";
  }
  return out.str();
}

int numa_node_of(const void* at) {
  void* page = const_cast<void*>(at);
  int node = -1;
  // Without target nodes the call only reports. Absent in some containers: then nothing is known.
  if (::syscall(SYS_move_pages, 0, 1ul, &page, nullptr, &node, 0) != 0) return -1;
  return node < 0 ? -1 : node;
}

}  // namespace mooncaf
