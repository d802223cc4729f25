#include "runtime/compute/device_reach.hpp"

#include <unistd.h>

#include "gpu/cuda/dma_buf.hpp"
#include "runtime/model/device_kv.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

namespace {

/// @returns the region, if a NIC took it; else nothing is registered.
result<region_id> offer(data_plane& plane, const device_memory& memory) {
  const auto region = plane.register_device_region(memory);
  if (!region) return fail(region.error());
  if (auto taken = plane.reaches(region->id); !taken) {
    // No peer was told of it, so it goes at once.
    if (const auto gone = plane.unregister_region(region->id); !gone) return fail(gone.error());
    return fail(taken.error());
  }
  return region->id;
}

}  // namespace

std::shared_ptr<device_reach> offer_to_nics(data_plane& plane, device_bytes at, std::uint64_t bytes) {
  auto out = std::make_shared<device_reach>();
  out->base = at;
  device_memory memory{.address = reinterpret_cast<std::uintptr_t>(at.at), .length = bytes};
  const auto exported = export_dma_buf(memory.address, memory.length);
  if (exported) {
    auto shown = memory;
    shown.dma_buf = exported->descriptor;
    shown.dma_buf_offset = exported->offset;
    const auto region = offer(plane, shown);
    ::close(exported->descriptor);  // the region has one of its own
    if (region) {
      out->region = *region;
      return out;
    }
    out->why_not = region.error().detail;
  } else {
    out->why_not = "no dma-buf: " + exported.error().detail;
  }
  const auto region = offer(plane, memory);
  if (!region) {
    if (region.error().detail != out->why_not) out->why_not += "; no peer memory: " + region.error().detail;
    return out;
  }
  out->region = *region;
  out->why_not.clear();
  return out;
}

device_kv_stats stats_of(const device_kv* blocks, const device_reach* reach) {
  auto out = blocks ? blocks->stats() : device_kv_stats{};
  if (reach) {
    out.sent_bytes = reach->sent_bytes;
    out.unreached = reach->why_not;
  }
  return out;
}

}  // namespace mooncaf
