#include "transport/tcp/tcp_link.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>

#include "transport/net/socket.hpp"

namespace mooncaf {
namespace {

std::span<std::byte> scratch() {
  thread_local std::vector<std::byte> bytes(64 * KiB);
  return bytes;
}

// Where long payloads come out of the kernel: in the core's own cache. From there one pass hashes them and
// streams them to where they belong, which takes less than to have the kernel write to cold memory alone.
std::span<std::byte> landing_room() {
  thread_local std::vector<std::byte> bytes(128 * KiB);
  return bytes;
}
// Of less, whoever asked for it finds it in the cache.
constexpr std::size_t staged_from = 32 * KiB;

}  // namespace

bool is_intact(const frame_header& h, const frame_sink& sink, bool verify) {
  if (sink.to != frame_sink::kind::memory || !h.has_checksum || !verify) return true;
  return (sink.sum ? *sink.sum : wide_checksum(sink.at, h.payload_bytes)) == h.checksum;
}

tcp_link::tcp_link(event_loop& loop, unique_fd fd, handshake shake, std::shared_ptr<tcp_link_owner> owner)
    : loop_(loop), fd_(std::move(fd)), shake_(std::move(shake)), owner_(std::move(owner)) {}

tcp_link::tcp_link(event_loop& loop, unique_fd fd, handshake shake, admission admit)
    : loop_(loop), fd_(std::move(fd)), shake_(std::move(shake)), admit_(std::move(admit)), connected_(true) {}

tcp_link::~tcp_link() = default;

void tcp_link::start() {
  loop_.post([self = shared_from_this()] {
    if (self->dead_) return self->report_death();
    self->watched_events_ = EPOLLIN | (self->connected_ ? 0u : EPOLLOUT);
    self->token_ = self->loop_.add(self->fd_.get(), self->watched_events_,
                                   [self](std::uint32_t events) { self->on_events(events); });
  });
}

void tcp_link::kick() {
  if (kicked_.exchange(true)) return;
  loop_.post([self = shared_from_this()] {
    self->kicked_ = false;
    self->on_events(0);
  });
}

void tcp_link::kill(const error& why) {
  {
    std::lock_guard lock{io_mutex_};
    die(why);
  }
  // Its loop's thread drops the watch and tells the owner.
  loop_.post([self = shared_from_this()] { self->report_death(); });
}

void tcp_link::kill_later(const error& why) {
  loop_.post([self = shared_from_this(), why] { self->kill(why); });
}

bool tcp_link::kill_if_using(region_id region, const error& why) {
  {
    std::lock_guard lock{io_mutex_};
    bool uses = in_payload_ && sink_.to == frame_sink::kind::memory && sink_.region == region;
    for (const auto& s : batch_) uses |= s.frame.region == region;
    if (!uses) return false;
    die(why);
  }
  loop_.post([self = shared_from_this()] { self->report_death(); });
  return true;
}

// With the lock: from here on no region is touched.
void tcp_link::die(const error& why) {
  if (dead_) return;
  dead_ = true;
  open_ = false;
  death_ = why;
  ::shutdown(fd_.get(), SHUT_RDWR);
  if (in_payload_ && owner_) owner_->on_abandoned(*this, header_, sink_);
  in_payload_ = false;
  for (auto& s : batch_)
    if (owner_) owner_->on_sent(*this, s.frame);
  batch_.clear();
}

// Loop's thread, without the lock.
void tcp_link::report_death() {
  run_deferred();
  if (token_ != 0) {
    loop_.remove(token_);
    token_ = 0;
  }
  if (death_reported_) return;
  death_reported_ = true;
  admit_ = nullptr;
  std::shared_ptr<tcp_link_owner> owner;
  {
    std::lock_guard lock{io_mutex_};
    owner.swap(owner_);  // the owner keeps its links: let go of each other
  }
  if (owner) owner->on_broken(*this, death_);
}

void tcp_link::run_deferred() {
  std::vector<std::function<void()>> actions;
  {
    std::lock_guard lock{io_mutex_};
    actions.swap(deferred_);
  }
  for (auto& a : actions) a();
}

void tcp_link::on_events(std::uint32_t events) {
  const auto self = shared_from_this();  // a handler may drop the last other reference
  io_step(events);
  if (dead_) return report_death();
  want_events();
}

// Read, then what reading caused (landings are announced before they are acknowledged), then write.
void tcp_link::io_step(std::uint32_t events) {
  {
    std::lock_guard lock{io_mutex_};
    if (dead_) return;
    if (!connected_) {
      if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0) return;
      if (const int code = connect_error(fd_.get()); code != 0)
        return die({ec::peer_lost, "cannot connect: " + errno_text(code)});
      connected_ = true;
      raw_out_ = shake_.opening();
    }
    if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0)
      if (const auto r = read_some(); !r) die(r.error());
  }
  if (needs_admission_) finish_admission();
  run_deferred();
  {
    std::lock_guard lock{io_mutex_};
    if (dead_) return;
    if (const auto w = write_some(); !w) die(w.error());
  }
  run_deferred();  // a frame that has left may have been the last of its transfer
}

void tcp_link::want_events() {
  std::uint32_t events = EPOLLIN;
  {
    std::lock_guard lock{io_mutex_};
    if (dead_) return;
    if (!connected_ || write_blocked_) events |= EPOLLOUT;
  }
  if (token_ != 0 && events != watched_events_) {
    watched_events_ = events;
    loop_.modify(token_, events);
  }
}

// ---- handshake
// ------------------------------------------------------------------------------------------------------

result<void> tcp_link::read_some() { return open_ ? read_frames() : read_handshake(); }

result<void> tcp_link::read_handshake() {
  while (!open_ && !needs_admission_) {
    const std::size_t want = shake_.want();
    std::byte buffer[handshake::identity_bytes];
    const auto n = ::recv(fd_.get(), buffer, want - raw_in_.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (n <= 0) {
      if (shake_.proof_sent() && n == 0)
        return fail(ec::unauthenticated, "the peer hung up on our proof: is its cluster secret another one?");
      return fail(ec::peer_lost, "the connection broke before it was authenticated");
    }
    raw_in_.insert(raw_in_.end(), buffer, buffer + n);
    if (raw_in_.size() < want) continue;
    const auto message = std::exchange(raw_in_, {});
    if (const auto r = take_handshake(message); !r) return r;
  }
  return {};
}

result<void> tcp_link::take_handshake(const std::vector<std::byte>& message) {
  auto step = shake_.feed(message);
  if (!step) return fail(step.error());
  raw_out_.insert(raw_out_.end(), step->answer.begin(), step->answer.end());
  if (step->at == handshake::progress::identified) needs_admission_ = true;
  if (step->at == handshake::progress::done) open_ = true;
  return {};
}

// Without the lock, since admitting a new session ends the links of an old one.
void tcp_link::finish_admission() {
  auto owner = admit_(*this, shake_.peer());
  std::lock_guard lock{io_mutex_};
  needs_admission_ = false;
  if (dead_) {
    if (owner) owner_ = *owner;
    return;
  }
  const auto step = owner ? shake_.admit() : shake_.refuse(owner.error().code);
  raw_out_.insert(raw_out_.end(), step.answer.begin(), step.answer.end());
  if (owner) {
    owner_ = *owner;
    open_ = true;
    return;
  }
  [[maybe_unused]] const auto n = ::send(fd_.get(), raw_out_.data(), raw_out_.size(), MSG_NOSIGNAL);
  die(owner.error());
}

// ---- frames in
// ------------------------------------------------------------------------------------------------------

// One call takes the rest of a payload and, with it, the next header.
result<void> tcp_link::read_frames() {
  std::size_t budget = step_bytes_max;
  while (budget > 0) {
    std::array<::iovec, 2> parts;
    const auto room = room_to_read(parts);
    std::size_t asked = 0;
    for (const auto& part : room) asked += part.iov_len;
    const auto n = ::readv(fd_.get(), room.data(), static_cast<int>(room.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return {};
    if (n == 0 || (n < 0 && errno == ECONNRESET)) closed_by_peer_ = true;
    if (n == 0) return fail(ec::peer_lost, "the peer closed the connection");
    if (n < 0) return fail(ec::peer_lost, "the connection broke: " + errno_text(errno));
    const auto got = static_cast<std::size_t>(n);
    progress_ += got;
    if (const auto r = take_bytes(got); !r) return r;
    if (got < asked) return {};  // drained; more makes another event
    budget -= std::min(budget, got);
  }
  return {};
}

std::span<::iovec> tcp_link::room_to_read(std::array<::iovec, 2>& parts) {
  if (!in_payload_) {
    parts[0] = {header_bytes_.data() + header_have_, header_bytes_.size() - header_have_};
    return {parts.data(), 1};
  }
  const std::size_t left = header_.payload_bytes - payload_have_;
  if (sink_.to == frame_sink::kind::control) parts[0] = {control_.data() + payload_have_, left};
  else if (sink_.to == frame_sink::kind::discard)
    parts[0] = {scratch().data(), std::min(left, scratch().size())};
  else if (!staged_) parts[0] = {sink_.at + payload_have_, left};
  else {
    const auto room = landing_room().subspan(left_over_);
    parts[0] = {room.data(), std::min(left, room.size())};
  }
  parts[1] = {header_bytes_.data(), header_bytes_.size()};
  return {parts.data(), parts[0].iov_len == left ? 2u : 1u};
}

result<void> tcp_link::take_bytes(std::size_t n) {
  if (in_payload_) {
    const std::size_t part = std::min<std::size_t>(n, header_.payload_bytes - payload_have_);
    payload_have_ += part;
    n -= part;
    if (staged_) land(part);
    if (payload_have_ < header_.payload_bytes) return {};
    if (const auto r = end_frame(); !r) return r;
  }
  header_have_ += n;
  return header_have_ == frame_header_bytes ? begin_frame() : result<void>{};
}

// Moves on what lies in the landing room: what was left over of the bytes before, and `n` more.
void tcp_link::land(std::size_t n) {
  const auto room = landing_room();
  std::memcpy(room.data(), left_.data(), left_over_);
  const std::size_t have = left_over_ + n;
  auto* const to = sink_.at + landed_.bytes;
  if (payload_have_ == header_.payload_bytes) {
    sink_.sum = stream_copy_last(landed_, to, room.data(), have);
    fence_streamed_stores();
    left_over_ = 0;
    return;
  }
  const auto taken = stream_copy_part(landed_, to, room.data(), have);
  left_over_ = have - taken;
  std::memcpy(left_.data(), room.data() + taken, left_over_);
}

result<void> tcp_link::begin_frame() {
  header_have_ = 0;
  const auto h = parse_frame(header_bytes_);
  if (!h) return fail(h.error());
  header_ = *h;
  auto sink = owner_->on_header(*this, header_);
  if (!sink) return fail(sink.error());
  sink_ = *sink;
  payload_have_ = 0;
  staged_ = sink_.to == frame_sink::kind::memory && header_.payload_bytes >= staged_from;
  landed_ = {};
  left_over_ = 0;
  in_payload_ = true;
  if (sink_.to == frame_sink::kind::control) {
    if (header_.payload_bytes > control_payload_max) return fail(ec::internal, "control frame too long");
    control_.resize(header_.payload_bytes);
  }
  return header_.payload_bytes == 0 ? end_frame() : result<void>{};
}

result<void> tcp_link::end_frame() {
  in_payload_ = false;
  const bool control = sink_.to == frame_sink::kind::control;
  return owner_->on_frame(*this, header_, sink_,
                          control ? std::span<const std::byte>{control_} : std::span<const std::byte>{});
}

// ---- frames out
// -----------------------------------------------------------------------------------------------------

result<void> tcp_link::write_some() {
  write_blocked_ = false;
  if (!connected_) return {};
  while (!raw_out_.empty()) {
    const auto n = ::send(fd_.get(), raw_out_.data(), raw_out_.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) {
      write_blocked_ = true;
      return {};
    }
    if (n < 0) return fail(ec::peer_lost, "the connection broke: " + errno_text(errno));
    raw_out_.erase(raw_out_.begin(), raw_out_.begin() + n);
  }
  if (!open_) return {};
  std::size_t sent = 0;
  while (!write_blocked_) {
    fill_batch();
    if (batch_.empty()) return {};
    if (sent >= step_bytes_max) {
      write_blocked_ = true;  // level-triggered: the loop comes back at once
      return {};
    }
    const auto before = progress_.load();
    if (const auto r = send_batch(write_blocked_); !r) return r;
    sent += progress_.load() - before;
  }
  return {};
}

void tcp_link::fill_batch() {
  constexpr std::size_t batch_bytes = 128 * KiB;  // small frames share a system call
  std::size_t bytes = 0;
  for (const auto& s : batch_) bytes += s.frame.header.payload_bytes;
  while (batch_.size() < batch_frames_max && bytes < batch_bytes) {
    sending next;
    if (!owner_->next_frame(*this, next.frame)) return;
    next.header = encode_frame(next.frame.header);
    bytes += next.frame.header.payload_bytes;
    batch_.push_back(std::move(next));
  }
}

result<void> tcp_link::send_batch(bool& blocked) {
  ::iovec parts[2 * batch_frames_max];
  std::size_t count = 0;
  std::size_t skip = batch_sent_;
  std::size_t asked = 0;
  const auto add = [&](const std::byte* at, std::size_t n) {
    const std::size_t gone = std::min(skip, n);
    skip -= gone;
    if (n == gone) return;
    parts[count++] = {const_cast<std::byte*>(at + gone), n - gone};
    asked += n - gone;
  };
  for (const auto& s : batch_) {
    add(s.header.data(), s.header.size());
    add(s.frame.payload, s.frame.header.payload_bytes);
  }
  ::msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const auto n = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  if (n < 0 && errno == EINTR) return {};
  if (n < 0 && errno == EAGAIN) {
    blocked = true;
    return {};
  }
  if (n < 0) return fail(ec::peer_lost, "the connection broke: " + errno_text(errno));
  progress_ += static_cast<std::uint64_t>(n);
  blocked = static_cast<std::size_t>(n) < asked;
  batch_sent_ += static_cast<std::size_t>(n);
  while (!batch_.empty()) {
    const std::size_t whole = frame_header_bytes + batch_.front().frame.header.payload_bytes;
    if (batch_sent_ < whole) break;
    batch_sent_ -= whole;
    const auto done = std::move(batch_.front());
    batch_.pop_front();
    owner_->on_sent(*this, done.frame);
  }
  return {};
}

}  // namespace mooncaf
