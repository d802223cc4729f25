#include "transport/rdma/rdma_memory.hpp"

#include <algorithm>

#include "transport/rdma/topology.hpp"

namespace mooncaf {

bool registered_region::reachable() const noexcept {
  return std::any_of(by_device.begin(), by_device.end(), [](const auto& mr) { return mr != nullptr; });
}

std::string registered_region::why_not() const {
  std::string all;
  for (const auto& r : refusals)
    if (!r.empty()) all += (all.empty() ? "" : "; ") + r;
  return all;
}

std::shared_ptr<const registered_region> rdma_memory::add(const local_region& region) {
  auto entry = std::make_shared<registered_region>();
  entry->kind = region.desc.kind;
  const bool host = entry->kind == memory_kind::host;
  const device_memory on_device{region.desc.base, region.desc.length, region.dma_buf.get(),
                                region.dma_buf_offset};
  for (const auto& d : devices_) {
    auto mr =
        host ? d->register_memory(std::span{region.base, region.desc.length}) : d->register_memory(on_device);
    entry->refusals.push_back(mr ? std::string{} : mr.error().detail);
    entry->by_device.push_back(mr ? std::move(*mr) : verbs_memory{});
  }
  if (host) entry->numa_node = numa_node_of(region.base);
  std::unique_lock lock{mutex_};
  regions_[region.desc.id] = entry;
  return entry;
}

void rdma_memory::remove(region_id id) {
  std::shared_ptr<registered_region> gone;
  {
    std::unique_lock lock{mutex_};
    const auto it = regions_.find(id);
    if (it == regions_.end()) return;
    gone = std::move(it->second);
    regions_.erase(it);
  }
  // Deregistered here and not with the last reference: the caller may reuse the memory when this returns.
  for (auto& mr : gone->by_device) mr.reset();
}

std::shared_ptr<const registered_region> rdma_memory::find(region_id id) const {
  std::shared_lock lock{mutex_};
  const auto it = regions_.find(id);
  return it == regions_.end() ? nullptr : it->second;
}

std::size_t rdma_memory::device_number(const rdma_device& d) const {
  std::size_t i = 0;
  while (i < devices_.size() && devices_[i].get() != &d) ++i;
  return i;
}

}  // namespace mooncaf
