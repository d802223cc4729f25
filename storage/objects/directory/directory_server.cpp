#include "storage/objects/directory/directory_server.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "runtime/base/wall_clock.hpp"
#include "storage/objects/wire/unix_endpoint.hpp"
#include "transport/shm/ring_stream.hpp"

namespace mooncaf {

namespace {
const link_identity directory_identity{link_kind::store, store_wire::directory_node, 0, 0, {}, 0};
/// Answers that a client does not take: it is not read any more until it does.
constexpr std::size_t unsent_max = 8 * MiB;
/// Journal bytes that a holder of a segment has not taken: beyond it the holder is given up.
constexpr std::size_t untold_max = 256 * MiB;
}  // namespace

// The port is taken first: the process that has it is the directory at this address, and may open its notes.
result<std::unique_ptr<directory_server>> directory_server::start(directory_server_options options) {
  const auto at = resolve_tcp(options.host, options.port);
  if (!at) return fail(at.error());
  const bool listens = options.table.shard.index == 0;
  auto listener = listens ? listen_tcp(*at) : result<unique_fd>{unique_fd{}};
  if (!listener)
    return fail(listener.error().code,
                options.host + ":" + std::to_string(options.port) + ": " + listener.error().detail);
  const auto seed = make_random_u64();
  if (!seed) return fail(seed.error());
  options.table.seed = *seed;
  for (const auto& t : options.tenants) options.table.tenants.emplace_back(t.name, t.limit);
  // Shards begin one after the other, the first last: no two have the same number.
  const auto& shard = options.table.shard;
  options.table.first_ticket =
      std::max(wall_clock_us(), options.numbers_from + 1) + (shard.count - 1 - shard.index);
  auto notes = options.state_folder.empty()
                   ? result<std::unique_ptr<disk_notes>>{std::make_unique<disk_notes>(*seed | 1)}
                   : disk_notes::open(options.state_folder, *seed | 1);
  if (!notes) return fail(notes.error());
  std::unique_ptr<directory_server> made{new directory_server(std::move(options), std::move(*notes))};
  made->core_.know(made->options_.newest);
  made->listener_ = std::move(*listener);
  if (listens) {
    made->port_ = bound_port(made->listener_.get());
    made->open_unix_endpoint(*at);
  }
  auto loop = event_loop::start({"directory",
                                 [self = made.get()] { return self->tick(); },
                                 made.get(),
                                 {},
                                 short_wait::between_questions});
  if (!loop) return fail(loop.error());
  made->loop_ = std::move(*loop);
  if (const auto& commons = made->options_.table.commons)
    commons->wake_by(made->options_.table.shard.index,
                     [self = made.get()] { self->loop_->post([self] { self->hear_others(); }); });
  made->loop_->run([self = made.get()] {
    for (const int fd : {self->listener_.get(), self->near_.get()})
      if (fd >= 0)
        self->loop_->add(fd, EPOLLIN,
                         [self, fd](std::uint32_t) { self->accept_all(fd, fd == self->near_.get()); });
  });
  return made;
}

/// Made anew when the cluster's secret has changed.
const std::shared_ptr<const directory_server::known_keys>& directory_server::keys() {
  auto all = options_.secret.accepted();
  const auto cluster = all.size();
  if (keys_ && keys_->cluster == cluster && std::equal(all.begin(), all.end(), keys_->all.begin()))
    return keys_;
  for (const auto& t : options_.tenants) all.push_back(t.key);
  const std::vector<tls_key> tls(all.begin(), all.end());
  keys_ = std::make_shared<const known_keys>(
      known_keys{cluster, std::move(all), std::make_shared<const std::vector<tls_key>>(tls)});
  return keys_;
}

/// A tenant's clients pass the endpoints of segments by a key that is made of the cluster's secret. When that changes
/// they connect again and are told another.
void directory_server::renew_tenants() {
  if (options_.tenants.empty()) return;
  const auto before = std::exchange(tenants_by_, keys()->all.front());
  if (before.empty() || before == tenants_by_) return;
  for (const auto& [session, c] : by_session_)
    if (c->tenant) c->stream->shutdown();
}

directory_server::~directory_server() {
  if (const auto& commons = options_.table.commons) commons->wake_by(options_.table.shard.index, {});
  if (loop_) loop_->stop();
}

/// Without this socket, as where another process has taken the name, all clients come over TCP.
void directory_server::open_unix_endpoint(const socket_address& at) {
  const auto name = unix_endpoint(at, port_, true);
  if (!name) return;
  if (const auto address = unix_address(*name))
    if (auto opened = listen_unix(*address, SOCK_STREAM)) near_ = std::move(*opened);
}

// A handshake is prepared for each connection; which secret it proves is found out while it speaks.
void directory_server::accept_all(int listener, bool near) {
  for (;;) {
    unique_fd fd{::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!fd) return;
    if (!may_serve(clock_type::now())) continue;  // at the next seat there may be one that does
    if (!near) tune_tcp(fd.get(), options_.lost_after);
    const auto nonce = make_nonce();
    if (!nonce) return;
    const auto& known = keys();
    auto made =
        std::make_unique<connection>(connection{std::make_unique<socket_stream>(std::move(fd)),
                                                0,
                                                known,
                                                handshake::acceptor(known->all, *nonce, directory_identity),
                                                nullptr,
                                                clock_type::now(),
                                                0,
                                                {},
                                                {},
                                                0,
                                                EPOLLIN,
                                                false,
                                                false,
                                                near ? way::near : way::unheard,
                                                false,
                                                false,
                                                false});
    auto* const c = made.get();
    c->token =
        loop_->add(c->stream->fd(), EPOLLIN, [this, c](std::uint32_t events) { on_events(*c, events); });
    connections_.emplace(c->token, std::move(made));
  }
}

void directory_server::on_events(connection& c, std::uint32_t events) {
  // A handshake of TLS that waits to write goes on by reading.
  const bool in = (events & (c.by == way::tls && c.session == 0 ? EPOLLIN | EPOLLOUT : EPOLLIN)) != 0;
  if (c.ring) heat(c);
  c.stream->woken(in);
  if (!in && (events & (EPOLLERR | EPOLLHUP)) != 0) return lose(c);
  serve(c, in);
}

void directory_server::serve(connection& c, bool came) {
  bool alive = true;
  if (came && unsent(c) < unsent_max) {
    alive = read(c);
    deliver();  // may drop others, never this one
    if (alive && c.wanted) return hand_over(c.token);
  }
  if (alive || c.ended) alive = write(c) && !c.ended;
  if (!alive) return lose(c);
  if (c.stream->pending()) heat(c);
  watch(c);
}

void directory_server::lose(const connection& c) {
  drop(c.token);
  deliver();
}

// ---- rings, and other streams with bytes of which no descriptor tells ----

/// The answer is the last that goes over the socket, and takes the memory along.
bool directory_server::share(connection& c, std::uint64_t number) {
  if (c.by != way::near || c.ring || !c.out.empty()) return false;
  std::vector<std::byte> answer;
  const int at = c.stream->fd();
  auto made = ring_stream::make(c.stream);
  {
    store_wire::frame out{answer, number, store_wire::op::ring};
    out->put(static_cast<std::uint8_t>(made.has_value()));
  }
  if (!made) {
    c.out = std::move(answer);
    return true;
  }
  c.stream = std::move(made->stream);
  c.ring = true;
  core_.wakes_on_purpose(c.session);
  heat(c);
  const int memory = made->memory.get();
  return send_packet(at, answer, {&memory, 1}) == packet_status::ok;
}

void directory_server::heat(connection& c) {
  c.stirred = true;
  if (!std::exchange(c.hot, true)) hot_.push_back(&c);
}

bool directory_server::poll() {
  bool some = false;
  for (auto i = hot_.size(); i-- > 0;) {
    auto& c = *hot_[i];
    if (!c.stream->pending() || unsent(c) >= unsent_max) continue;
    some = c.stirred = true;
    serve(c, true);  // others may go, too
    i = std::min(i, hot_.size());
  }
  return some;
}

void directory_server::arm() {
  for (auto* c : hot_) c->stream->settle();
}

void directory_server::disarm() {
  for (auto* c : hot_) c->stream->woken(false);
}

/// A connection that had nothing for a while is not looked at any more, and has to wake this thread.
void directory_server::cool() {
  const auto last = std::remove_if(hot_.begin(), hot_.end(), [](connection* c) {
    if (std::exchange(c->stirred, false) || !c->stream->settle()) return false;
    c->hot = false;
    return true;
  });
  hot_.erase(last, hot_.end());
}

// ---- shards ----

void directory_server::hear_others() {
  const auto& table = options_.table;
  for (const auto& message : table.commons->take_messages(table.shard.index))
    core_.hear(message, clock_type::now());
  deliver();
}

/// Bytes that are still to be written go along; nothing is left that the client said and that was not
/// answered.
void directory_server::hand_over(std::uint64_t token) {
  const auto found = connections_.find(token);
  loop_->remove(token);
  const std::shared_ptr<connection> one = std::move(found->second);
  connections_.erase(found);
  if (std::exchange(one->hot, false)) hot_.erase(std::find(hot_.begin(), hot_.end(), one.get()));
  auto* const to = one->wanted;
  to->loop_->post([to, one] { to->adopt(std::make_unique<connection>(std::move(*one))); });
}

void directory_server::adopt(std::unique_ptr<connection> one) {
  auto& c = *one;
  c.wanted = nullptr;
  c.session = core_.open(c.tenant ? c.tenant->name : std::string{});
  by_session_[c.session] = &c;
  c.token = loop_->add(c.stream->fd(), EPOLLIN, [this, &c](std::uint32_t events) { on_events(c, events); });
  c.watched = EPOLLIN;
  const auto token = c.token;
  connections_.emplace(token, std::move(one));
  if (!write(c)) return drop(token);
  if (c.stream->pending()) heat(c);
  watch(c);
}

void directory_server::watch(connection& c) {
  static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT);
  const auto left = unsent(c);
  const auto wanted = static_cast<short>((left < unsent_max ? POLLIN : 0) | (left > 0 ? POLLOUT : 0));
  const auto events = static_cast<std::uint32_t>(c.stream->events(wanted));
  if (std::exchange(c.watched, events) != events) loop_->modify(c.token, events);
}

void directory_server::deliver() {
  core_.deliver([&](const directory_core::outgoing& what) {
    const auto found = by_session_.find(what.session);
    if (found == by_session_.end()) return;
    auto& c = *found->second;
    if (!may_serve(clock_type::now())) return c.stream->shutdown();
    c.out.insert(c.out.end(), what.bytes.begin(), what.bytes.end());
    // A connection that cannot be written to any more is dropped by its own events.
    if (!write(c) || unsent(c) > untold_max) c.stream->shutdown();
    if (what.urgent) c.stream->wake();
    watch(c);
  });
}

/// Looks at the first bytes of a connection, and leaves them there.
bool directory_server::hear(connection& c) {
  std::byte first[2];
  const auto n = ::recv(c.stream->fd(), first, sizeof(first), MSG_PEEK);
  if (n <= 0) return true;  // `receive` reports the error
  c.by = tls_stream::begins(std::span{first}.first(static_cast<std::size_t>(n))) ? way::tls : way::outdated;
  if (c.by == way::outdated) return true;
  auto made = tls_stream::server(c.stream, c.keys->tls);
  if (made) c.stream = std::move(*made);
  return made.has_value();
}

// One read, then every whole question is answered: questions that a client sends without waiting are one
// batch here.
bool directory_server::read(connection& c) {
  if (c.by == way::unheard && !hear(c)) return false;
  const auto got = c.stream->receive(chunk_);
  if (got.at != link_stream::state::ok) return got.at == link_stream::state::again;
  const std::span fresh{chunk_.data(), got.bytes};
  auto left = std::span<const std::byte>{fresh};
  const bool joined = !c.in.empty();
  if (joined) {
    c.in.insert(c.in.end(), fresh.begin(), fresh.end());
    left = c.in;
  }
  while (!c.ended && !c.wanted && !left.empty()) {
    const auto before = left.size();
    if (!take(c, left)) return false;
    if (left.size() == before) break;
  }
  if (joined) c.in.erase(c.in.begin(), c.in.end() - static_cast<std::ptrdiff_t>(left.size()));
  else c.in.assign(left.begin(), left.end());
  return true;
}

/// A client of an older version knows how to say that ours is another one.
bool directory_server::turn_away(connection& c, std::span<const std::byte>& left) const {
  if (left.size() < store_wire::header_bytes) return true;
  const auto header = store_wire::parse_header(left.first<store_wire::header_bytes>());
  if (!header || header->what != store_wire::op::hello) return false;
  if (left.size() < store_wire::header_bytes + header->payload_bytes) return true;
  left = {};
  c.ended = true;
  store_wire::frame out{c.out, header->number, store_wire::op::hello};
  out->put(options_.newest);
  return true;
}

/// Takes one message off the front of `left`, if it is whole.
bool directory_server::take(connection& c, std::span<const std::byte>& left) {
  if (c.session == 0) {
    if (c.proved) return turn_away(c, left);
    const auto want = c.shake.want();
    if (left.size() < want) return true;
    const auto message = left.first(want);
    left = left.subspan(want);
    return shake(c, message);
  }
  if (left.size() < store_wire::header_bytes) return true;
  const auto header = store_wire::parse_header(left.first<store_wire::header_bytes>());
  if (!header) return false;
  if (left.size() < store_wire::header_bytes + header->payload_bytes) return true;
  const auto payload = left.subspan(store_wire::header_bytes, header->payload_bytes);
  left = left.subspan(store_wire::header_bytes + header->payload_bytes);
  if (header->what == store_wire::op::ring)
    return payload.empty() && left.empty() && share(c, header->number);
  const auto begin = clock_type::now();
  if (!may_serve(begin)) return false;
  const bool understood = core_.answer(c.session, *header, payload, begin, c.out);
  core_.worked(header->what, clock_type::now() - begin);
  return understood;
}

bool directory_server::shake(connection& c, std::span<const std::byte> message) {
  auto step = c.shake.feed(message);
  if (!step) return false;
  if (step->at == handshake::progress::identified && c.by == way::outdated) {
    step = c.shake.admit();
    c.proved = true;
  } else if (step->at == handshake::progress::identified) {
    // A client must not pass on another's proof under a key of its own.
    const auto owner = [&](std::size_t key) { return c.keys->tenant(options_.tenants, key); };
    c.tenant = owner(c.shake.known());
    if (c.by == way::tls && owner(static_cast<const tls_stream&>(*c.stream).known_key()) != c.tenant)
      return false;
    const auto& peer = c.shake.peer();
    const auto shard = peer.wanted_node == store_wire::directory_node ? peer.wanted_incarnation : shards_max;
    if (shard < options_.shards.size()) c.wanted = options_.shards[shard];
    const bool ours = shard == 0;
    step = ours || c.wanted ? c.shake.admit() : c.shake.refuse(ec::incompatible);
    if (ours) by_session_[c.session = core_.open(c.tenant ? c.tenant->name : std::string{})] = &c;
    c.ended = !ours && !c.wanted;
  }
  c.out.insert(c.out.end(), step->answer.begin(), step->answer.end());
  return true;
}

bool directory_server::write(connection& c) {
  while (c.sent < c.out.size()) {
    const auto sent = c.stream->send(std::span{c.out}.subspan(c.sent));
    if (sent.at != link_stream::state::ok) return sent.at == link_stream::state::again;
    c.sent += sent.bytes;
  }
  c.out.clear();
  c.sent = 0;
  return true;
}

void directory_server::drop(std::uint64_t token) {
  const auto found = connections_.find(token);
  if (found == connections_.end()) return;
  loop_->remove(token);
  if (found->second->session != 0) {
    by_session_.erase(found->second->session);
    // Connections that end with the right tell nothing of their holders.
    const auto now = clock_type::now();
    if (may_serve(now)) core_.close(found->second->session, now);
  }
  if (found->second->hot) hot_.erase(std::find(hot_.begin(), hot_.end(), found->second.get()));
  connections_.erase(found);
}

bool directory_server::tick() {
  const auto now = clock_type::now();
  if (!may_serve(now)) {  // whoever only listens looks for another directory
    for (const auto& [token, c] : connections_) c->stream->shutdown();
    return true;
  }
  core_.tick(now);
  renew_tenants();
  std::vector<std::uint64_t> late;
  for (const auto& [token, c] : connections_)
    if (c->session == 0 && now - c->since > options_.greeting) late.push_back(token);
  for (const auto token : late) drop(token);
  deliver();
  cool();
  return true;
}

}  // namespace mooncaf
