#include "storage/objects/segment/descriptor_endpoint.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>

#include "transport/net/socket.hpp"

namespace mooncaf {

namespace {
constexpr node_id owner_node{3}, client_node{4};
}

result<std::unique_ptr<descriptor_endpoint>> descriptor_endpoint::open(key_ring secret, int fd) {
  std::unique_ptr<descriptor_endpoint> made{new descriptor_endpoint(std::move(secret), fd)};
  const auto number = make_random_u64();
  if (!number) return fail(number.error());
  made->name_ = "@mooncaf-segment-" + std::to_string(*number);
  const auto at = unix_address(made->name_);
  if (!at) return fail(at.error());
  auto listener = listen_unix(*at);
  if (!listener) return fail(listener.error());
  made->listener_ = std::move(*listener);
  auto loop = event_loop::start({"seg-descriptors", {}, nullptr, {}});
  if (!loop) return fail(loop.error());
  made->loop_ = std::move(*loop);
  made->loop_->run([self = made.get()] {
    self->loop_->add(self->listener_.get(), EPOLLIN, [self](std::uint32_t) { self->accept_all(); });
  });
  return made;
}

descriptor_endpoint::~descriptor_endpoint() {
  if (loop_) loop_->stop();
}

void descriptor_endpoint::accept_all() {
  constexpr std::size_t connections_max = 256;
  for (;;) {
    unique_fd fd{::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!fd) return;
    const auto nonce = make_nonce();
    if (!nonce || !same_user(fd.get()) || connections_.size() >= connections_max) continue;
    const link_identity self{link_kind::store, owner_node, 0, 0, {}, 0};
    auto made = std::make_unique<connection>(
        connection{std::move(fd), handshake::acceptor(secret_.accepted(), *nonce, self)});
    auto* const v = made.get();
    const auto token = std::make_shared<std::uint64_t>(0);
    *token = loop_->add(v->fd.get(), EPOLLIN, [this, v, token](std::uint32_t) {
      if (serve(*v)) return;
      loop_->remove(*token);
      connections_.erase(*token);
    });
    connections_.emplace(*token, std::move(made));
  }
}

bool descriptor_endpoint::serve(connection& v) {
  std::vector<std::byte> message;
  std::vector<unique_fd> none;
  const auto got = receive_packet(v.fd.get(), message, none);
  if (got != packet_status::ok) return got == packet_status::again;
  auto step = v.shake.feed(message);
  if (!step) return false;
  if (step->at != handshake::progress::identified)
    return send_packet(v.fd.get(), step->answer) == packet_status::ok;
  if (v.shake.peer().wanted_node != owner_node) {
    send_packet(v.fd.get(), v.shake.refuse(ec::incompatible).answer);
    return false;
  }
  const int handed[] = {fd_};
  send_packet(v.fd.get(), v.shake.admit().answer, handed);
  return false;  // the process has the descriptor that it came for
}

// The other side proves that it knows the secret before its descriptor is mapped, since values are written
// to that memory.
result<std::unique_ptr<mapped_segment>> mapped_segment::map(const std::string& name,
                                                            const std::string& secret, time_point until) {
  const auto at = unix_address(name);
  if (!at) return fail(at.error());
  auto fd = connect_unix(*at);
  if (!fd) return fail(fd.error());
  if (!same_user(fd->get())) return fail(ec::unauthenticated, "another user's process answers at " + name);
  const auto nonce = make_nonce();
  if (!nonce) return fail(nonce.error());
  const link_identity self{link_kind::store, client_node, 0, 0, owner_node, 0};
  auto shake = handshake::initiator(secret, *nonce, self);
  auto next = shake.opening();
  std::vector<unique_fd> handed;
  for (bool done = false; !done;) {
    if (send_packet(fd->get(), next) != packet_status::ok)
      return fail(ec::peer_lost, "segment at " + name + " is gone");
    std::vector<std::byte> message;
    auto got = packet_status::again;
    while ((got = receive_packet(fd->get(), message, handed)) == packet_status::again) {
      ::pollfd one{fd->get(), POLLIN, 0};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock_type::now()).count();
      if (left <= 0) return fail(ec::timed_out, "segment at " + name + " does not answer");
      ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left, 1000)));
    }
    if (got == packet_status::closed)
      return fail(ec::peer_lost, "segment at " + name + " closed the connection");
    auto step = shake.feed(message);
    if (!step) return fail(step.error());
    done = step->at == handshake::progress::done;
    next = std::move(step->answer);
  }
  struct ::stat about {};
  if (handed.size() != 1 || ::fstat(handed[0].get(), &about) != 0 || about.st_size <= 0)
    return fail(ec::corrupt, "segment at " + name + " handed out no memory");
  const auto size = static_cast<std::size_t>(about.st_size);
  void* const base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, handed[0].get(), 0);
  if (base == MAP_FAILED)
    return fail(ec::io_error, "cannot map a segment of " + std::to_string(size) + " bytes: " + errno_text());
  ::madvise(base, size,
            MADV_DONTFORK);  // a forked child has no connection, so it shall not have the memory either
  ::madvise(base, size, MADV_DONTDUMP);
  return std::unique_ptr<mapped_segment>{new mapped_segment({static_cast<std::byte*>(base), size})};
}

mapped_segment::~mapped_segment() {
  filler_.reset();
  ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace mooncaf
