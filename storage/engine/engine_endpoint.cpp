#include "storage/engine/engine_endpoint.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "transport/net/bytes.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {

namespace {

constexpr node_id asked_node{1}, asking_node{2};
constexpr std::uint16_t first_port = 15000, ports = 2000;
constexpr std::size_t connections_max = 1024, question_bytes_max = 64 * KiB;
constexpr duration greeting_limit = std::chrono::seconds(10);  ///< a peer that takes longer is turned away

/// The connection of an engine that asks, with waits.
class caller {
 public:
  caller(unique_fd fd, time_point until) : fd_(std::move(fd)), until_(until) {}

  result<void> connected() {
    if (auto ok = wait(POLLOUT); !ok) return ok;
    if (const int why = connect_error(fd_.get()); why != 0) return fail(ec::peer_lost, errno_text(why));
    return {};
  }
  result<void> send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n >= 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
      else if (errno == EAGAIN) {
        if (auto ok = wait(POLLOUT); !ok) return ok;
      } else if (errno != EINTR) return fail(ec::peer_lost, errno_text());
    }
    return {};
  }
  result<std::vector<std::byte>> receive(std::size_t size) {
    std::vector<std::byte> all(size);
    for (std::size_t at = 0; at < size;) {
      const auto n = ::recv(fd_.get(), all.data() + at, size - at, 0);
      if (n > 0) at += static_cast<std::size_t>(n);
      else if (n == 0) return fail(ec::peer_lost, "it closed the connection");
      else if (errno == EAGAIN) {
        if (auto ok = wait(POLLIN); !ok) return fail(ok.error());
      } else if (errno != EINTR) return fail(ec::peer_lost, errno_text());
    }
    return all;
  }

 private:
  result<void> wait(short events) {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_ - clock_type::now()).count();
      if (left <= 0) return fail(ec::timed_out, "no answer");
      ::pollfd one{fd_.get(), events, 0};
      const int n = ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
      if (n > 0 || (n < 0 && errno != EINTR)) return {};
    }
  }
  unique_fd fd_;
  time_point until_;
};

result<std::vector<std::byte>> converse(caller& line, const key_ring& secret,
                                        const engine_wire::question& q) {
  if (auto ok = line.connected(); !ok) return fail(ok.error());
  const auto nonce = make_nonce();
  if (!nonce) return fail(nonce.error());
  auto shake =
      handshake::initiator(secret.own(), *nonce, {link_kind::engine, asking_node, 0, 0, asked_node, 0});
  if (auto sent = line.send(shake.opening()); !sent) return fail(sent.error());
  for (bool done = false; !done;) {
    const auto message = line.receive(shake.want());
    if (!message && shake.proof_sent() && message.error() == ec::peer_lost)
      return fail(ec::unauthenticated, "it closed the connection: this process has another cluster secret");
    if (!message) return fail(message.error());
    const auto step = shake.feed(*message);
    if (!step) return fail(step.error());
    if (auto sent = line.send(step->answer); !sent) return fail(sent.error());
    done = step->at == handshake::progress::done;
  }
  if (auto sent = line.send(engine_wire::encode(q)); !sent) return fail(sent.error());
  const auto head = line.receive(4);
  if (!head) return fail(head.error());
  const auto size = byte_reader{*head}.get<std::uint32_t>();
  if (size > engine_wire::message_bytes_max) return fail(ec::corrupt, "its answer is no answer");
  return line.receive(size);
}

}  // namespace

result<std::vector<std::byte>> ask_engine(const std::string& host, std::uint16_t port, const key_ring& secret,
                                          const engine_wire::question& q, time_point until) {
  const auto named = [&](const error& e) {
    return fail(e.code, "engine " + host + ":" + std::to_string(port) + ": " + e.detail);
  };
  const auto at = resolve_tcp(host, port);
  if (!at) return named(at.error());
  auto fd = connect_tcp(*at);
  if (!fd) return named(fd.error());
  caller line{std::move(*fd), until};
  auto answer = converse(line, secret, q);
  if (!answer) return named(answer.error());
  return answer;
}

result<std::unique_ptr<engine_endpoint>> engine_endpoint::open(const std::string& host, std::uint16_t port,
                                                               key_ring secret, answers hooks) {
  std::unique_ptr<engine_endpoint> made{new engine_endpoint(std::move(secret), std::move(hooks))};
  if (auto ok = made->listen(host, port); !ok) return fail(ok.error());
  auto loop = event_loop::start({"engine", [self = made.get()] { return self->drop_late(); }, nullptr, {}});
  if (!loop) return fail(loop.error());
  made->loop_ = std::move(*loop);
  made->loop_->run([self = made.get()] {
    self->loop_->add(self->listener_.get(), EPOLLIN, [self](std::uint32_t) { self->accept_all(); });
  });
  return made;
}

result<void> engine_endpoint::listen(const std::string& host, std::uint16_t port) {
  const auto seed = make_random_u64();
  if (!seed) return fail(seed.error());
  error why;
  for (std::uint16_t i = 0; i < (port == 0 ? ports : 1); ++i) {
    const auto wanted = port != 0 ? port : static_cast<std::uint16_t>(first_port + (*seed + i) % ports);
    const auto at = resolve_tcp(host, wanted);
    if (!at) return fail(at.error());
    auto opened = listen_tcp(*at);
    if (opened) {
      listener_ = std::move(*opened);
      port_ = bound_port(listener_.get());
      return {};
    }
    why = {opened.error().code, host + ":" + std::to_string(wanted) + ": " + opened.error().detail};
  }
  return fail(why);
}

engine_endpoint::~engine_endpoint() {
  if (loop_) loop_->stop();
}

void engine_endpoint::accept_all() {
  for (;;) {
    unique_fd fd{::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!fd) return;
    const auto nonce = make_nonce();
    if (!nonce || connections_.size() >= connections_max) continue;
    tune_tcp(fd.get(), greeting_limit);
    auto made = std::make_unique<connection>(connection{
        std::move(fd),
        0,
        handshake::acceptor(secret_.accepted(), *nonce, {link_kind::engine, asked_node, 0, 0, {}, 0}),
        clock_type::now(),
        false,
        {},
        {},
        0});
    auto* const v = made.get();
    v->token = loop_->add(v->fd.get(), EPOLLIN, [this, v](std::uint32_t events) {
      if (serve(*v, events)) return;
      const auto token = v->token;
      loop_->remove(token);
      connections_.erase(token);
    });
    connections_.emplace(v->token, std::move(made));
  }
}

/// @returns false when the connection is to go.
bool engine_endpoint::serve(connection& v, std::uint32_t events) {
  if ((events & EPOLLIN) && !read(v)) return false;
  if ((events & (EPOLLERR | EPOLLHUP)) && !(events & EPOLLIN)) return false;
  if (!write(v)) return false;
  loop_->modify(v.token, v.out.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
  return true;
}

bool engine_endpoint::read(connection& v) {
  std::byte chunk[16 * KiB];
  const auto got = ::recv(v.fd.get(), chunk, sizeof chunk, 0);
  if (got == 0) return false;
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  v.in.insert(v.in.end(), chunk, chunk + got);
  return take(v);
}

/// Takes the whole messages from the bytes that came.
bool engine_endpoint::take(connection& v) {
  while (!v.believed) {
    const auto want = v.shake.want();
    if (v.in.size() < want) return true;
    auto step = v.shake.feed(std::span{v.in}.first(want));
    if (!step) return false;
    v.in.erase(v.in.begin(), v.in.begin() + static_cast<std::ptrdiff_t>(want));
    if (step->at == handshake::progress::identified) {
      if (v.shake.peer().wanted_node != asked_node) return false;
      step = v.shake.admit();
      v.believed = true;
    }
    v.out.insert(v.out.end(), step->answer.begin(), step->answer.end());
  }
  if (v.in.size() < 4) return true;
  const auto size = byte_reader{v.in}.get<std::uint32_t>();
  if (size > question_bytes_max) return false;
  if (v.in.size() < 4 + size) return true;
  const auto q = engine_wire::parse(std::span{v.in}.subspan(4, size));
  if (!q) return false;
  v.in.erase(v.in.begin(), v.in.begin() + 4 + static_cast<std::ptrdiff_t>(size));
  std::vector<std::byte> answer;
  if (q->what == engine_wire::op::describe) answer = hooks_.describe();
  else hooks_.notify(q->name, q->text);
  byte_writer out{v.out};
  out.put(static_cast<std::uint32_t>(answer.size()));
  out.put_bytes(answer);
  return true;
}

bool engine_endpoint::write(connection& v) {
  while (v.sent < v.out.size()) {
    const auto n = ::send(v.fd.get(), v.out.data() + v.sent, v.out.size() - v.sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    v.sent += static_cast<std::size_t>(n);
  }
  v.out.clear();
  v.sent = 0;
  return true;
}

/// @returns false: there is no hurry.
bool engine_endpoint::drop_late() {
  const auto now = clock_type::now();
  std::vector<std::uint64_t> late;
  for (const auto& [token, v] : connections_)
    if (now - v->since > greeting_limit) late.push_back(token);
  for (const auto token : late) {
    loop_->remove(token);
    connections_.erase(token);
  }
  return false;
}

}  // namespace mooncaf
