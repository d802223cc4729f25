#include "storage/memory_room.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "runtime/base/units.hpp"

namespace mooncaf {

namespace {

/// The number in a file of one number; nothing if there is none, or the file says "max".
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream in{path};
  std::uint64_t value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

/// "MemTotal:   8135500 kB"
std::optional<std::uint64_t> meminfo(const std::string& root, const std::string& name) {
  std::ifstream in{root + "/proc/meminfo"};
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::istringstream rest{line.substr(name.size() + 1)};
    std::uint64_t kib = 0;
    if (rest >> kib) return kib * KiB;
  }
  return std::nullopt;
}

void limit(memory_room& room, const std::string& folder, const char* most_file, const char* used_file) {
  const auto most = number_in(folder + "/" + most_file);
  if (!most || *most >= room.total_bytes) return;
  const auto used = number_in(folder + "/" + used_file).value_or(0);
  room.total_bytes = *most;
  room.available_bytes = std::min(room.available_bytes, *most - std::min(*most, used));
  room.limited_by = folder;
}

/// Every folder from the process's own cgroup up to the root may have a limit.
void limit_by_cgroups(memory_room& room, const std::string& root) {
  std::ifstream in{root + "/proc/self/cgroup"};
  for (std::string line; std::getline(in, line);) {
    const auto second = line.find(':', line.find(':') + 1);
    if (second == std::string::npos) continue;
    const bool v2 = line.starts_with("0::");
    if (!v2 && line.find(":memory:") == std::string::npos) continue;
    const auto base = root + (v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    for (auto path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      while (path.ends_with('/')) path.pop_back();
      if (v2) {
        limit(room, base + path, "memory.max", "memory.current");
      } else {
        limit(room, base + path, "memory.limit_in_bytes", "memory.usage_in_bytes");
      }
      if (path.find('/') == std::string::npos) break;
    }
  }
}

std::string in_mib(std::uint64_t bytes) { return std::to_string(bytes / MiB) + " MiB"; }

}  // namespace

result<memory_room> memory_room_now(const std::string& root) {
  const auto total = meminfo(root, "MemTotal"), available = meminfo(root, "MemAvailable");
  if (!total || !available)
    return fail(ec::not_found, root + "/proc/meminfo does not say how much memory there is");
  memory_room room{*total, *available, "the machine"};
  limit_by_cgroups(room, root);
  return room;
}

result<std::string> check_arena_fits(std::string_view option, std::uint64_t arena_bytes,
                                     const memory_room& room) {
  const auto wanted = std::string{option} + ": " + in_mib(arena_bytes);
  if (arena_bytes > room.total_bytes) {
    return fail(ec::out_of_space, wanted + " is more than the " + in_mib(room.total_bytes) + " that " +
                                      room.limited_by + " has; give it less, others need room, too");
  }
  if (arena_bytes <= room.available_bytes) return std::string{};
  return wanted + " is more than the " + in_mib(room.available_bytes) + " that " + room.limited_by +
         " has available now; once the cache fills, the kernel may end this process";
}

}  // namespace mooncaf
