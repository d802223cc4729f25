#include "transport/rdma/rdma_transport.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>

#include "transport/net/socket.hpp"

namespace mooncaf {
namespace {

constexpr std::size_t newcomers_max =
    256;  // so many sockets wait for their handshake at most, each for `connect_timeout`
constexpr std::size_t incoming_max = 4096;

}  // namespace

rdma_transport::rdma_transport(node_state& node, discovery found, rail_topology topology)
    : node_(node),
      shared_{.node = node,
              .rails = std::move(found.rails),
              .memory = rdma_memory{std::move(found.devices)},
              .topology = std::move(topology)} {}

// A host without a usable rail is no error: it has other paths, and the notes name the missing part.
result<std::unique_ptr<rdma_transport>> rdma_transport::start(node_state& node,
                                                              std::vector<std::string>& notes) {
  const auto& o = node.options.rdma;
  auto topology = rail_topology::make(read_nic_places(o.sysfs_root), o.topology);
  if (!topology) return fail(topology.error());
  auto found = discover(o);
  notes = found.left_out;
  if (found.rails.empty()) {
    notes.push_back("no usable RDMA device: this node offers no RDMA path");
    return nullptr;
  }
  std::unique_ptr<rdma_transport> t{new rdma_transport(node, std::move(found), std::move(*topology))};
  t->shared_.figures.resize(t->shared_.rails.size());
  for (std::size_t i = 0; i < t->shared_.rails.size(); ++i) {
    const auto& r = *t->shared_.rails[i];
    notes.push_back(r.name() + ": " + to_string(r.location.address.gid) + (r.up ? ", up" : ", down"));
    t->shared_.figures.update(i, [&](rail_stats& s) {
      s.name = r.name();
      s.address = to_string(r.location.address.gid);
    });
  }
  if (const auto ok = t->listen(); !ok) return fail(ok.error());
  return t;
}

result<void> rdma_transport::listen() {
  const auto at = resolve_tcp(node_.options.listen_host, 0);
  if (!at) return fail(at.error());
  auto listener = listen_tcp(*at);
  if (!listener) return fail(listener.error());
  listener_ = std::move(*listener);
  port_ = bound_port(listener_.get());
  event_loop::options o{"rdma", [this] { return tick(); }, this, shared_.options().poll_spin};
  auto loop = event_loop::start(std::move(o));
  if (!loop) return fail(loop.error());
  loop_ = std::move(*loop);
  loop_->run([this] {
    shared_.loop = loop_.get();
    loop_->add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_all(); });
    watch_devices();
  });
  return {};
}

rdma_transport::~rdma_transport() {
  if (!loop_) return;
  loop_->run([this] { stop(); });
  loop_->stop();
}

void rdma_transport::stop() {
  stopping_ = true;
  const error why{ec::cancelled, "the data plane stops"};
  for (const auto& l : std::vector{ending_}) l->end_now(why);
  std::vector<std::shared_ptr<rdma_outbound>> links;
  for (const auto& [node, l] : outgoing_) links.push_back(l);
  for (const auto& l : links) l->end_now(why);
  for (const auto& l : std::vector{incoming_}) l->end(why);
  for (const auto& n : std::exchange(newcomers_, {})) n.link->kill(why);
  take_submissions();
}

// ---- this host's rails ----

std::vector<rdma_rail_address> rdma_transport::rail_addresses() const {
  std::vector<rdma_rail_address> all;
  for (const auto& r : shared_.rails) all.push_back(r->location.address);
  return all;
}

std::vector<rail_stats> rdma_transport::rail_figures() const {
  auto all = shared_.figures.all();
  for (std::size_t i = 0; i < all.size(); ++i) all[i].up = shared_.rails[i]->up;
  return all;
}

transport_capabilities rdma_transport::capabilities(node_id peer) const {
  const auto info = node_.peers.find(peer);
  transport_capabilities c;
  c.usable =
      info && info->address.rdma_port != 0 && !info->address.rdma_rails.empty() &&
      std::any_of(shared_.rails.begin(), shared_.rails.end(), [](const auto& r) { return r->up.load(); });
  c.one_sided_write = true;
  c.one_sided_read = true;
  c.needs_registration = true;
  c.remote_notify = true;
  c.device_memory = true;
  c.max_slice_bytes = shared_.options().slice_bytes;
  return c;
}

// No blob: peers ask for the keys with the region's access key, so that only peers which were told of the
// region get them.
result<std::vector<std::byte>> rdma_transport::register_region(region_id id) {
  const auto region = node_.regions.find(id);
  if (!region) return fail(ec::not_found, "no local region " + to_string(id));
  const auto registered = shared_.memory.add(*region);
  for (std::size_t i = 0; i < shared_.rails.size(); ++i) {
    const auto& why = registered->refusals[shared_.memory.device_number(*shared_.rails[i]->device)];
    if (!why.empty()) shared_.figures.update(i, [&](rail_stats& s) { s.last_error = why; });
  }
  return std::vector<std::byte>{};
}

result<void> rdma_transport::reaches(region_id local) const {
  const auto registered = shared_.memory.find(local);
  if (registered && registered->reachable()) return {};
  return fail(ec::unsupported, registered ? registered->why_not() : "it was unregistered");
}

// The keys die here: a peer that still uses one breaks its queue pair and asks anew.
result<void> rdma_transport::unregister_region(region_id id) {
  loop_->run([&] { shared_.memory.remove(id); });
  return {};
}

void rdma_transport::watch_devices() {
  for (const auto& d : shared_.memory.devices()) {
    loop_->add(d->events->fd, EPOLLIN, [d](std::uint32_t) {
      ::ibv_cq* queue = nullptr;
      void* context = nullptr;
      while (::ibv_get_cq_event(d->events.get(), &queue, &context) == 0) ::ibv_ack_cq_events(queue, 1);
    });
    loop_->add(d->context->async_fd, EPOLLIN, [this, d](std::uint32_t) { on_device_event(*d); });
  }
}

void rdma_transport::on_device_event(rdma_device& device) {
  ::ibv_async_event event{};
  bool ports = false;
  while (::ibv_get_async_event(device.context.get(), &event) == 0) {
    ports |= event.event_type != IBV_EVENT_COMM_EST;
    ::ibv_ack_async_event(&event);
  }
  if (ports) refresh_ports(device);
}

void rdma_transport::refresh_ports(const rdma_device& device) {
  for (const auto& r : shared_.rails) {
    if (r->device.get() != &device) continue;
    ::ibv_port_attr port{};
    const bool up =
        ::ibv_query_port(device.context.get(), r->port, &port) == 0 && port.state == IBV_PORT_ACTIVE;
    if (r->up.exchange(up) == up) continue;
    std::vector<std::shared_ptr<rdma_outbound>> links;
    for (const auto& [node, l] : outgoing_) links.push_back(l);
    for (const auto& l : links) l->port_changed(*r);
  }
}

// ---- outgoing ----

void rdma_transport::submit(transfer what, completion_handler on_done) {
  if (submissions_.put(std::move(what), std::move(on_done))) loop_->post([this] { take_submissions(); });
}

void rdma_transport::take_submissions() {
  for (auto& s : submissions_.take()) {
    auto link = link_to(s.what.peer);
    if (link) (*link)->submit(std::move(s.what), std::move(s.on_done));
    else s.on_done({.id = s.what.id, .outcome = fail(link.error()), .path = transfer_path::rdma});
  }
}

result<std::shared_ptr<rdma_outbound>> rdma_transport::link_to(node_id peer) {
  if (stopping_) return fail(ec::cancelled, "the data plane stops");
  const auto info = node_.peers.find(peer);
  if (!info) return fail(ec::not_found, "no peer " + to_string(peer));
  if (const auto it = outgoing_.find(peer); it != outgoing_.end()) {
    if (it->second->update(info)) {
      pool_.touch(peer);
      return it->second;
    }
    it->second->end({ec::peer_lost, "node " + to_string(peer) + " was announced anew"});
  }
  if (const auto ok = make_room(); !ok) return fail(ok.error());
  const auto forget = [this](rdma_outbound& l) {
    const auto it = outgoing_.find(l.peer());
    if (it == outgoing_.end() || it->second.get() != &l) return;
    ending_.push_back(it->second);
    pool_.erase(l.peer());
    outgoing_.erase(it);
  };
  const auto over = [this](rdma_outbound& l) {
    std::erase_if(ending_, [&](const auto& e) { return e.get() == &l; });
  };
  auto link = std::make_shared<rdma_outbound>(shared_, info, forget, over);
  if (const auto ok = link->open(); !ok) return fail(ok.error());
  outgoing_[peer] = link;
  pool_.touch(peer);
  return link;
}

// Above the cap an idle link gives way; where all are busy, other paths serve new peers.
result<void> rdma_transport::make_room() {
  if (outgoing_.size() < shared_.options().max_links) return {};
  const auto victim = pool_.evict([&](node_id n) {
    const auto it = outgoing_.find(n);
    return it != outgoing_.end() && it->second->idle();
  });
  if (!victim)
    return fail(ec::unavailable, "all " + std::to_string(outgoing_.size()) + " RDMA links are busy");
  const auto link = outgoing_.at(*victim);
  link->end({ec::peer_lost, "the link made room for another peer"});
  return {};
}

void rdma_transport::cancel(transfer_id id) {
  loop_->post([this, id] {
    take_submissions();
    std::vector<std::shared_ptr<rdma_outbound>> links;
    for (const auto& [node, l] : outgoing_) links.push_back(l);
    for (const auto& l : links) l->cancel(id);
  });
}

void rdma_transport::connect(node_id peer) {
  loop_->post([this, peer] { [[maybe_unused]] const auto link = link_to(peer); });
}

void rdma_transport::disconnect(node_id peer) {
  loop_->run([&] {
    const auto it = outgoing_.find(peer);
    if (it == outgoing_.end()) return;
    const auto link = it->second;
    link->end({ec::peer_lost, "this node dropped its links to node " + to_string(peer)});
  });
}

// ---- incoming ----

void rdma_transport::accept_all() {
  for (;;) {
    unique_fd fd{::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!fd) return;
    const auto nonce = make_nonce();
    if (!nonce || stopping_ || newcomers_.size() >= newcomers_max) continue;
    tune_tcp(fd.get(), node_.options.peer_timeout);
    const link_identity self{link_kind::rdma, node_.options.node, node_.incarnation, 0, {}, 0};
    auto link = std::make_shared<tcp_link>(
        *loop_, std::move(fd), handshake::acceptor(node_.options.cluster_secret.accepted(), *nonce, self),
        [this](tcp_link& l, const link_identity& p) { return admit(l, p); });
    newcomers_.push_back({link, clock_type::now()});
    link->start();
  }
}

// A new session of a node ends its old ones first: nothing still on its way in them lands after a repetition.
result<std::shared_ptr<tcp_link_owner>> rdma_transport::admit(tcp_link& link, const link_identity& peer) {
  if (peer.wanted_node != node_.options.node || peer.wanted_incarnation != node_.incarnation)
    return fail(ec::peer_lost, "a peer looks for another node, or for a former life of this one");
  const auto self = std::find_if(newcomers_.begin(), newcomers_.end(),
                                 [&](const newcomer& n) { return n.link.get() == &link; });
  if (self == newcomers_.end() || stopping_) return fail(ec::timed_out, "the handshake took too long");
  if (!node_.peers.admits(peer.node, peer.incarnation)) return fail(ec::unavailable, "this node is kept out");
  if (incoming_.size() >= incoming_max) return fail(ec::overloaded, "too many RDMA links");
  for (const auto& old : std::vector{incoming_})
    if (old->peer().node == peer.node) old->end({ec::peer_lost, "replaced by a newer session"});
  auto session = std::make_shared<rdma_inbound>(shared_, peer, [this](rdma_inbound& ended) {
    std::erase_if(incoming_, [&](const auto& s) { return s.get() == &ended; });
  });
  incoming_.push_back(session);
  const auto owner = session->attach(self->link);
  newcomers_.erase(self);
  return std::static_pointer_cast<tcp_link_owner>(owner);
}

void rdma_transport::incarnations_of(node_id node, std::set<std::uint64_t>& out) {
  loop_->run([&] {
    for (const auto& s : incoming_)
      if (s->peer().node == node) out.insert(s->peer().incarnation);
  });
}

result<void> rdma_transport::close(node_id peer) {
  disconnect(peer);
  // Runs on the thread that admits, and after the ban: no link of the peer is admitted behind it.
  loop_->run([&] {
    for (const auto& s : std::vector{incoming_})
      if (s->peer().node == peer) s->end({ec::peer_lost, "this node is kept out"});
  });
  return {};
}

// ---- the loop ----

bool rdma_transport::poll() {
  bool worked = false;
  // The lists are copied, as a link may end while it works.
  std::vector<std::shared_ptr<rdma_outbound>> links;
  for (const auto& [node, l] : outgoing_) links.push_back(l);
  for (const auto& l : links) worked |= l->poll();
  for (const auto& l : std::vector{incoming_}) worked |= l->poll();
  return worked;
}

void rdma_transport::arm() {
  for (const auto& [node, l] : outgoing_) l->arm();
  for (const auto& l : incoming_) l->arm();
}

bool rdma_transport::tick() {
  const auto now = clock_type::now();
  bool busy = false;
  std::vector<std::shared_ptr<rdma_outbound>> links{ending_};
  for (const auto& [node, l] : outgoing_) links.push_back(l);
  for (const auto& l : links) busy |= l->tick(now);
  std::erase_if(newcomers_, [&](const newcomer& n) {
    const bool late = now - n.since > node_.options.connect_timeout;
    if (late) n.link->kill({ec::timed_out, "the handshake took too long"});
    return late || n.link->dead();
  });
  return busy || !newcomers_.empty();
}

}  // namespace mooncaf
