#include "storage/objects/segment/segment_endpoint.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <vector>

#include "runtime/base/hash.hpp"
#include "transport/copy/stream_copy.hpp"
#include "transport/net/handshake.hpp"
#include "transport/net/patient_socket.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {

namespace {
/// Connections that have not said yet which tenant's they are.
constexpr std::size_t strangers_max = 32;
constexpr std::size_t chunk_bytes = 256 * KiB;  // memory that each connection keeps
constexpr auto greeting_limit = std::chrono::seconds(5), progress_limit = std::chrono::seconds(30);
/// The segment may hear the directory's news later than a client. A client that needs an answer after that
/// asks again.
constexpr auto journal_limit = std::chrono::milliseconds(500);
}  // namespace

std::span<std::byte> segment_endpoint::connection::step(std::uint64_t left) {
  const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(left, chunk_bytes));
  if (chunk.size() < bytes) chunk.resize(bytes);
  return std::span{chunk}.first(bytes);
}

result<std::unique_ptr<segment_endpoint>> segment_endpoint::open(key_ring store_key, const std::string& host,
                                                                 std::uint16_t port, shared_ledger& ledger) {
  const auto at = resolve_tcp(host, port);
  if (!at) return fail(at.error());
  auto listener = listen_tcp(*at);
  if (!listener)
    return fail(listener.error().code,
                "endpoint at " + host + ":" + std::to_string(port) + ": " + listener.error().detail);
  std::unique_ptr<segment_endpoint> made{new segment_endpoint(std::move(store_key), ledger)};
  made->listener_ = std::move(*listener);
  made->port_ = bound_port(made->listener_.get());
  auto loop = event_loop::start({"seg-endpoint", {}, nullptr, {}});
  if (!loop) return fail(loop.error());
  made->loop_ = std::move(*loop);
  made->loop_->run([self = made.get()] {
    self->loop_->add(self->listener_.get(), EPOLLIN, [self](std::uint32_t) { self->accept_all(); });
  });
  return made;
}

segment_endpoint::~segment_endpoint() {
  if (loop_) loop_->stop();
  for (auto& v : connections_) ::shutdown(v.fd.get(), SHUT_RDWR);
  for (auto& v : connections_) v.thread.join();
}

void segment_endpoint::accept_all() {
  for (;;) {
    unique_fd fd{::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!fd) return;
    std::lock_guard lock{connections_mutex_};
    std::erase_if(connections_, [](connection& v) {
      if (!v.over) return false;  // asked once: it may be over the next moment
      v.thread.join();
      return true;
    });
    turn_out_slowest();
    if (connections_.size() >= 2 * connections_max + strangers_max)
      continue;  // so many connections take their time to leave
    tune_tcp(fd.get(), progress_limit);
    auto& v = connections_.emplace_back();
    v.fd = std::move(fd);
    v.thread = std::thread{[this, &v] {
      serve(v);
      ::shutdown(v.fd.get(), SHUT_RDWR);
      v.over = true;
    }};
  }
}

/// Makes room for a connection that has not said yet which tenant's it is. Under the mutex.
void segment_endpoint::turn_out_slowest() {
  connection* slowest = nullptr;
  std::size_t strangers = 0;
  for (auto& v : connections_) {
    if (!v.tenant.empty() || v.leaving || v.over) continue;
    ++strangers;
    if (!slowest) slowest = &v;
  }
  if (strangers < strangers_max) return;
  slowest->leaving = true;
  ::shutdown(slowest->fd.get(), SHUT_RDWR);
}

/// Gives a connection of this tenant a place. @returns false if no tenant has noticeably more of them.
bool segment_endpoint::admit(connection& v, const std::string& tenant) {
  std::lock_guard lock{connections_mutex_};
  if (v.leaving) return false;
  std::map<std::string, std::size_t> places;
  std::size_t taken = 0;
  for (const auto& o : connections_) {
    if (o.tenant.empty() || o.leaving || o.over) continue;
    ++places[o.tenant];
    ++taken;
  }
  if (taken >= connections_max) {
    const auto own = places[tenant];
    const auto most = std::max_element(places.begin(), places.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most->second <= own + 1) return false;
    connection* goes = nullptr;  // a connection between questions, if there is one; the others end their
                                 // answer first
    for (auto& o : connections_)
      if (o.tenant == most->first && !o.leaving && !o.over && (!goes || (goes->asks && !o.asks))) goes = &o;
    goes->leaving = true;
    if (!goes->asks) ::shutdown(goes->fd.get(), SHUT_RDWR);
  }
  v.tenant = tenant;
  return true;
}

/// @returns false if the connection is over.
bool segment_endpoint::set_asking(connection& v, bool asks) {
  std::lock_guard lock{connections_mutex_};
  v.asks = asks;
  return !v.leaving;
}

result<endpoint_wire::greeting> segment_endpoint::greet(int fd) {
  const auto until = clock_type::now() + greeting_limit;
  std::array<std::byte, endpoint_wire::greeting_bytes> said;
  if (auto got = receive_whole(fd, said, until); !got) return fail(got.error());
  const auto who = endpoint_wire::parse_greeting(said);
  if (!who) return fail(ec::corrupt, "no greeting");
  const auto nonce = make_nonce();
  if (!nonce) return fail(nonce.error());
  const link_identity self{link_kind::store, endpoint_wire::endpoint_node, 0, 0, {}, 0};
  auto keys = store_key_.accepted();
  for (auto& key : keys) key = endpoint_wire::endpoint_key(key, *who);
  auto shake = handshake::acceptor(std::move(keys), *nonce, self);
  for (;;) {
    std::vector<std::byte> message(shake.want());
    if (auto got = receive_whole(fd, message, until); !got) return fail(got.error());
    auto step = shake.feed(message);
    if (!step) return fail(step.error());
    const bool last = step->at == handshake::progress::identified;
    if (last) step = shake.admit();
    if (auto sent = send_whole(fd, step->answer, until); !sent) return fail(sent.error());
    if (last) return *who;
  }
}

void segment_endpoint::serve(connection& v) {
  const int fd = v.fd.get();
  const auto who = greet(fd);
  if (!who || !admit(v, who->tenant)) return;
  for (;;) {
    std::array<std::byte, endpoint_wire::request_bytes> asked;
    // Between two questions a client may take as long as it likes.
    if (!receive_whole(fd, asked, clock_type::now() + std::chrono::hours(24))) return;
    const auto request = endpoint_wire::parse_request(asked);
    if (!request || !set_asking(v, true)) return;
    // Tenants that a later directory does not let in are not let in here.
    const auto served_by = ledger_.with([](segment_ledger& l) { return l.former().served_by; });
    if (who->incarnation < served_by) return;
    if (!answer(v, who->tenant, *request)) return;
    if (!set_asking(v, false)) return;
  }
}

/// @returns false if the connection is of no use any more.
bool segment_endpoint::answer(connection& v, const std::string& tenant, const endpoint_wire::request& r) {
  switch (r.what) {
    case endpoint_wire::op::read:
      return read(v, tenant, r);
    case endpoint_wire::op::write:
      return write(v, tenant, r);
    case endpoint_wire::op::look: {
      endpoint_wire::answer a;
      a.code = ledger_.look(tenant, r.offset, r.bytes, clock_type::now() + journal_limit, a.checksum);
      return send_whole(v.fd.get(), endpoint_wire::encode(a), clock_type::now() + progress_limit).has_value();
    }
  }
  return false;
}

bool segment_endpoint::send_as_it_lies(int fd, std::span<const std::byte> bytes,
                                       std::optional<std::uint64_t> known) {
  const auto sum = known ? *known : cold_checksum(bytes.data(), bytes.size());
  for (auto left = bytes; !left.empty();) {
    const auto now = left.first(std::min(left.size(), chunk_bytes));
    if (!send_whole(fd, now, clock_type::now() + progress_limit)) return false;
    left = left.subspan(now.size());
  }
  return send_whole(fd, endpoint_wire::encode({store_code::ok, sum}), clock_type::now() + progress_limit)
      .has_value();
}

/// Step by step, so that the client takes bytes while the next are looked at. None leaves before it was.
bool segment_endpoint::read(connection& v, const std::string& tenant, const endpoint_wire::request& r) {
  const int fd = v.fd.get();
  if (r.bytes > endpoint_wire::read_bytes_max) return false;
  auto part = ledger_.begin_read(tenant, r.offset, r.bytes, clock_type::now() + journal_limit);
  const auto until = [] { return clock_type::now() + progress_limit; };
  if (!send_whole(fd, endpoint_wire::encode({part.code, 0}), until())) return false;
  if (part.code != store_code::ok) return true;
  if (tenant == endpoint_wire::everyone) return send_as_it_lies(fd, ledger_.bytes_of(part), part.checksum);
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (std::uint64_t at = 0; at < r.bytes;) {
    const auto now = v.step(r.bytes - at);
    if (part.code == store_code::ok) part.code = ledger_.read(part, at, now);
    // So many bytes were promised; the answer behind them says that they are not the object's.
    if (part.code != store_code::ok) std::fill(now.begin(), now.end(), std::byte{0});
    else if (!part.checksum) XXH3_64bits_update(&hash, now.data(), now.size());
    if (!send_whole(fd, now, until())) return false;
    at += now.size();
  }
  const endpoint_wire::answer a{part.code, part.checksum ? *part.checksum : XXH3_64bits_digest(&hash)};
  return send_whole(fd, endpoint_wire::encode(a), until()).has_value();
}

bool segment_endpoint::write(connection& v, const std::string& tenant, const endpoint_wire::request& r) {
  const int fd = v.fd.get();
  auto part = ledger_.begin_write(tenant, r.offset, r.bytes, clock_type::now() + journal_limit);
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (std::uint64_t at = 0; at < r.bytes;) {
    const auto now = v.step(r.bytes - at);
    if (!receive_whole(fd, now, clock_type::now() + progress_limit)) return false;
    // Bytes that belong to no reservation are read all the same, since the answer stands behind them.
    if (part.code == store_code::ok && !ledger_.write(part, at, now)) part.code = store_code::not_found;
    XXH3_64bits_update(&hash, now.data(), now.size());
    at += now.size();
  }
  if (part.code == store_code::ok) ledger_.end(part);
  const endpoint_wire::answer a{part.code, XXH3_64bits_digest(&hash)};
  return send_whole(fd, endpoint_wire::encode(a), clock_type::now() + progress_limit).has_value();
}

}  // namespace mooncaf
