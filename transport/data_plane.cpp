#include "transport/data_plane.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>

#include "transport/local/local_transport.hpp"
#include "transport/net/handshake.hpp"
#include "transport/node_state.hpp"
#include "transport/rdma/rdma_transport.hpp"
#include "transport/shm/shm_transport.hpp"
#include "transport/tcp/tcp_transport.hpp"

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

// Processes that see the same of these may share memory and reach each other's abstract sockets.
std::string make_host_id() {
  std::ifstream in{"/proc/sys/kernel/random/boot_id"};
  std::string boot;
  std::getline(in, boot);
  struct ::stat net {};
  ::stat("/proc/self/ns/net", &net);
  return boot + ":" + std::to_string(net.st_ino);
}

}  // namespace

class data_plane::impl {
 public:
  /// A submitted transfer on its way through the paths.
  struct order {
    transfer what;
    completion_handler on_done;
    std::vector<std::shared_ptr<local_region>> uses;
    time_point submitted;
    std::vector<transport*> paths;  // still to be tried
    transport* current = nullptr;
    bool cancelled = false;
    bool unfenced = false;  // an earlier attempt left bytes under way
  };

  node_state node;
  std::unique_ptr<local_transport> local;
  std::unique_ptr<shm_transport> shm;
  std::unique_ptr<rdma_transport> rdma;
  std::vector<std::string> rdma_notes;
  std::unique_ptr<tcp_transport> tcp;

  std::mutex mutex;  // orders, health
  std::unordered_map<transfer_id, std::shared_ptr<order>> orders;
  std::map<std::pair<node_id, transfer_path>, time_point> avoided_until;
  bool stopping = false;
  landing_log delivered;  // own writes that succeeded, so that a repetition moves nothing
  landing_log tried;      // own writes that failed and may have landed for all this node knows
  std::atomic<std::uint64_t> next_region{1};

  result<void> begin();
  std::vector<transport*> transports() const;
  std::vector<transport*> paths_to(node_id peer);
  result<void> check(const transfer& t) const;
  result<std::vector<std::shared_ptr<local_region>>> use_regions(const transfer& t) const;
  void submit(transfer what, completion_handler on_done);
  void attempt(const std::shared_ptr<order>& o);
  void attempt_ended(const std::shared_ptr<order>& o, completion c);
  void finish(const std::shared_ptr<order>& o, completion c);
  void refuse(const transfer& what, completion_handler& on_done, error why);
  void count(const order& o, const completion& c);
};

// ---- life
// -----------------------------------------------------------------------------------------------------------

result<void> data_plane::impl::begin() {
  const auto incarnation = make_random_u64();
  if (!incarnation) return fail(incarnation.error());
  node.incarnation = *incarnation;
  node.host_id = node.options.host_id.empty() ? make_host_id() : node.options.host_id;
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
  // Each completes what it has; nothing is tried again.
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

// ---- regions
// --------------------------------------------------------------------------------------------------------

result<region_desc> data_plane::register_region(std::span<std::byte> bytes, int fd, std::uint64_t fd_offset) {
  if (bytes.empty()) return fail(ec::invalid_argument, "a region must not be empty");
  auto region = std::make_shared<local_region>();
  if (fd >= 0) {
    if (fd_offset > UINT64_MAX - bytes.size()) return fail(ec::invalid_argument, "fd_offset is out of range");
    if (const auto ok = check_memfd(fd, fd_offset + bytes.size()); !ok) return fail(ok.error());
    struct ::stat info {};
    ::fstat(fd, &info);
    region->fd = owned_fd{::fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    if (!region->fd) return fail(ec::io_error, "cannot duplicate the descriptor: " + describe_errno(errno));
    region->fd_offset = fd_offset;
    region->fd_size = static_cast<std::uint64_t>(info.st_size);
    region->fd_inode = info.st_ino;
  }
  const auto key = make_random_u64();
  if (!key) return fail(key.error());
  auto& d = region->desc;
  d.node = impl_->node.options.node;
  d.id.value = impl_->next_region++;
  d.base = reinterpret_cast<std::uintptr_t>(bytes.data());
  d.length = bytes.size();
  d.access_key = *key;
  region->base = bytes.data();
  const auto desc_without_keys = d;
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

// ---- peers
// ----------------------------------------------------------------------------------------------------------

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
  return outcome;
}

// ---- transfers
// ------------------------------------------------------------------------------------------------------

std::vector<transport*> data_plane::impl::paths_to(node_id peer) {
  if (peer == node.options.node) return {local.get()};
  std::vector<transport*> paths;
  const auto now = clock_type::now();
  std::lock_guard lock{mutex};
  const auto avoided = [&](transfer_path p) {
    const auto it = avoided_until.find({peer, p});
    return it != avoided_until.end() && now < it->second;
  };
  const bool has_tcp = tcp && tcp->capabilities(peer).usable;
  const bool has_rdma = rdma && rdma->capabilities(peer).usable && !(has_tcp && avoided(transfer_path::rdma));
  if (shm && shm->capabilities(peer).usable && !((has_tcp || has_rdma) && avoided(transfer_path::shm)))
    paths.push_back(shm.get());
  if (has_rdma) paths.insert(paths.end(), 2, rdma.get());
  // Twice: a connection that breaks is made anew once.
  if (has_tcp) paths.insert(paths.end(), 2, tcp.get());
  return paths;
}

result<void> data_plane::impl::check(const transfer& t) const {
  if (!t.id) return fail(ec::invalid_argument, "a transfer needs an id");
  if (t.op != transfer_op::write && t.op != transfer_op::read)
    return fail(ec::invalid_argument, "a transfer writes or reads");
  const bool to_self = t.peer == node.options.node;
  const auto info = to_self ? nullptr : node.peers.find(t.peer);
  if (!to_self && !info) return fail(ec::not_found, "no peer " + to_string(t.peer));
  for (const auto& pair : t.slices) {
    if (pair.local.length != pair.remote.length)
      return fail(ec::invalid_argument,
                  "the two slices of a pair differ in length: " + std::to_string(pair.local.length) +
                      " and " + std::to_string(pair.remote.length));
    if (const auto at = node.regions.resolve(pair.local); !at) return fail(at.error());
    if (to_self) {
      if (const auto at = node.regions.resolve(pair.remote); !at) return fail(at.error());
      continue;
    }
    const auto region = info->regions.find(pair.remote.region);
    if (region == info->regions.end())
      return fail(ec::not_found,
                  "node " + to_string(t.peer) + " has no region " + to_string(pair.remote.region));
    if (const auto ok = check_bounds(pair.remote, region->second.length, "remote"); !ok) return ok;
  }
  return {};
}

// With the lock, so that no region is unregistered between its check and its use.
result<std::vector<std::shared_ptr<local_region>>> data_plane::impl::use_regions(const transfer& t) const {
  std::vector<std::shared_ptr<local_region>> used;
  region_id last;
  const auto use = [&](region_id id) -> bool {
    if (!used.empty() && id == last) return true;
    auto r = node.regions.find(id);
    if (!r) return false;
    last = id;
    used.push_back(std::move(r));
    return true;
  };
  for (const auto& pair : t.slices)
    if (!use(pair.local.region))
      return fail(ec::not_found, "no local region " + to_string(pair.local.region));
  for (const auto& r : used) ++r->uses;
  return used;
}

void data_plane::impl::refuse(const transfer& what, completion_handler& on_done, error why) {
  node.deliver([on_done = std::move(on_done),
                c = completion{.id = what.id, .outcome = fail(std::move(why))}] { on_done(c); });
}

void data_plane::impl::submit(transfer what, completion_handler on_done) {
  if (const auto ok = check(what); !ok) return refuse(what, on_done, ok.error());
  const auto peer = node.peers.find(what.peer);
  const auto seen_by = [&](const landing_log& log) {
    return log.look(what.peer, peer ? peer->address.incarnation : 0, what.id) == landing_log::state::landed;
  };
  what.repeated = what.op == transfer_op::write && seen_by(tried);
  if (what.op == transfer_op::write && seen_by(delivered)) {
    node.deliver([on_done = std::move(on_done), id = what.id] { on_done({.id = id, .outcome = {}}); });
    return;
  }
  auto paths = paths_to(what.peer);
  if (paths.empty())
    return refuse(what, on_done, {ec::unavailable, "no path to node " + to_string(what.peer)});
  auto o = std::make_shared<order>();
  o->submitted = clock_type::now();
  o->paths = std::move(paths);
  std::optional<error> no;
  {
    std::lock_guard lock{mutex};
    if (stopping) no = error{ec::cancelled, "the data plane stops"};
    else if (orders.size() >= node.options.max_transfers)
      no = error{ec::overloaded, std::to_string(orders.size()) + " transfers are under way"};
    else if (orders.contains(what.id))
      no = error{ec::already_exists, "transfer " + to_string(what.id) + " is under way"};
    else if (auto uses = use_regions(what); !uses) no = uses.error();
    else {
      o->uses = std::move(*uses);
      orders[what.id] = o;
    }
  }
  if (no) return refuse(what, on_done, *no);
  o->what = std::move(what);
  o->on_done = std::move(on_done);
  attempt(o);
}

void data_plane::impl::attempt(const std::shared_ptr<order>& o) {
  transport* t = nullptr;
  {
    std::lock_guard lock{mutex};
    t = o->paths.front();
    o->paths.erase(o->paths.begin());
    o->current = t;
  }
  t->submit(o->what, [this, o](const completion& c) { attempt_ended(o, c); });
  bool cancelled = false;
  {
    // A cancel that came before the path knew the transfer found nothing there.
    std::lock_guard lock{mutex};
    cancelled = o->cancelled && o->current == t;
  }
  if (cancelled) t->cancel(o->what.id);
}

void data_plane::impl::attempt_ended(const std::shared_ptr<order>& o, completion c) {
  bool again = false;
  const auto now = clock_type::now();
  const auto code = c.outcome ? ec::none : c.outcome.error().code;
  const bool link_unusable =
      code == ec::unavailable || code == ec::unauthenticated || code == ec::incompatible;
  {
    std::lock_guard lock{mutex};
    o->current = nullptr;
    o->unfenced |= !c.fenced;
    if (link_unusable) avoided_until[{o->what.peer, c.path}] = now + node.options.retry_after;
    // A NIC cannot tell late bytes of an unfenced attempt from those of the next.
    again = !c.outcome && (c.fenced || c.path != transfer_path::rdma) && is_path_failure(code) &&
            !o->paths.empty() && !o->cancelled && !stopping && now < o->what.deadline &&
            node.peers.find(o->what.peer);
  }
  if (!c.outcome) node.stats.update(o->what.peer, c.path, [](path_stats& s) { ++s.failures; });
  if (!again) return finish(o, std::move(c));
  node.stats.update(o->what.peer, o->paths.front()->path(), [](path_stats& s) { ++s.retries; });
  o->what.repeated = true;
  attempt(o);
}

void data_plane::impl::finish(const std::shared_ptr<order>& o, completion c) {
  c.id = o->what.id;
  c.seconds = to_seconds(clock_type::now() - o->submitted);
  // A peer that took a later attempt has dropped the links of the earlier ones.
  c.fenced = c.outcome.has_value() || !o->unfenced;
  count(*o, c);
  if (o->what.op == transfer_op::write) {
    const auto peer = node.peers.find(o->what.peer);
    (c.outcome ? delivered : tried).finish(o->what.peer, peer ? peer->address.incarnation : 0, c.id, true);
  }
  {
    std::lock_guard lock{mutex};
    for (const auto& r : o->uses) --r->uses;
    orders.erase(c.id);
  }
  node.deliver([on_done = std::move(o->on_done), c = std::move(c)] { on_done(c); });
}

void data_plane::impl::count(const order& o, const completion& c) {
  if (!c.outcome) return;
  node.stats.update(o.what.peer, c.path, [&](path_stats& s) {
    ++s.transfers;
    (o.what.op == transfer_op::write ? s.bytes_written : s.bytes_read) += c.bytes;
    s.latency.add(c.seconds);
  });
}

void data_plane::submit(transfer what, completion_handler on_done) {
  impl_->submit(std::move(what), std::move(on_done));
}

void data_plane::cancel(transfer_id id) {
  transport* t = nullptr;
  {
    std::lock_guard lock{impl_->mutex};
    const auto it = impl_->orders.find(id);
    if (it == impl_->orders.end()) return;
    it->second->cancelled = true;
    t = it->second->current;
  }
  if (t) t->cancel(id);
}

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
