#include "actors/cluster/handshaker.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/log/log.hpp"

namespace mooncaf {

handshaker::handshaker(const tls_context& context, door_limits limits)
    : context_(context),
      limits_(limits),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      thread_([this] { loop(); }) {}

handshaker::~handshaker() { stop(); }

void handshaker::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written =
      write(wake_.get(), &one, sizeof one);  // fails only if a wake-up is due anyway
}

void handshaker::submit(unique_fd fd, admit_function admit) {
  auto session = context_.start(fd.get(), tls_role::server);
  if (!session) {
    log_error("link refused", {{"problem", to_string(session.error())}});
    return;
  }
  auto name = peer_name(fd.get());
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  arrivals_.push_back({std::move(fd), std::move(*session), std::move(admit), std::move(name),
                       clock_type::now() + limits_.patience, POLLIN});
  wake();
}

void handshaker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
  arrivals_.clear();
}

door_counters handshaker::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void handshaker::turn_away(const guest& g, const std::string& why, std::uint64_t door_counters::*counter) {
  if (lines_.take(clock_type::now(), 1) > duration::zero()) {
    ++untold_;
  } else if (untold_ == 0) {
    log_warn("link refused", {{"peer", g.name}, {"problem", why}});
  } else {
    log_warn("link refused", {{"peer", g.name}, {"problem", why}, {"others_since", std::to_string(untold_)}});
    untold_ = 0;
  }
  const std::lock_guard lock(mutex_);
  ++(counters_.*counter);
}

void handshaker::take_arrivals() {
  std::vector<guest> fresh;
  {
    const std::lock_guard lock(mutex_);
    fresh.swap(arrivals_);
  }
  for (auto& g : fresh) {
    if (guests_.size() >= limits_.waiting_max) {
      turn_away(guests_.front(), "too many handshakes at once", &door_counters::expired);
      guests_.pop_front();
    }
    guests_.push_back(std::move(g));
  }
}

handshaker::outcome handshaker::advance(guest& g) {
  switch (g.session.handshake()) {
    case tls_step::wants_read:
      g.wants = POLLIN;
      return outcome::waits;
    case tls_step::wants_write:
      g.wants = POLLOUT;
      return outcome::waits;
    case tls_step::done: {
      {
        const std::lock_guard lock(mutex_);
        ++counters_.admitted;
      }
      g.admit(std::move(g.fd), std::move(g.session));
      return outcome::leaves;
    }
    case tls_step::closed:
    case tls_step::failed:
      break;
  }
  turn_away(g, "the peer does not know the cluster secret (" + g.session.problem() + ")",
            &door_counters::refused);
  return outcome::leaves;
}

void handshaker::loop() {
  std::vector<pollfd> entries;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    take_arrivals();
    entries.assign(1, {wake_.get(), POLLIN, 0});
    for (const auto& g : guests_) entries.push_back({g.fd.get(), g.wants, 0});
    // The oldest has the earliest deadline.
    int wait = -1;
    if (!guests_.empty()) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(guests_.front().deadline - clock_type::now());
      wait = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    }
    if (poll(entries.data(), entries.size(), wait) < 0) continue;
    if (entries[0].revents != 0) {
      std::uint64_t drained = 0;
      [[maybe_unused]] const auto got = ::read(wake_.get(), &drained, sizeof drained);
    }
    const auto now = clock_type::now();
    std::deque<guest> staying;
    for (std::size_t i = 0; i < guests_.size(); ++i) {
      auto& g = guests_[i];
      if (entries[i + 1].revents != 0 && advance(g) == outcome::leaves) continue;
      if (now >= g.deadline) {
        turn_away(g, "no handshake in time", &door_counters::expired);
        continue;
      }
      staying.push_back(std::move(g));
    }
    guests_ = std::move(staying);
  }
  guests_.clear();
}

}  // namespace mooncaf
