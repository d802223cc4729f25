#include "storage/objects/table/stored_parts.hpp"

#include <algorithm>
#include <map>

namespace mooncaf {

std::vector<replica_place> places_of(std::span<const memory_part> memory) {
  std::vector<replica_place> all;
  all.reserve(memory.size());
  for (const auto& part : memory) all.push_back({part.segment, part.extent.offset, part.size});
  return all;
}

std::size_t replica_count(std::span<const memory_part> memory) {
  return static_cast<std::size_t>(
      std::count_if(memory.begin(), memory.end(), [](const memory_part& part) { return part.at == 0; }));
}

std::uint64_t bytes_in_parts(std::span<const memory_part> memory) {
  std::uint64_t n = 0;
  for (const auto& part : memory) n += part.owner == 0 ? 0 : part.bytes;
  return n;
}

bool lies_in(std::span<const memory_part> memory, std::uint32_t segment) {
  return std::any_of(memory.begin(), memory.end(),
                     [&](const memory_part& part) { return part.segment == segment; });
}

std::vector<memory_part> without_replicas_in(std::uint32_t segment, std::span<const memory_part> memory) {
  std::vector<memory_part> stays;
  for (const auto& part : memory) {
    const auto goes_too = [&](const memory_part& other) {
      return other.segment == segment && other.one_with(part);
    };
    if (std::none_of(memory.begin(), memory.end(), goes_too)) stays.push_back(part);
  }
  return stays;
}

bool are_whole_replicas(std::span<const memory_part> memory, std::uint64_t size) {
  std::map<std::uint32_t, const memory_part*> first_in;
  std::uint64_t next = 0;
  const memory_part* before = nullptr;
  for (const auto& part : memory) {
    if (part.at != next || part.size == 0 || (next != 0 && !part.one_with(*before))) return false;
    if (const auto [at, fresh] = first_in.emplace(part.segment, &part); !fresh && !at->second->one_with(part))
      return false;
    next += part.size;
    if (next == size) next = 0;
    before = &part;
  }
  return next == 0;
}

std::vector<std::span<const disk_part>> replicas_on_disks(std::span<const disk_part> disks) {
  std::vector<std::span<const disk_part>> all;
  for (std::size_t i = 0, end = 0; i < disks.size(); i = end) {
    for (end = i; end < disks.size() && disks[end].replica() == disks[i].replica(); ++end) {
    }
    all.push_back(disks.subspan(i, end - i));
  }
  return all;
}

std::vector<std::vector<disk_run>> runs_to_save(
    std::span<const memory_part> memory, const std::function<std::uint32_t(std::uint32_t)>& ssd_beside) {
  std::vector<std::vector<disk_run>> all;
  for (std::size_t i = 0; i < memory.size();) {
    const auto& first = memory[i];
    std::vector<disk_run> parts;
    bool beside_ssds = true;
    while (i < memory.size() && memory[i].one_with(first)) {
      const auto begin = i;
      const auto in = memory[i].segment;
      disk_run run{{ssd_beside(in), 0, memory[i].at, 0, static_cast<std::uint32_t>(parts.size())}, {}};
      for (; i < memory.size() && memory[i].one_with(first) && memory[i].segment == in; ++i)
        run.part.size += memory[i].size;
      run.from = memory.subspan(begin, i - begin);
      beside_ssds = beside_ssds && run.part.segment != 0;
      parts.push_back(run);
    }
    if (beside_ssds) all.push_back(std::move(parts));
  }
  return all;
}

}  // namespace mooncaf
