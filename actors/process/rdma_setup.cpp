#include "actors/process/rdma_setup.hpp"

#include <charconv>
#include <cstdio>
#include <filesystem>

#include "gpu/cuda/dma_buf.hpp"
#include "transport/rdma/device.hpp"
#include "transport/rdma/topology.hpp"

namespace mooncaf {

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  while (at <= text.size()) {
    const auto end = std::min(text.find(separator, at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// How NICs could get at the memory of GPUs.
std::string device_memory_support(const std::string& sysfs_root) {
  const auto by_dma_buf = describe_dma_buf_support();
  if (by_dma_buf) return *by_dma_buf;
  std::error_code ignored;
  if (std::filesystem::exists(sysfs_root + "/module/nvidia_peermem", ignored))
    return "peer memory (nvidia-peermem is loaded); no dma-buf: " + by_dma_buf.error().detail;
  return "not available: " + by_dma_buf.error().detail + "; nvidia-peermem is not loaded";
}

}  // namespace

result<rdma_options> as_rdma_options(const options& o) {
  const auto& c = o.rdma;
  rdma_options out;
  out.enabled = c.enabled;
  out.devices = split(c.devices, ',');
  out.topology = split(c.topology, ';');
  if (!c.gid_index.empty()) {
    const auto* end = c.gid_index.data() + c.gid_index.size();
    const auto read = std::from_chars(c.gid_index.data(), end, out.gid_index);
    if (read.ec != std::errc{} || read.ptr != end || out.gid_index < 0 || out.gid_index > 255)
      return fail(ec::invalid_argument,
                  "rdma-gid-index: '" + c.gid_index + "' is not a number from 0 to 255");
  }
  if (c.signal_every > c.queue_depth / 2)
    return fail(ec::invalid_argument, "rdma-signal-every: " + std::to_string(c.signal_every) +
                                          " is more than half of rdma-queue-depth (" +
                                          std::to_string(c.queue_depth) + ")");
  out.slice_bytes = c.slice_bytes;
  out.queue_depth = c.queue_depth;
  out.signal_every = c.signal_every;
  out.max_links = c.max_links;
  out.poll_spin = c.poll;
  out.ack_timeout = c.ack_timeout;
  out.retry_count = c.retry_count;
  out.rail_retry_after = c.rail_retry;
  out.traffic_class = c.traffic_class;
  out.service_level = c.service_level;
  return out;
}

int print_topology(int argc, const char* const* argv) {
  const auto refuse = [](const error& why) {
    std::fprintf(stderr, "mooncaf: %s\n", why.detail.c_str());
    return 2;
  };
  const auto parsed = parse_options(argc, argv);
  if (!parsed) return refuse(parsed.error());
  if (parsed->action != option_action::run) {
    std::fputs(parsed->text.c_str(), stdout);
    return 0;
  }
  const auto rdma = as_rdma_options(parsed->values);
  if (!rdma) return refuse(rdma.error());
  const auto topology = rail_topology::make(read_nic_places(rdma->sysfs_root), rdma->topology);
  if (!topology) return refuse(topology.error());
  std::fputs(topology->render().c_str(), stdout);
  std::printf("device memory: %s\n", device_memory_support(rdma->sysfs_root).c_str());
  if (!rdma->enabled) {
    std::puts("RDMA is switched off by an option");
    return 0;
  }
  const auto found = discover(*rdma);
  for (const auto& r : found.rails)
    std::printf("rail %s speaks with %s and is %s\n", r->name().c_str(),
                to_string(r->location.address.gid).c_str(), r->up ? "up" : "down");
  for (const auto& why : found.left_out) std::printf("not used: %s\n", why.c_str());
  return 0;
}

}  // namespace mooncaf
