#include "transport/rdma/rdma_memory.hpp"

#include "transport/rdma/topology.hpp"

namespace mooncaf {

result<void> rdma_memory::add(const local_region& region) {
  auto entry = std::make_shared<registered_region>();
  result<void> refused = fail(ec::unsupported, "no RDMA device");
  bool some = false;
  for (const auto& d : devices_) {
    auto mr = d->register_memory({region.base, region.desc.length});
    if (!mr) refused = fail(mr.error());
    else some = true;
    entry->by_device.push_back(mr ? std::move(*mr) : verbs_memory{});
  }
  if (!some) return refused;
  entry->numa_node = numa_node_of(region.base);
  std::unique_lock lock{mutex_};
  regions_[region.desc.id] = std::move(entry);
  return {};
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
  // Here and not with the last reference: whoever asked may reuse the memory when this returns.
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
