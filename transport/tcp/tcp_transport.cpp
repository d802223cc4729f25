#include "transport/tcp/tcp_transport.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>

namespace mooncaf {
namespace {

constexpr std::size_t newcomers_max =
    256;  // so many sockets wait for their handshake at most, each for `connect_timeout`

}  // namespace

result<std::unique_ptr<tcp_transport>> tcp_transport::start(node_state& node) {
  std::unique_ptr<tcp_transport> t{new tcp_transport(node)};
  const auto at = resolve_tcp(node.options.listen_host, node.options.data_port);
  if (!at) return fail(at.error());
  auto listener = listen_tcp(*at);
  if (!listener)
    return fail(listener.error().code, "data port " + node.options.listen_host + ":" +
                                           std::to_string(node.options.data_port) + ": " +
                                           listener.error().detail);
  t->listener_ = std::move(*listener);
  t->port_ = bound_port(t->listener_.get());
  for (unsigned i = 0; i < node.options.tcp_threads; ++i) {
    event_loop::options o{"tcp-" + std::to_string(i), {}, nullptr, {}};
    if (i == 0) o.on_tick = [self = t.get()] { return self->tick(); };
    auto loop = event_loop::start(std::move(o));
    if (!loop) return fail(loop.error());
    std::lock_guard lock{t->mutex_};
    t->loops_.push_back(std::move(*loop));
  }
  t->loops_[0]->run([self = t.get()] {
    self->loops_[0]->add(self->listener_.get(), EPOLLIN, [self](std::uint32_t) { self->accept_all(); });
  });
  return t;
}

tcp_transport::~tcp_transport() {
  std::vector<std::shared_ptr<tcp_inbound>> incoming;
  std::vector<newcomer> newcomers;
  {
    std::lock_guard lock{mutex_};
    stopping_ = true;
    incoming = incoming_;
    newcomers.swap(newcomers_);
  }
  const error why{ec::cancelled, "the data plane stops"};
  for (const auto& s : sessions()) s->end(why);
  for (const auto& s : incoming) s->end(why);
  for (const auto& n : newcomers) n.link->kill(why);
  for (const auto& l : loops_) l->stop();
}

transport_capabilities tcp_transport::capabilities(node_id peer) const {
  const auto info = node_.peers.find(peer);
  transport_capabilities c;
  c.usable = info && info->tcp.size > 0;
  c.remote_notify = true;
  c.max_slice_bytes = node_.options.slice_bytes;
  return c;
}

result<std::vector<std::byte>> tcp_transport::register_region(region_id) { return std::vector<std::byte>{}; }

// The region is no longer in the table: no new frame can reach it. Frames on their way are cut off.
result<void> tcp_transport::unregister_region(region_id id) {
  std::vector<std::shared_ptr<tcp_inbound>> incoming;
  {
    std::lock_guard lock{mutex_};
    incoming = incoming_;
  }
  for (const auto& s : incoming) s->end_if_using(id);
  return {};
}

// ---- outgoing ----

std::vector<std::shared_ptr<tcp_session>> tcp_transport::sessions() const {
  std::lock_guard lock{mutex_};
  std::vector<std::shared_ptr<tcp_session>> all;
  for (const auto& [node, s] : outgoing_) all.push_back(s);
  return all;
}

result<std::shared_ptr<tcp_session>> tcp_transport::session_to(node_id peer) {
  const auto info = node_.peers.find(peer);
  if (!info) return fail(ec::not_found, "no peer " + to_string(peer));
  std::shared_ptr<tcp_session> stale;
  std::shared_ptr<tcp_session> session;
  {
    std::lock_guard lock{mutex_};
    if (stopping_) return fail(ec::cancelled, "the data plane stops");
    auto& slot = outgoing_[peer];
    if (slot && slot->update(info)) return slot;
    stale = slot;
    session = std::make_shared<tcp_session>(node_, info, [this](tcp_session& ended) {
      std::lock_guard inner{mutex_};
      const auto it = outgoing_.find(ended.peer());
      if (it != outgoing_.end() && it->second.get() == &ended) outgoing_.erase(it);
    });
    slot = session;
    if (const auto opened = session->open(loops_); !opened) {
      outgoing_.erase(peer);
      return fail(opened.error());
    }
  }
  if (stale) stale->end({ec::peer_lost, "node " + to_string(peer) + " was announced anew"});
  return session;
}

void tcp_transport::submit(transfer what, completion_handler on_done) {
  // A session may end between finding it and using it; a second one is then as good as the first attempt.
  result<void> taken;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto session = session_to(what.peer);
    taken = session ? (*session)->submit(what, on_done) : fail(session.error());
    if (taken) return;
  }
  on_done({.id = what.id, .outcome = std::move(taken), .path = transfer_path::tcp});
}

void tcp_transport::cancel(transfer_id id) {
  for (const auto& s : sessions()) s->cancel(id);
}

void tcp_transport::connect(node_id peer) { [[maybe_unused]] const auto session = session_to(peer); }

void tcp_transport::disconnect(node_id peer) {
  for (const auto& s : sessions())
    if (s->peer() == peer) s->end({ec::peer_lost, "this node dropped its links to node " + to_string(peer)});
}

// ---- incoming ----

void tcp_transport::accept_all() {
  for (;;) {
    unique_fd fd{::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!fd) return;
    const auto nonce = make_nonce();
    if (!nonce) continue;
    tune_tcp(fd.get(), node_.options.peer_timeout);
    bound_send_buffer(fd.get(), node_.options.tcp_send_buffer);
    const link_identity self{link_kind::tcp, node_.options.node, node_.incarnation, 0, {}, 0};
    std::shared_ptr<tcp_link> link;
    {
      std::lock_guard lock{mutex_};
      if (stopping_ || newcomers_.size() >= newcomers_max) continue;
      auto& loop = *loops_[next_loop_++ % loops_.size()];
      link = std::make_shared<tcp_link>(
          loop, std::move(fd), handshake::acceptor(node_.options.cluster_secret.accepted(), *nonce, self),
          [this](tcp_link& l, const link_identity& p) { return admit(l, p); });
      newcomers_.push_back({link, clock_type::now()});
    }
    link->start();
  }
}

// On the link's thread, without its lock. A new session of a node ends its old ones first, so that nothing
// that is still on its way in them lands after a repetition of it did.
result<std::shared_ptr<tcp_link_owner>> tcp_transport::admit(tcp_link& link, const link_identity& peer) {
  if (peer.wanted_node != node_.options.node || peer.wanted_incarnation != node_.incarnation)
    return fail(ec::peer_lost, "a peer looks for another node, or for a former life of this one");
  std::vector<std::shared_ptr<tcp_inbound>> old;
  std::shared_ptr<tcp_inbound> session;
  {
    std::lock_guard lock{mutex_};
    const auto self = std::find_if(newcomers_.begin(), newcomers_.end(),
                                   [&](const newcomer& n) { return n.link.get() == &link; });
    if (self == newcomers_.end() || stopping_) return fail(ec::timed_out, "the handshake took too long");
    // Under the lock that `close` takes after its ban: either it sees the session, or we see the ban.
    if (!node_.peers.admits(peer.node, peer.incarnation))
      return fail(ec::unavailable, "this node is kept out");
    for (const auto& s : incoming_) {
      if (s->peer().node != peer.node) continue;
      if (s->peer().session == peer.session && s->peer().incarnation == peer.incarnation) session = s;
      else old.push_back(s);
    }
    if (!session) {
      session = std::make_shared<tcp_inbound>(node_, peer, [this](tcp_inbound& ended) {
        std::lock_guard inner{mutex_};
        std::erase_if(incoming_, [&](const auto& s) { return s.get() == &ended; });
      });
      incoming_.push_back(session);
    }
    if (!session->add(self->link)) return fail(ec::peer_lost, "the session is over");
    newcomers_.erase(self);
  }
  for (const auto& s : old) s->end({ec::peer_lost, "replaced by a newer session"});
  return std::static_pointer_cast<tcp_link_owner>(session);
}

void tcp_transport::incarnations_of(node_id node, std::set<std::uint64_t>& out) {
  std::lock_guard lock{mutex_};
  for (const auto& s : incoming_)
    if (s->peer().node == node) out.insert(s->peer().incarnation);
}

result<void> tcp_transport::close(node_id peer) {
  disconnect(peer);
  std::vector<std::shared_ptr<tcp_inbound>> ending;
  {
    std::lock_guard lock{mutex_};
    for (const auto& s : incoming_)
      if (s->peer().node == peer) ending.push_back(s);
  }
  for (const auto& s : ending) s->end({ec::peer_lost, "this node is kept out"});
  return {};
}

bool tcp_transport::tick() {
  const auto now = clock_type::now();
  std::vector<std::shared_ptr<tcp_link>> late;
  bool busy = false;
  {
    std::lock_guard lock{mutex_};
    for (auto it = newcomers_.begin(); it != newcomers_.end();) {
      const bool too_late = now - it->since > node_.options.connect_timeout;
      if (too_late) late.push_back(it->link);
      it = too_late || it->link->dead() ? newcomers_.erase(it) : it + 1;
    }
    busy = !newcomers_.empty();
  }
  for (const auto& l : late) l->kill({ec::timed_out, "the handshake took too long"});
  for (const auto& s : sessions()) busy |= s->tick(now);
  return busy;
}

}  // namespace mooncaf
