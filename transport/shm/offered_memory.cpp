#include "transport/shm/offered_memory.hpp"

#include <algorithm>

namespace mooncaf {
namespace {

constexpr std::size_t regions_max = 64 * 1024;

}  // namespace

result<void> offered_memory::add(const shm_packet& offer, const std::vector<unique_fd>& fds) {
  if (fds.size() != 1 || regions_.size() >= regions_max)
    return fail(ec::invalid_argument, "an offer without a descriptor, or one too many");
  const auto at = memfds_.map(fds[0].get(), offer.fd_inode, offer.fd_size, offer.fd_offset, offer.length);
  if (!at) return fail(at.error());
  regions_[offer.region] = {at->bytes.data(), offer.length, offer.fd_inode};
  return {};
}

void offered_memory::withdraw(region_id region) {
  const auto it = regions_.find(region);
  if (it == regions_.end()) return;
  const auto inode = it->second.inode;
  regions_.erase(it);
  const auto shares = [&](const auto& r) { return r.second.inode == inode; };
  if (std::none_of(regions_.begin(), regions_.end(), shares)) memfds_.unmap(inode);
}

const std::byte* offered_memory::find(region_id region, std::uint64_t offset, std::uint64_t length) const {
  const auto it = regions_.find(region);
  if (it == regions_.end()) return nullptr;
  const auto whole = it->second.length;
  return length <= whole && offset <= whole - length ? it->second.base + offset : nullptr;
}

}  // namespace mooncaf
