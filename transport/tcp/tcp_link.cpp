#include "transport/tcp/tcp_link.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include "transport/net/socket.hpp"

namespace mooncaf {

tcp_link::tcp_link(event_loop& loop, unique_fd fd, handshake shake, std::shared_ptr<tcp_link_owner> owner)
    : loop_(loop), fd_(std::move(fd)), owner_(std::move(owner)), greeting_(std::move(shake)) {}

tcp_link::tcp_link(event_loop& loop, unique_fd fd, handshake shake, admission admit)
    : loop_(loop),
      fd_(std::move(fd)),
      admit_(std::move(admit)),
      connected_(true),
      greeting_(std::move(shake)) {}

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
    if (!reader_.fills(region) && !writer_.reads(region)) return false;
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
  reader_.abandon(owner_.get());
  writer_.drop(owner_.get());
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

// Reads, runs the frames' deferred work, then writes: a landing is announced before it is acknowledged.
void tcp_link::io_step(std::uint32_t events) {
  {
    std::lock_guard lock{io_mutex_};
    if (dead_) return;
    if (!connected_) {
      if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0) return;
      if (const int code = connect_error(fd_.get()); code != 0)
        return die({ec::peer_lost, "cannot connect: " + errno_text(code)});
      connected_ = true;
      greeting_.open();
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

result<void> tcp_link::read_some() {
  if (open_) return reader_.read(fd_.get(), *owner_, step_bytes_max);
  const auto at = greeting_.read(fd_.get());
  if (!at) return fail(at.error());
  needs_admission_ = *at == handshake::progress::identified;
  if (*at == handshake::progress::done) open_ = true;
  return {};
}

result<void> tcp_link::write_some() {
  write_blocked_ = false;
  if (!connected_) return {};
  const auto said = greeting_.write(fd_.get());
  if (!said) return fail(said.error());
  write_blocked_ = !*said;
  if (write_blocked_ || !open_) return {};
  // A link that has had its turn counts as blocked: the loop, level-triggered, comes back to it at once.
  const auto more = writer_.write(fd_.get(), *owner_, step_bytes_max);
  if (!more) return fail(more.error());
  write_blocked_ = *more;
  return {};
}

// Without the lock, since admitting a new session ends the links of an old one.
void tcp_link::finish_admission() {
  auto owner = admit_(*this, greeting_.peer());
  std::lock_guard lock{io_mutex_};
  needs_admission_ = false;
  if (owner) owner_ = *owner;
  if (dead_) return;
  if (owner) {
    greeting_.admit();
    open_ = true;
    return;
  }
  greeting_.refuse(owner.error().code);
  [[maybe_unused]] const auto told = greeting_.write(fd_.get());
  die(owner.error());
}

}  // namespace mooncaf
