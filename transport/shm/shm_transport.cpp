#include "transport/shm/shm_transport.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <future>

#include "transport/net/socket.hpp"

namespace mooncaf {
namespace {

constexpr std::size_t shm_links_max = 1024;

bool is_path(const std::string& name) { return !name.empty() && name[0] != '@'; }

}  // namespace

result<std::unique_ptr<shm_transport>> shm_transport::start(node_state& node) {
  std::unique_ptr<shm_transport> t{new shm_transport(node)};
  const auto unique = "mooncaf-" + to_string(node.options.node) + "-" + std::to_string(node.incarnation);
  t->name_ =
      node.options.unix_socket_dir.empty() ? "@" + unique : node.options.unix_socket_dir + "/" + unique;
  const auto at = unix_address(t->name_);
  if (!at) return fail(at.error());
  auto listener = listen_unix(*at);
  if (!listener) return fail(ec::io_error, "Unix socket " + t->name_ + ": " + listener.error().detail);
  t->listener_ = std::move(*listener);
  auto loop =
      event_loop::start({"shm", [self = t.get()] { return self->tick(); }, t.get(), node.options.poll_spin});
  if (!loop) return fail(loop.error());
  // The loop may call `poll` before this; it finds nothing to poll.
  t->loop_ = std::move(*loop);
  t->loop_->run([self = t.get()] {
    self->loop_->add(self->listener_.get(), EPOLLIN, [self](std::uint32_t) { self->accept_all(); });
  });
  return t;
}

shm_transport::~shm_transport() {
  if (!loop_) return;
  const error why{ec::cancelled, "the data plane stops"};
  std::vector<std::shared_ptr<shm_inbound>> incoming;
  {
    std::lock_guard lock{incoming_mutex_};
    incoming = incoming_;
  }
  for (const auto& l : incoming) l->revoke(node_.options.close_timeout);
  loop_->run([&] {
    stopping_ = true;
    take_submissions();
    for (const auto& [node, l] : std::unordered_map{outgoing_}) l->end(why);
    for (const auto& l : std::vector{incoming_}) l->end(why);
  });
  loop_->stop();
  if (is_path(name_)) ::unlink(name_.c_str());
}

transport_capabilities shm_transport::capabilities(node_id peer) const {
  const auto info = node_.peers.find(peer);
  transport_capabilities c;
  c.usable = info && info->same_host;
  c.one_sided_write = true;
  c.one_sided_read = true;
  c.needs_shared_fd = true;
  c.remote_notify = true;
  c.max_slice_bytes = node_.options.slice_bytes;
  return c;
}

// ---- regions and fences ----

result<std::vector<std::byte>> shm_transport::register_region(region_id) { return std::vector<std::byte>{}; }

// A mapping cannot be taken back from another process: its link is, and the next one does not offer the
// region. Peers that took bytes from it let go of it when they hear of it; no transfer uses it any more.
result<void> shm_transport::unregister_region(region_id id) {
  loop_->run([&] {
    for (const auto& [node, l] : std::unordered_map{outgoing_}) l->withdraw(id);
  });
  std::vector<std::shared_ptr<shm_inbound>> links;
  {
    std::lock_guard lock{incoming_mutex_};
    for (const auto& l : incoming_)
      if (l->granted(id)) links.push_back(l);
  }
  return fence(links);
}

void shm_transport::incarnations_of(node_id node, std::set<std::uint64_t>& out) {
  std::lock_guard lock{incoming_mutex_};
  for (const auto& s : incoming_)
    if (s->peer() == node) out.insert(s->incarnation());
}

result<void> shm_transport::close(node_id peer) {
  disconnect(peer);
  std::vector<std::shared_ptr<shm_inbound>> links;
  {
    std::lock_guard lock{incoming_mutex_};
    for (const auto& l : incoming_)
      if (l->peer() == peer) links.push_back(l);
  }
  return fence(links);
}

result<void> shm_transport::fence(const std::vector<std::shared_ptr<shm_inbound>>& links) {
  result<void> outcome;
  for (const auto& l : links)
    if (!l->revoke(node_.options.close_timeout))
      outcome = fail(ec::timed_out, "node " + to_string(l->peer()) +
                                        " is in the middle of a copy and neither ends it nor dies; "
                                        "do not reuse what it was given");
  loop_->run([&] {
    for (const auto& l : links) l->end({ec::peer_lost, "this node revoked the link"});
  });
  return outcome;
}

// ---- outgoing ----

void shm_transport::submit(transfer what, completion_handler on_done) {
  if (submissions_.put(std::move(what), std::move(on_done))) loop_->post([this] { take_submissions(); });
}

void shm_transport::take_submissions() {
  for (auto& s : submissions_.take()) {
    auto link = link_to(s.what.peer);
    if (link) (*link)->submit(std::move(s.what), std::move(s.on_done));
    else s.on_done({.id = s.what.id, .outcome = fail(link.error()), .path = transfer_path::shm});
  }
}

result<std::shared_ptr<shm_outbound>> shm_transport::link_to(node_id peer) {
  const auto info = node_.peers.find(peer);
  if (!info) return fail(ec::not_found, "no peer " + to_string(peer));
  if (stopping_) return fail(ec::cancelled, "the data plane stops");
  if (const auto it = outgoing_.find(peer); it != outgoing_.end()) {
    const auto link = it->second;
    if (link->update(info)) return link;
    link->end({ec::peer_lost, "node " + to_string(peer) + " was announced anew"});
  }
  auto link = std::make_shared<shm_outbound>(node_, *loop_, info, [this](shm_outbound& ended) {
    const auto it = outgoing_.find(ended.peer());
    if (it != outgoing_.end() && it->second.get() == &ended) outgoing_.erase(it);
  });
  if (const auto opened = link->open(); !opened) return fail(opened.error());
  outgoing_[peer] = link;
  return link;
}

result<peer_view> shm_transport::map(node_id peer, region_id region, duration patience) {
  const auto info = node_.peers.find(peer);
  if (info && !info->same_host)
    return fail(ec::unsupported, "node " + to_string(peer) + " is on another host, or has no shared memory");
  auto told = std::make_shared<std::promise<result<peer_view>>>();
  auto there = told->get_future();
  loop_->post([this, peer, region, told] {
    if (auto link = link_to(peer))
      (*link)->view(region, [told](result<peer_view> v) { told->set_value(std::move(v)); });
    else told->set_value(fail(link.error()));
  });
  if (there.wait_for(patience) == std::future_status::ready) return there.get();
  return fail(ec::timed_out, "node " + to_string(peer) + " does not answer over shared memory");
}

void shm_transport::cancel(transfer_id id) {
  loop_->post([this, id] {
    take_submissions();
    for (const auto& [node, l] : std::unordered_map{outgoing_}) l->cancel(id);
  });
}

void shm_transport::connect(node_id peer) {
  loop_->post([this, peer] { [[maybe_unused]] const auto link = link_to(peer); });
}

void shm_transport::disconnect(node_id peer) {
  loop_->run([this, peer] {
    take_submissions();
    const auto it = outgoing_.find(peer);
    if (it == outgoing_.end()) return;
    const auto link = it->second;
    link->end({ec::peer_lost, "this node dropped its links to node " + to_string(peer)});
  });
}

// ---- incoming ----

void shm_transport::accept_all() {
  for (;;) {
    unique_fd fd{::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!fd) return;
    const auto nonce = make_nonce();
    if (!same_user(fd.get()) || !nonce || incoming_.size() >= shm_links_max) continue;
    const auto admit = [this](const link_identity& who) -> result<void> {
      if (who.wanted_node != node_.options.node || who.wanted_incarnation != node_.incarnation)
        return fail(ec::peer_lost, "a peer looks for another node, or for a former life of this one");
      if (!node_.peers.admits(who.node, who.incarnation))
        return fail(ec::unavailable, "this node is kept out");
      return {};
    };
    const auto ended = [this](shm_inbound& gone) {
      std::lock_guard lock{incoming_mutex_};
      std::erase_if(incoming_, [&](const auto& l) { return l.get() == &gone; });
    };
    auto link = std::make_shared<shm_inbound>(
        node_, *loop_, std::move(fd),
        handshake::acceptor(node_.options.cluster_secret.accepted(), *nonce,
                            {link_kind::shm, node_.options.node, node_.incarnation, 0, {}, 0}),
        admit, ended);
    {
      std::lock_guard lock{incoming_mutex_};
      incoming_.push_back(link);
    }
    link->start();
  }
}

// ---- the loop ----

// A link that works may add or remove links: the lists are walked by index or as a copy, and a link that is
// skipped once has its turn in the next poll.
bool shm_transport::poll() {
  bool busy = false;
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    const auto link = incoming_[i];
    busy |= link->poll();
  }
  if (outgoing_.empty()) return busy;
  polled_.clear();
  for (const auto& [node, l] : outgoing_) polled_.push_back(l);
  for (const auto& l : polled_) busy |= l->poll();
  polled_.clear();
  return busy;
}

void shm_transport::arm() {
  for (const auto& l : incoming_) l->arm();
  for (const auto& [node, l] : outgoing_) l->arm();
}

void shm_transport::disarm() {
  for (const auto& l : incoming_) l->disarm();
  for (const auto& [node, l] : outgoing_) l->disarm();
}

bool shm_transport::tick() {
  const auto now = clock_type::now();
  bool busy = false;
  for (const auto& l : std::vector{incoming_}) {
    if (l->established()) continue;
    busy = true;
    if (now - l->since() > node_.options.connect_timeout)
      l->end({ec::timed_out, "the handshake took too long"});
  }
  for (const auto& [node, l] : std::unordered_map{outgoing_}) busy |= l->tick(now);
  return busy;
}

}  // namespace mooncaf
