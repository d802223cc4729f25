#include "storage/objects/wire/directory_link.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "storage/objects/wire/unix_endpoint.hpp"
#include "transport/net/handshake.hpp"
#include "transport/net/socket.hpp"
#include "transport/net/tls_stream.hpp"
#include "transport/shm/ring_stream.hpp"

namespace mooncaf {

namespace {

constexpr duration first_try = std::chrono::milliseconds(500);
/// A host that does not answer the kernel any more is given up: sooner where the directory may be elsewhere.
constexpr duration lost_with_others = std::chrono::seconds(3), lost_alone = std::chrono::seconds(30);
/// After such a silence it is asked at the other seats whether the directory is there by now.
constexpr duration look_elsewhere_after = std::chrono::seconds(2);

/// Explains a failed handshake of TLS to a person.
error about(const error& e, bool heard) {
  constexpr auto older = "a directory of an older version, which speaks no TLS (before protocol 17)?";
  if (e.code == ec::unauthenticated)
    return {e.code,
            "it does not let this process in, which has another cluster secret, or a token that it does "
            "not know; " +
                e.detail};
  if (e.code == ec::incompatible) return {e.code, std::string{"it answers without TLS: "} + older};
  if (!heard) return {e.code, e.detail + " without a word: " + older};
  return e;
}

result<std::unique_ptr<link_stream>> encrypted(unique_fd fd, const key_ring& secret, time_point until) {
  std::unique_ptr<link_stream> below = std::make_unique<socket_stream>(std::move(fd));
  auto made = tls_stream::client(below, tls_key{secret.own()});
  if (!made) return fail(made.error());
  auto& stream = **made;
  for (auto done = stream.greet();; done = stream.greet()) {
    if (!done) return fail(about(done.error(), stream.heard()));
    if (*done) return std::move(*made);
    if (!wait_for_socket(stream.fd(), stream.events(POLLIN), until))
      return fail(ec::timed_out, "no answer in time");
  }
}

}  // namespace

/// A seat that stands still must not keep this from the one that answers, and one that is only slow gets more time
/// each round.
result<std::shared_ptr<directory_link>> directory_link::connect(const directory_address& to) {
  const auto seats = to.at->all();
  if (seats.empty()) return fail(ec::unavailable, "no directory is known yet");
  const auto until = clock_type::now() + to.connect_limit;
  if (seats.size() == 1) return connect_to(seats.front(), to, until);
  for (auto each = first_try;; each *= 2) {
    error all;
    bool slow = false, refused = false;
    for (const auto& seat : seats) {
      auto made = connect_to(seat, to, std::min(until, clock_type::now() + each));
      if (made) return made;
      const auto& why = made.error();
      slow = slow || why == ec::timed_out;
      // The cause that a person can act on, though another seat may only be unused.
      const auto code = refused ? all.code : why.code;
      refused = refused || why == ec::unauthenticated || why == ec::incompatible;
      all = {code, all.detail + (all.detail.empty() ? "" : "; ") + why.detail};
    }
    if (!slow || clock_type::now() >= until) return fail(all);
  }
}

result<std::shared_ptr<directory_link>> directory_link::connect_to(const host_port& seat,
                                                                   const directory_address& to,
                                                                   time_point until) {
  const auto named = [&](const error& e) {
    return fail(e.code, "directory " + to_string(seat) + ": " + e.detail);
  };
  const auto at = resolve_tcp(seat.host, seat.port);
  if (!at) return named(at.error());
  if (auto made = from_near(to, seat.port, *at, until)) return made;
  auto fd = dial_tcp(*at, until);
  if (!fd) return named(fd.error());
  tune_tcp(fd->get(), to.at->several() ? lost_with_others : std::min<duration>(to.time_limit, lost_alone));
  auto stream = encrypted(std::move(*fd), to.secret, until);
  if (!stream) return named(stream.error());
  auto made = over(std::move(*stream), to, until);
  if (!made) return named(made.error());
  return made;
}

/// Where this fails another process may have taken the socket's name; the caller tries TCP, whose error tells
/// the cause.
result<std::shared_ptr<directory_link>> directory_link::from_near(const directory_address& to,
                                                                  std::uint16_t port,
                                                                  const socket_address& at,
                                                                  time_point until) {
  const auto name = unix_endpoint(at, port, false);
  if (!name) return fail(ec::not_found, "another host");
  const auto address = unix_address(*name);
  if (!address) return fail(address.error());
  auto fd = connect_unix(*address, SOCK_STREAM);
  if (!fd) return fail(fd.error());
  if (!same_user(fd->get())) return fail(ec::unauthenticated, "another user's process");
  auto made = over(std::make_unique<socket_stream>(std::move(*fd)), to,
                   std::min(until, clock_type::now() + std::chrono::seconds(1)));
  if (!made) return made;
  if (auto ok = (*made)->open_ring(until); !ok) return fail(ok.error());
  return made;
}

result<std::shared_ptr<directory_link>> directory_link::over(std::unique_ptr<link_stream> stream,
                                                             const directory_address& to, time_point until) {
  std::shared_ptr<directory_link> made{new directory_link(std::move(stream), to)};
  if (auto ok = made->greet(to, until); !ok) return fail(ok.error());
  return made;
}

// A directory with another secret closes the connection without a word, so an end after the proof is
// reported as that.
result<void> directory_link::greet(const directory_address& to, time_point until) {
  const auto nonce = make_nonce();
  if (!nonce) return fail(nonce.error());
  const link_identity self{
      link_kind::store, store_wire::directory_client_node, 0, 0, store_wire::directory_node, to.shard};
  auto shake = handshake::initiator(to.secret.own(), *nonce, self);
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
  return agree(to);
}

/// A hello in the oldest version tells the directory's newest; a second one asks for what both know.
result<void> directory_link::agree(const directory_address& to) {
  using namespace store_wire;
  auto theirs = oldest;
  for (const bool again : {false, true}) {
    const auto said = again ? std::min(theirs, to.newest) : oldest;
    const auto hello = ask_and_wait(op::hello, [&](byte_writer& out) {
      out.put(said);
      out.put_text(to.own_host);
      out.put(static_cast<std::uint8_t>(to.everyone));
      if (said >= tells_releases) out.put_text(MOONCAF_VERSION);
    });
    if (!hello) return fail(hello.error());
    byte_reader in{*hello};
    const auto answered = in.get<std::uint32_t>();
    const auto incarnation = in.get<std::uint64_t>();
    auto view = get_welcome(in);
    theirs = in.ok() && in.left() != 0 ? in.get<std::uint32_t>() : answered;
    if (!in.ok() || theirs < oldest) break;
    if (answered != said || said != std::min(theirs, to.newest)) continue;
    speaks_ = said;
    incarnation_ = incarnation;
    welcome_ = std::move(view);
    return {};
  }
  return fail(ec::incompatible, "it speaks version " + std::to_string(theirs) +
                                    " of the store's protocol, this process " + std::to_string(oldest) +
                                    " to " + std::to_string(to.newest));
}

/// Where the directory cannot make a ring the link stays on the socket.
result<void> directory_link::open_ring(time_point until) {
  const auto number = ask(store_wire::op::ring, [](byte_writer&) {});
  if (!number) return fail(number.error());
  if (!wait_for(POLLIN, until)) return fail(ec::timed_out, "no answer");
  std::vector<std::byte> packet;
  std::vector<unique_fd> memory;
  const auto status = receive_packet(stream_->fd(), packet, memory);
  const bool whole = status == packet_status::ok && packet.size() == store_wire::header_bytes + 1;
  const auto header =
      whole ? store_wire::parse_header(std::span{packet}.first<store_wire::header_bytes>()) : std::nullopt;
  const bool comes = packet.back() != std::byte{0};
  if (!header || header->number != *number || memory.size() != (comes ? 1 : 0))
    return fail(ec::corrupt, "an answer that fits nothing");
  if (!comes) return {};
  auto joined = ring_stream::join(stream_, memory.front().get());
  if (!joined) return fail(joined.error());
  stream_ = std::move(*joined);
  ring_ = true;
  return {};
}

error directory_link::lost(link_stream::state at) const {
  return {ec::peer_lost, at == link_stream::state::closed ? "it closed the connection" : stream_->why()};
}

/// @param wanted  POLLIN or POLLOUT. @returns false at the limit.
bool directory_link::wait_for(short wanted, time_point until) {
  const bool quiet = (wanted & POLLIN) == 0 || stream_->settle();
  const bool told = quiet && wait_for_socket(stream_->fd(), stream_->events(wanted), until);
  if ((wanted & POLLIN) != 0) stream_->woken(told);
  return told || !quiet;
}

/// The message that says that a ring has room again goes to the thread that receives, so this thread looks
/// again and again.
result<void> directory_link::await_room(time_point until) {
  constexpr auto nap = std::chrono::milliseconds(1);
  if (!ring_ && wait_for(POLLOUT, until)) return {};
  if (ring_ && wait_for_socket(stream_->fd(), 0, std::min(until, clock_type::now() + nap)))
    return fail(lost(link_stream::state::closed));
  if (clock_type::now() < until) return {};
  return fail(ec::timed_out, "it takes no more questions");
}

result<void> directory_link::send_all(std::span<const std::byte> bytes, time_point until) {
  while (!bytes.empty()) {
    const auto sent = stream_->send(bytes);
    if (sent.at == link_stream::state::ok) bytes = bytes.subspan(sent.bytes);
    else if (sent.at != link_stream::state::again) return fail(lost(sent.at));
    else if (const auto room = await_room(until); !room) return room;
  }
  return {};
}

result<void> directory_link::receive(std::span<std::byte> into, time_point until) {
  while (!into.empty()) {
    const auto got = stream_->receive(into);
    if (got.at == link_stream::state::ok) into = into.subspan(got.bytes);
    else if (got.at != link_stream::state::again) return fail(lost(got.at));
    else if (!wait_for(POLLIN, until)) return fail(ec::timed_out, "no answer in time");
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
    const auto read = read_patiently(lock, until);
    reading_ = false;
    if (!read && ended_.code == ec::none) ended_ = read.error();
    changed_.notify_all();
  }
}

/// @returns false at the limit.
bool directory_link::await_bytes(time_point until) {
  wake_from(1);
  const auto since = clock_type::now();
  const auto came = [&] { return stream_->arrived(); };
  unsigned looks = 0;
  const auto rest = [&] { ring_ ? short_wait::rest(++looks) : std::this_thread::yield(); };
  if (looking_.look(
          came, [] { return clock_type::now(); }, rest))
    return true;
  const bool told = wait_for(POLLIN, until);
  looking_.slept(clock_type::now() - since);
  return told;
}

/// Sleeps for as long as entries may be taken together, unless they are urgent or many.
void directory_link::await_more(time_point until) {
  constexpr auto together = std::chrono::milliseconds(2);
  until = std::min(until, clock_type::now() + together);
  wake_from(ring_ ? byte_ring::capacity / 4 : store_wire::urgent_bytes);
  wait_for(POLLIN, until);
}

void directory_link::wake_from(std::size_t bytes) {
  if (std::exchange(wakes_us_, bytes) != bytes) stream_->wake_from(bytes);
}

/// A directory that stands still keeps its links: whether another one has taken over is to be found out.
result<void> directory_link::read_patiently(std::unique_lock<std::mutex>& lock, time_point until) {
  const bool greeted = incarnation_ != 0;
  if (!greeted || !to_.at->several()) return read_some(lock, until);
  for (;;) {
    const auto now = clock_type::now();
    auto read = read_some(lock, std::min(until, now + look_elsewhere_after));
    if (read || read.error() != ec::timed_out || clock_type::now() >= until) return read;
    lock.unlock();
    const bool over = superseded();
    lock.lock();
    if (over) return fail(ec::peer_lost, "another directory has taken over");
    if (ended_.code != ec::none) return fail(ended_);
  }
}

bool directory_link::superseded() const {
  const auto other = connect(to_);
  return other && (*other)->incarnation() > incarnation_;
}

/// Reads once and sorts the whole frames; the lock is open while it waits.
result<void> directory_link::read_some(std::unique_lock<std::mutex>& lock, time_point until) {
  std::byte chunk[64 * KiB];
  lock.unlock();
  auto got = stream_->receive(chunk);
  bool in_time = true;
  // Something that was told lately is followed by more, which is worth a wait: first for that, then for
  // whatever comes.
  for (bool more = listens_; got.at == link_stream::state::again && in_time; more = false) {
    if (more) await_more(until);
    else in_time = await_bytes(until);
    if (in_time) got = stream_->receive(chunk);
  }
  lock.lock();
  if (!in_time) return fail(ec::timed_out, "no answer in time");
  if (got.at != link_stream::state::ok) return fail(lost(got.at));
  heard_ = clock_type::now();
  in_.insert(in_.end(), chunk, chunk + got.bytes);
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

bool directory_link::usable() {
  constexpr duration sure_for = std::chrono::milliseconds(10);  // no directory ends and begins again in that
  std::lock_guard lock{mutex_};
  if (ended_.code != ec::none) return false;
  const auto now = clock_type::now();
  if (reading_ || now - heard_ < sure_for) return true;
  heard_ = now;
  ::pollfd one{stream_->fd(), POLLRDHUP, 0};
  if (::poll(&one, 1, 0) <= 0) return true;
  ended_ = lost(link_stream::state::closed);
  stream_->shutdown();
  return false;
}

void directory_link::give_up(const error& why) {
  std::lock_guard lock{mutex_};
  if (ended_.code == ec::none) ended_ = why;
  stream_->shutdown();
  changed_.notify_all();
}

void directory_link::close() { give_up({ec::cancelled, "the store was closed"}); }

}  // namespace mooncaf
