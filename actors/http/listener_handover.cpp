#include "actors/http/listener_handover.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

namespace mooncaf {

namespace {

constexpr timeval patience{5, 0};  ///< with a predecessor that does not answer

tl::unexpected<error> problem(const std::string& path, const std::string& what) {
  return fail(ec::io_error, "--http-handover " + path + ": " + what);
}

result<sockaddr_un> address_at(const std::string& path) {
  sockaddr_un out{};
  out.sun_family = AF_UNIX;
  if (path.size() >= sizeof out.sun_path) {
    return fail(ec::invalid_argument, "--http-handover " + path + ": longer than the " +
                                          std::to_string(sizeof out.sun_path - 1) +
                                          " characters that a socket's path may have");
  }
  std::memcpy(out.sun_path, path.c_str(), path.size());
  return out;
}

bool same_user(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

/// One byte with a descriptor beside it.
struct parcel {
  char byte = 'L';
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  iovec part{&byte, 1};
  msghdr message{};

  parcel() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
  }
};

void give(int connection, int listener) {
  parcel out;
  auto* beside = CMSG_FIRSTHDR(&out.message);
  beside->cmsg_level = SOL_SOCKET;
  beside->cmsg_type = SCM_RIGHTS;
  beside->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(beside), &listener, sizeof listener);
  // A successor that has gone meanwhile asks again when it is started again.
  (void)::sendmsg(connection, &out.message, MSG_NOSIGNAL);
}

/// -1: none came.
unique_fd take(int connection) {
  parcel in;
  if (::recvmsg(connection, &in.message, MSG_CMSG_CLOEXEC) != 1) return {};
  const auto* beside = CMSG_FIRSTHDR(&in.message);
  if (!beside || beside->cmsg_type != SCM_RIGHTS || beside->cmsg_len != CMSG_LEN(sizeof(int))) return {};
  int got = -1;
  std::memcpy(&got, CMSG_DATA(beside), sizeof got);
  return unique_fd{got};
}

/// "127.0.0.1" and 8080 of a listening socket; nothing if it is none.
std::optional<std::pair<std::string, std::uint16_t>> place_of(int listener) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (::getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) return {};
  sockaddr_storage at{};
  size = sizeof at;
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size) != 0) return {};
  char text[INET6_ADDRSTRLEN] = {};
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(at);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(at);
  const bool six = at.ss_family == AF_INET6;
  const void* address = six ? static_cast<const void*>(&v6.sin6_addr) : &v4.sin_addr;
  ::inet_ntop(at.ss_family, address, text, sizeof text);
  return std::pair{std::string{text}, ntohs(six ? v6.sin6_port : v4.sin_port)};
}

}  // namespace

result<std::optional<unique_fd>> inherit_listener(const std::string& path, const std::string& address,
                                                  std::uint16_t port) {
  if (path.empty()) return std::nullopt;
  const auto at = address_at(path);
  if (!at) return fail(at.error());
  const unique_fd line{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!line) return problem(path, errno_text());
  ::setsockopt(line.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (::connect(line.get(), reinterpret_cast<const sockaddr*>(&*at), sizeof *at) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return std::nullopt;
    return problem(path, errno_text());
  }
  if (!same_user(line.get())) return problem(path, "a process of another user answers there");
  auto got = take(line.get());
  if (!got) return std::nullopt;  // it was just leaving
  const auto listens = place_of(got.get());
  if (!listens) return problem(path, "what answers there is no server of mooncaf");
  if (listens->first != address || (port != 0 && listens->second != port)) {
    return fail(ec::invalid_argument, "--http-handover " + path + ": the process there listens on " +
                                          listens->first + ":" + std::to_string(listens->second) +
                                          ", this one shall on " + address + ":" + std::to_string(port));
  }
  return std::optional{std::move(got)};
}

class listener_offer::impl {
 public:
  impl(std::string path, unique_fd door, unique_fd listener, const struct stat& file)
      : path_(std::move(path)),
        door_(std::move(door)),
        listener_(std::move(listener)),
        file_(file),
        over_(::eventfd(0, EFD_CLOEXEC)),
        thread_([this] { serve(); }) {}

  ~impl() {
    const std::uint64_t one = 1;
    (void)!::write(over_.get(), &one, sizeof one);
    thread_.join();
    // A successor may have put its own there.
    struct stat now {};
    if (::stat(path_.c_str(), &now) == 0 && now.st_ino == file_.st_ino && now.st_dev == file_.st_dev)
      ::unlink(path_.c_str());
  }

 private:
  void serve() {
    pollfd waits[] = {{door_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}};
    while (true) {
      if (::poll(waits, 2, -1) < 0 && errno != EINTR) return;
      // Who has asked already is still answered at the end.
      while (true) {
        const unique_fd caller{::accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        if (!caller) break;
        if (same_user(caller.get())) give(caller.get(), listener_.get());
      }
      if (waits[1].revents != 0) return;
    }
  }

  const std::string path_;
  const unique_fd door_;
  const unique_fd listener_;
  const struct stat file_;
  const unique_fd over_;
  std::thread thread_;  ///< last: it uses all of this
};

listener_offer::listener_offer(std::unique_ptr<impl> i) : impl_(std::move(i)) {}
listener_offer::listener_offer(listener_offer&&) noexcept = default;
listener_offer& listener_offer::operator=(listener_offer&&) noexcept = default;
listener_offer::~listener_offer() = default;

result<listener_offer> listener_offer::open(const std::string& path, int listener) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) == 0 && !S_ISSOCK(file.st_mode))
    return fail(ec::invalid_argument, "--http-handover " + path + ": there is something else than a socket");
  const auto beside = path + "." + std::to_string(::getpid());
  const auto at = address_at(beside);
  if (!at) return fail(at.error());
  unique_fd door{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  unique_fd same{::fcntl(listener, F_DUPFD_CLOEXEC, 0)};
  if (!door || !same) return problem(path, errno_text());
  ::unlink(beside.c_str());
  // Nobody can connect before it listens, so its mode is right from the start; nor find it before it has its name.
  if (::bind(door.get(), reinterpret_cast<const sockaddr*>(&*at), sizeof *at) != 0 ||
      ::chmod(beside.c_str(), 0600) != 0 || ::listen(door.get(), 8) != 0 ||
      ::stat(beside.c_str(), &file) != 0 || std::rename(beside.c_str(), path.c_str()) != 0) {
    const auto why = errno_text();
    ::unlink(beside.c_str());
    return problem(path, why);
  }
  return listener_offer{std::make_unique<impl>(path, std::move(door), std::move(same), file)};
}

}  // namespace mooncaf
