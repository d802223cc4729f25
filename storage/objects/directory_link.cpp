#include "storage/objects/directory_link.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "storage/objects/directory_server.hpp"
#include "storage/objects/near_door.hpp"
#include "transport/net/handshake.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {

namespace {

/// @returns false at the limit.
bool wait_for(int fd, short events, time_point until) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock_type::now()).count();
    if (left <= 0) return false;
    ::pollfd one{fd, events, 0};
    const int n = ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (n > 0 || (n < 0 && errno != EINTR)) return true;
  }
}

}  // namespace

result<std::shared_ptr<directory_link>> directory_link::connect(const directory_address& to) {
  const auto named = [&](const error& e) {
    return fail(e.code, "directory " + to.host + ":" + std::to_string(to.port) + ": " + e.detail);
  };
  const auto until = clock_type::now() + to.connect_limit;
  const auto at = resolve_tcp(to.host, to.port);
  if (!at) return named(at.error());
  if (auto made = from_near(to, *at, until)) return made;
  auto fd = connect_tcp(*at);
  if (!fd) return named(fd.error());
  if (!wait_for(fd->get(), POLLOUT, until)) return named({ec::timed_out, "no answer"});
  if (const int why = connect_error(fd->get()); why != 0) return named({ec::peer_lost, errno_text(why)});
  tune_tcp(fd->get(), std::min<duration>(to.time_limit, std::chrono::seconds(30)));
  auto made = over(std::move(*fd), to, until);
  if (!made) return named(made.error());
  return made;
}

/// Where it fails somebody else may have taken the door's name, and TCP says what is wrong.
result<std::shared_ptr<directory_link>> directory_link::from_near(const directory_address& to,
                                                                  const socket_address& at,
                                                                  time_point until) {
  const auto name = near_door(at, to.port, false);
  if (!name) return fail(ec::not_found, "another host");
  const auto door = unix_address(*name);
  if (!door) return fail(door.error());
  auto fd = connect_unix(*door, SOCK_STREAM);
  if (!fd) return fail(fd.error());
  if (!same_user(fd->get())) return fail(ec::unauthenticated, "another user's process");
  auto made = over(std::move(*fd), to, std::min(until, clock_type::now() + std::chrono::seconds(1)));
  if (made) (*made)->near_ = true;
  return made;
}

result<std::shared_ptr<directory_link>> directory_link::over(unique_fd fd, const directory_address& to,
                                                             time_point until) {
  std::shared_ptr<directory_link> made{new directory_link(std::move(fd), to.time_limit, to.spin)};
  if (auto ok = made->greet(to, until); !ok) return fail(ok.error());
  return made;
}

result<void> directory_link::greet(const directory_address& to, time_point until) {
  const auto nonce = make_nonce();
  if (!nonce) return fail(nonce.error());
  const link_identity self{link_kind::store, directory_client_node, 0, 0, directory_node, 0};
  auto shake = handshake::initiator(to.secret, *nonce, self);
  if (auto sent = send_all(shake.opening(), until); !sent) return sent;
  for (bool done = false; !done;) {
    std::vector<std::byte> message(shake.want());
    if (auto got = receive(message, until); !got) {
      if (shake.proof_sent() && got.error() == ec::peer_lost)
        return fail(ec::unauthenticated,
                    "it closed the connection: this process has another cluster secret, or a token that it "
                    "does not know");
      return got;
    }
    const auto step = shake.feed(message);
    if (!step) return fail(step.error());
    if (auto sent = send_all(step->answer, until); !sent) return sent;
    done = step->at == handshake::progress::done;
  }
  const auto hello = ask_and_wait(store_wire::op::hello, [&](byte_writer& out) {
    out.put(store_wire::version);
    out.put_text(to.own_host);
    out.put(static_cast<std::uint8_t>(to.everyone));
  });
  if (!hello) return fail(hello.error());
  byte_reader in{*hello};
  const auto version = in.get<std::uint32_t>();
  incarnation_ = in.get<std::uint64_t>();
  welcome_ = store_wire::get_welcome(in);
  if (version == store_wire::version && in.ok()) return {};
  return fail(ec::incompatible, "it speaks version " + std::to_string(version) +
                                    " of the store's protocol, this process " +
                                    std::to_string(store_wire::version));
}

result<void> directory_link::send_all(std::span<const std::byte> bytes, time_point until) {
  while (!bytes.empty()) {
    const auto n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      if (!wait_for(fd_.get(), POLLOUT, until)) return fail(ec::timed_out, "it takes no more questions");
    } else if (errno != EINTR) {
      return fail(ec::peer_lost, errno_text());
    }
  }
  return {};
}

result<void> directory_link::receive(std::span<std::byte> into, time_point until) {
  while (!into.empty()) {
    const auto n = ::recv(fd_.get(), into.data(), into.size(), 0);
    if (n > 0) {
      into = into.subspan(static_cast<std::size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      if (!wait_for(fd_.get(), POLLIN, until)) return fail(ec::timed_out, "no answer in time");
    } else if (n == 0 || errno != EINTR) {
      return fail(ec::peer_lost, n == 0 ? "it closed the connection" : errno_text());
    }
  }
  return {};
}

result<std::uint64_t> directory_link::ask(store_wire::op what,
                                          const std::function<void(byte_writer&)>& payload) {
  return ask_all(what, 1, [&](std::size_t, byte_writer& out) { payload(out); });
}

result<std::uint64_t> directory_link::ask_all(store_wire::op what, std::size_t count,
                                              const std::function<void(std::size_t, byte_writer&)>& payload) {
  std::uint64_t number = 0;
  {
    std::lock_guard lock{mutex_};
    if (ended_.code != ec::none) return fail(ended_);
    number = next_;
    next_ += count;
  }
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = bytes.size();
    {
      store_wire::frame frame{bytes, number + i, what};
      payload(i, *frame);
    }
    if (bytes.size() - begin > store_wire::frame_bytes_max)
      return fail(ec::invalid_argument,
                  "the batch takes more than " + std::to_string(store_wire::frame_bytes_max) + " bytes");
  }
  std::lock_guard lock{sending_};
  if (auto sent = send_all(bytes, clock_type::now() + limit_); !sent) {
    give_up(sent.error());  // half a question may have gone out
    return fail(sent.error());
  }
  return number;
}

result<directory_link::answer> directory_link::wait(std::uint64_t number) {
  const auto until = clock_type::now() + limit_;
  std::unique_lock lock{mutex_};
  for (;;) {
    if (const auto found = answers_.find(number); found != answers_.end()) {
      auto mine = std::move(found->second);
      answers_.erase(found);
      return mine;
    }
    if (ended_.code != ec::none) return fail(ended_);
    if (reading_) {
      changed_.wait(lock);
      continue;
    }
    reading_ = true;
    const auto read = read_some(lock, until);
    reading_ = false;
    if (!read && ended_.code == ec::none) ended_ = read.error();
    changed_.notify_all();
  }
}

/// @returns false at the limit.
bool directory_link::await_bytes(time_point until) {
  wake_from(1);
  const auto since = clock_type::now();
  const auto ready = [&] {
    ::pollfd one{fd_.get(), POLLIN, 0};
    return ::poll(&one, 1, 0) > 0;
  };
  if (looking_.look(ready)) return true;
  const bool came = wait_for(fd_.get(), POLLIN, until);
  looking_.slept(clock_type::now() - since);
  return came;
}

/// Without a bell every byte that comes over a Unix socket wakes us: dearer, and nothing worse.
void directory_link::only_listens() {
  if (near_ && !bell_)
    if (auto made = bell::hang())
      if (ask(store_wire::op::bell, [&](byte_writer& out) { out.put_text(made->name()); }))
        bell_ = std::move(*made);
  listens_ = true;
}

/// Sleeps for as long as what comes may be taken together, unless it is urgent or much.
void directory_link::await_more(time_point until) {
  constexpr auto together = std::chrono::milliseconds(2);
  until = std::min(until, clock_type::now() + together);
  if (bell_) return bell_->wait(until);
  wake_from(store_wire::urgent_bytes);
  wait_for(fd_.get(), POLLIN, until);
}

void directory_link::wake_from(std::size_t bytes) {
  if (std::exchange(wakes_us_, bytes) == bytes) return;
  const int n = static_cast<int>(bytes);
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n));
}

/// Reads once and sorts what is whole; the lock is open while it waits.
result<void> directory_link::read_some(std::unique_lock<std::mutex>& lock, time_point until) {
  std::byte chunk[64 * KiB];
  lock.unlock();
  ::ssize_t got = ::recv(fd_.get(), chunk, sizeof(chunk), 0);
  bool in_time = true;
  // What was told lately is followed by more: at first that is waited for, then whatever comes.
  for (bool more = listens_; got < 0 && (errno == EINTR || errno == EAGAIN) && in_time; more = false) {
    if (more) await_more(until);
    else in_time = await_bytes(until);
    if (in_time) got = ::recv(fd_.get(), chunk, sizeof(chunk), 0);
  }
  lock.lock();
  if (!in_time) return fail(ec::timed_out, "no answer in time");
  if (got <= 0) return fail(ec::peer_lost, got == 0 ? "it closed the connection" : errno_text());
  in_.insert(in_.end(), chunk, chunk + got);
  std::size_t taken = 0;
  while (in_.size() - taken >= store_wire::header_bytes) {
    const auto rest = std::span<const std::byte>{in_}.subspan(taken);
    const auto header = store_wire::parse_header(rest.first<store_wire::header_bytes>());
    if (!header) return fail(ec::corrupt, "an answer that fits nothing");
    const auto whole = store_wire::header_bytes + header->payload_bytes;
    if (rest.size() < whole) break;
    const auto payload = rest.first(whole).subspan(store_wire::header_bytes);
    answers_.emplace(header->number, answer{payload.begin(), payload.end()});
    taken += whole;
  }
  in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(taken));
  return {};
}

result<directory_link::answer> directory_link::ask_and_wait(
    store_wire::op what, const std::function<void(byte_writer&)>& payload) {
  const auto number = ask(what, payload);
  if (!number) return fail(number.error());
  return wait(*number);
}

bool directory_link::broken() const {
  std::lock_guard lock{mutex_};
  return ended_.code != ec::none;
}

void directory_link::give_up(const error& why) {
  std::lock_guard lock{mutex_};
  if (ended_.code == ec::none) ended_ = why;
  ::shutdown(fd_.get(), SHUT_RDWR);
  changed_.notify_all();
}

void directory_link::close() { give_up({ec::cancelled, "the store was closed"}); }

}  // namespace mooncaf
