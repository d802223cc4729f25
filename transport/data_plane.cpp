#include "transport/data_plane.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "transport/data_plane_impl.hpp"
#include "transport/net/handshake.hpp"

namespace mooncaf {
namespace {

result<void> check_range(const char* option, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high) return {};
  return fail(ec::invalid_argument, std::string{"data plane option "} + option + " is " +
                                        std::to_string(value) + ", allowed is " + std::to_string(low) +
                                        " to " + std::to_string(high));
}

result<void> check_options(const data_plane_options& o) {
  if (!o.node) return fail(ec::invalid_argument, "data plane option node must not be zero");
  if (o.cluster_secret.empty())
    return fail(ec::invalid_argument, "data plane option cluster_secret must not be empty");
  for (const auto& r :
       {check_range("tcp_streams", o.tcp_streams, 1, 64), check_range("tcp_threads", o.tcp_threads, 1, 64),
        check_range("tcp_send_buffer", o.tcp_send_buffer, 16 * KiB, 64 * MiB),
        check_range("slice_bytes", o.slice_bytes, 4 * KiB, 16 * MiB),
        check_range("max_transfers", o.max_transfers, 1, 1u << 24),
        check_range("max_transfers_per_peer", o.max_transfers_per_peer, 1, 1024),
        check_range("rdma.slice_bytes", o.rdma.slice_bytes, 4 * KiB, 16 * MiB),
        check_range("rdma.queue_depth", o.rdma.queue_depth, 16, 4096),
        check_range("rdma.signal_every", o.rdma.signal_every, 1, o.rdma.queue_depth / 2),
        check_range("rdma.inline_bytes", o.rdma.inline_bytes, 0, 512),
        check_range("rdma.max_links", o.rdma.max_links, 1, 4096),
        check_range("rdma.read_depth", o.rdma.read_depth, 1, 128),
        check_range("rdma.retry_count", o.rdma.retry_count, 1, 7),
        check_range("rdma.traffic_class", o.rdma.traffic_class, 0, 255),
        check_range("rdma.service_level", o.rdma.service_level, 0, 15)})
    if (!r) return r;
  return {};
}

}  // namespace

// ---- life ----

result<void> data_plane::impl::begin() {
  const auto incarnation = make_random_u64();
  if (!incarnation) return fail(incarnation.error());
  node.incarnation = *incarnation;
  node.host_id = node.options.host_id.empty() ? this_host() : node.options.host_id;
  local = std::make_unique<local_transport>(node);
  if (node.options.shm) {
    auto t = shm_transport::start(node);
    if (!t) return fail(t.error());
    shm = std::move(*t);
  }
  if (node.options.rdma.enabled) {
    auto t = rdma_transport::start(node, rdma_notes);
    if (!t) return fail(t.error());
    rdma = std::move(*t);
  }
  if (node.options.tcp) {
    auto t = tcp_transport::start(node);
    if (!t) return fail(t.error());
    tcp = std::move(*t);
  }
  return {};
}

result<std::unique_ptr<data_plane>> data_plane::start(data_plane_options options, landing_handler on_landing,
                                                      callback_executor executor) {
  if (const auto ok = check_options(options); !ok) return fail(ok.error());
  auto i = std::make_unique<impl>();
  i->node.options = std::move(options);
  i->node.on_landing = std::move(on_landing);
  i->node.executor = std::move(executor);
  if (const auto ok = i->begin(); !ok) return fail(ok.error());
  return std::unique_ptr<data_plane>{new data_plane(std::move(i))};
}

data_plane::data_plane(std::unique_ptr<impl> i) : impl_(std::move(i)) {}

data_plane::~data_plane() {
  {
    std::lock_guard lock{impl_->mutex};
    impl_->stopping = true;
  }
  // Each path completes its transfers; none is tried again over another.
  impl_->tcp.reset();
  impl_->rdma.reset();
  impl_->shm.reset();
  impl_->local.reset();
}

std::vector<transport*> data_plane::impl::transports() const {
  std::vector<transport*> all;
  if (shm) all.push_back(shm.get());
  if (rdma) all.push_back(rdma.get());
  if (tcp) all.push_back(tcp.get());
  all.push_back(local.get());
  return all;
}

// ---- regions ----

result<region_desc> data_plane::register_region(std::span<std::byte> bytes, int fd, std::uint64_t fd_offset) {
  if (bytes.empty()) return fail(ec::invalid_argument, "a region must not be empty");
  auto region = std::make_shared<local_region>();
  if (fd >= 0) {
    if (fd_offset > UINT64_MAX - bytes.size()) return fail(ec::invalid_argument, "fd_offset is out of range");
    if (const auto ok = check_memfd(fd, fd_offset + bytes.size()); !ok) return fail(ok.error());
    struct ::stat info {};
    ::fstat(fd, &info);
    region->fd = unique_fd{::fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    if (!region->fd) return fail(ec::io_error, "cannot duplicate the descriptor: " + errno_text(errno));
    region->fd_offset = fd_offset;
    region->fd_size = static_cast<std::uint64_t>(info.st_size);
    region->fd_inode = info.st_ino;
  }
  region->base = bytes.data();
  region->desc.length = bytes.size();
  return add_region(std::move(region));
}

result<region_desc> data_plane::register_device_region(const device_memory& memory) {
  if (memory.length == 0) return fail(ec::invalid_argument, "a region must not be empty");
  if (memory.address == 0 || memory.address > UINT64_MAX - memory.length)
    return fail(ec::invalid_argument, "a device region must lie at an address of this process");
  if (memory.dma_buf < 0 && memory.dma_buf_offset != 0)
    return fail(ec::invalid_argument, "dma_buf_offset needs a dma-buf");
  auto region = std::make_shared<local_region>();
  region->base = reinterpret_cast<std::byte*>(memory.address);
  region->desc.length = memory.length;
  region->desc.kind = memory_kind::device;
  if (memory.dma_buf >= 0) {
    region->dma_buf = unique_fd{::fcntl(memory.dma_buf, F_DUPFD_CLOEXEC, 0)};
    if (!region->dma_buf) return fail(ec::invalid_argument, "dma_buf is no descriptor: " + errno_text(errno));
    region->dma_buf_offset = memory.dma_buf_offset;
  }
  return add_region(std::move(region));
}

result<region_desc> data_plane::add_region(std::shared_ptr<local_region> region) {
  const auto key = make_random_u64();
  if (!key) return fail(key.error());
  auto& d = region->desc;
  d.node = impl_->node.options.node;
  d.id.value = impl_->next_region++;
  d.base = reinterpret_cast<std::uintptr_t>(region->base);
  d.access_key = *key;
  impl_->node.regions.add(region);
  for (auto* t : impl_->transports()) {
    auto blob = t->register_region(d.id);
    if (!blob) {
      impl_->node.regions.remove(d.id);
      return fail(blob.error());
    }
    if (!blob->empty()) d.keys.push_back({std::string{t->name()}, std::move(*blob)});
  }
  return d;
}

result<void> data_plane::reaches(region_id id) const {
  if (impl_->rdma) return impl_->rdma->reaches(id);
  return fail(ec::unsupported, impl_->why_no_rdma());
}

result<void> data_plane::unregister_region(region_id id) {
  const auto region = impl_->node.regions.find(id);
  if (!region) return fail(ec::not_found, "no local region " + to_string(id));
  {
    // Transfers take their uses under the same lock.
    std::lock_guard lock{impl_->mutex};
    if (const auto uses = region->uses.load(); uses > 0)
      return fail(ec::overloaded,
                  std::to_string(uses) + " slices of transfers under way use region " + to_string(id));
    impl_->node.regions.remove(id);
  }
  result<void> outcome;
  for (auto* t : impl_->transports())
    if (const auto r = t->unregister_region(id); !r) outcome = r;
  return outcome;
}

// ---- peers ----

peer_address data_plane::local_address() const {
  const auto& n = impl_->node;
  peer_address a;
  a.node = n.options.node;
  a.incarnation = n.incarnation;
  a.host = n.options.advertised_host.empty() ? n.options.listen_host : n.options.advertised_host;
  a.tcp_port = impl_->tcp ? impl_->tcp->port() : std::uint16_t{0};
  a.host_id = n.host_id;
  a.unix_name = impl_->shm ? impl_->shm->socket_name() : std::string{};
  if (impl_->rdma) {
    a.rdma_port = impl_->rdma->port();
    a.rdma_rails = impl_->rdma->rail_addresses();
  }
  a.process_id = static_cast<std::uint32_t>(::getpid());
  return a;
}

announcement data_plane::local_announcement() const { return {local_address(), impl_->node.regions.all()}; }

result<void> data_plane::add_peer(const peer_address& address, std::vector<region_desc> regions) {
  auto& n = impl_->node;
  if (!address.node || address.node == n.options.node)
    return fail(ec::invalid_argument, "a peer needs a node id other than this node's");
  peer_info info;
  info.address = address;
  info.same_host = impl_->shm && !address.unix_name.empty() && address.host_id == n.host_id;
  if (address.tcp_port != 0) {
    const auto at = resolve_tcp(address.host, address.tcp_port);
    if (!at) return fail(at.error());
    info.tcp = *at;
  }
  for (auto& r : regions) {
    if (r.node != address.node)
      return fail(ec::invalid_argument,
                  "region " + to_string(r.id) + " is not of node " + to_string(address.node));
    const auto id = r.id;
    info.regions[id] = std::move(r);
  }
  n.peers.put(std::move(info));
  std::lock_guard lock{impl_->mutex};
  std::erase_if(impl_->avoided_until, [&](const auto& e) { return e.first.first == address.node; });
  return {};
}

result<peer_view> data_plane::map(node_id peer, region_id region) {
  const auto& o = impl_->node.options;
  if (impl_->shm) return impl_->shm->map(peer, region, o.connect_timeout + o.peer_timeout);
  return fail(ec::unsupported, "this node has no shared memory");
}

void data_plane::remove_peer(node_id node) {
  impl_->node.peers.erase(node);
  for (auto* t : impl_->transports()) t->disconnect(node);
}

result<void> data_plane::close_peer(node_id node) {
  // Kept out first, so that no link is made behind the fence.
  std::set<std::uint64_t> incarnations;
  if (const auto info = impl_->node.peers.find(node)) incarnations.insert(info->address.incarnation);
  if (impl_->tcp) impl_->tcp->incarnations_of(node, incarnations);
  if (impl_->shm) impl_->shm->incarnations_of(node, incarnations);
  if (impl_->rdma) impl_->rdma->incarnations_of(node, incarnations);
  impl_->node.peers.ban(node, incarnations);
  impl_->node.peers.erase(node);
  result<void> outcome;
  for (auto* t : impl_->transports())
    if (const auto r = t->close(node); !r) outcome = r;
  if (outcome) impl_->node.peers.count_fence(node);
  return outcome;
}

std::uint64_t data_plane::fences_of(node_id node) const { return impl_->node.peers.fences_of(node); }

// ---- figures
transfer_path data_plane::preferred_path(node_id peer) const {
  const auto paths = impl_->paths_to(peer);
  return paths.empty() ? transfer_path::none : paths.front()->path();
}

std::vector<path_stats> data_plane::stats() const { return impl_->node.stats.all(); }

std::vector<rail_stats> data_plane::rails() const {
  return impl_->rdma ? impl_->rdma->rail_figures() : std::vector<rail_stats>{};
}

const std::vector<std::string>& data_plane::rdma_notes() const noexcept { return impl_->rdma_notes; }

std::size_t data_plane::transfers_in_flight() const {
  std::lock_guard lock{impl_->mutex};
  return impl_->orders.size();
}

}  // namespace mooncaf
