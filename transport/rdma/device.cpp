#include "transport/rdma/device.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/posix.hpp"

namespace mooncaf {
namespace {

constexpr int access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Both are read on the transport's thread, which must not block.
bool make_non_blocking(int fd) { return ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) == 0; }

bool allowed(const rdma_options& o, const std::string& device, std::uint8_t port) {
  if (o.devices.empty()) return true;
  return std::any_of(o.devices.begin(), o.devices.end(), [&](const auto& text) {
    return text == device || text == device + ":" + std::to_string(port);
  });
}

gid_entry::kind as_kind(std::uint32_t type) {
  if (type == IBV_GID_TYPE_ROCE_V2) return gid_entry::kind::roce_v2;
  return type == IBV_GID_TYPE_ROCE_V1 ? gid_entry::kind::roce_v1 : gid_entry::kind::infiniband;
}

void add_rails(const std::shared_ptr<rdma_device>& device, const rdma_options& o, discovery& found) {
  for (std::uint8_t port = 1; port <= device->limits.phys_port_cnt; ++port) {
    if (!allowed(o, device->name, port)) continue;
    auto rail = std::make_shared<local_rail>();
    rail->device = device;
    rail->port = port;
    rail->location.address.name = device->name + ":" + std::to_string(port);
    const auto state = query_port(*device, port, o.gid_index);
    if (!state) {
      found.left_out.push_back(rail->name() + ": " + state.error().detail);
      continue;
    }
    rail->up = state->active;
    rail->location.address.gid = state->gid.gid;
    rail->location.address.ethernet = state->port.link_layer == IBV_LINK_LAYER_ETHERNET;
    rail->location.ipv4_prefix_bits = local_prefix_bits(state->gid.gid);
    found.rails.push_back(std::move(rail));
  }
}

}  // namespace

result<std::shared_ptr<rdma_device>> rdma_device::open(::ibv_device* which) {
  auto d = std::make_shared<rdma_device>();
  d->name = ::ibv_get_device_name(which);
  const auto refused = [&](const char* what) {
    return fail(ec::io_error, std::string{what} + ": " + errno_text(errno));
  };
  d->context.reset(::ibv_open_device(which));
  if (!d->context) return refused("cannot be opened (is /dev/infiniband accessible?)");
  if (const int rc = ::ibv_query_device(d->context.get(), &d->limits); rc != 0) {
    errno = rc;
    return refused("cannot be queried");
  }
  d->domain.reset(::ibv_alloc_pd(d->context.get()));
  if (!d->domain) return refused("gives no protection domain");
  d->events.reset(::ibv_create_comp_channel(d->context.get()));
  if (!d->events) return refused("gives no completion channel");
  if (!make_non_blocking(d->events->fd) || !make_non_blocking(d->context->async_fd))
    return refused("its events cannot be waited for");
  return d;
}

result<verbs_memory> rdma_device::register_memory(const device_memory& memory) const {
  const bool by_dma_buf = memory.dma_buf >= 0;
  verbs_memory mr{by_dma_buf ? ::ibv_reg_dmabuf_mr(domain.get(), memory.dma_buf_offset, memory.length,
                                                   memory.address, memory.dma_buf, access_flags)
                             : ::ibv_reg_mr(domain.get(), reinterpret_cast<void*>(memory.address),
                                            memory.length, access_flags)};
  if (mr) return mr;
  const int code = errno;
  return fail(ec::unsupported,
              "device " + name + (by_dma_buf ? " refuses the dma-buf: " : " refuses the peer memory: ") +
                  errno_text(code) +
                  (by_dma_buf ? " (the NIC's driver must import dma-bufs, as mlx5 does from Linux 5.12 on)"
                              : " (is the module nvidia-peermem loaded?)"));
}

result<verbs_memory> rdma_device::register_memory(std::span<std::byte> bytes) const {
  verbs_memory mr{::ibv_reg_mr(domain.get(), bytes.data(), bytes.size(), access_flags)};
  if (mr) return mr;
  const int code = errno;
  return fail(ec::io_error, "device " + name + " cannot register " + std::to_string(bytes.size()) +
                                " bytes: " + errno_text(code) +
                                (code == ENOMEM ? " (raise the locked memory limit, ulimit -l)" : ""));
}

result<port_state> query_port(const rdma_device& device, std::uint8_t port, int wanted_gid) {
  port_state s;
  if (::ibv_query_port(device.context.get(), port, &s.port) != 0)
    return fail(ec::io_error, "the port cannot be queried");
  s.active = s.port.state == IBV_PORT_ACTIVE;
  // The table of all ports comes at once.
  std::vector<::ibv_gid_entry> raw(static_cast<std::size_t>(std::max(1, s.port.gid_tbl_len)) *
                                   device.limits.phys_port_cnt);
  const auto n = ::ibv_query_gid_table(device.context.get(), raw.data(), raw.size(), 0);
  std::vector<gid_entry> table;
  for (::ssize_t i = 0; i < n; ++i) {
    const auto& r = raw[static_cast<std::size_t>(i)];
    if (r.port_num != port) continue;
    gid_entry e{{}, r.gid_index, as_kind(r.gid_type)};
    std::copy(std::begin(r.gid.raw), std::end(r.gid.raw), e.gid.begin());
    table.push_back(e);
  }
  const bool ethernet = s.port.link_layer == IBV_LINK_LAYER_ETHERNET;
  const auto gid = choose_gid(table, ethernet, wanted_gid);
  if (!gid)
    return fail(ec::unavailable, ethernet
                                     ? "the port has no RoCE v2 address (give its interface an IP address)"
                                     : "the port has no GID (is a subnet manager running?)");
  s.gid = *gid;
  return s;
}

discovery discover(const rdma_options& options) {
  discovery found;
  int count = 0;
  ::ibv_device** list = ::ibv_get_device_list(&count);
  if (!list) return found;
  for (int i = 0; i < count; ++i) {
    auto device = rdma_device::open(list[i]);
    if (!device) {
      found.left_out.push_back(std::string{::ibv_get_device_name(list[i])} + ": " + device.error().detail);
      continue;
    }
    const auto before = found.rails.size();
    add_rails(*device, options, found);
    if (found.rails.size() > before) found.devices.push_back(std::move(*device));
  }
  ::ibv_free_device_list(list);
  return found;
}

}  // namespace mooncaf
