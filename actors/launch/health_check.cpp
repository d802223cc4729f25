#include "actors/launch/health_check.hpp"

#include <netdb.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <memory>
#include <string_view>

#include "config/value.hpp"
#include "runtime/base/posix.hpp"

namespace mooncaf::launch {

namespace {

constexpr timeval patience{2, 0};  ///< with one step of an exchange
constexpr std::string_view question = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
constexpr std::string_view yes = "HTTP/1.1 200";

/// A socket that `use` is content with, at one of the addresses of HOST:PORT.
unique_fd socket_at(const std::string& at, int (*use)(int, const sockaddr*, socklen_t)) {
  const auto where = config::parse_endpoint(at);
  if (!where) return {};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(where->host.c_str(), std::to_string(where->port).c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all{found, ::freeaddrinfo};
  for (const auto* a = found; a != nullptr; a = a->ai_next) {
    unique_fd fd{::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const int on = 1;
    if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd && use(fd.get(), a->ai_addr, a->ai_addrlen) == 0) return fd;
  }
  return {};
}

bool says_yes_plainly(int fd) {
  if (::send(fd, question.data(), question.size(), MSG_NOSIGNAL) < 0) return false;
  std::string head(yes.size(), '\0');
  return ::recv(fd, head.data(), head.size(), MSG_WAITALL) == static_cast<ssize_t>(yes.size()) && head == yes;
}

bool says_yes_over_tls(int fd) {
  const std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)> context{::SSL_CTX_new(::TLS_client_method()),
                                                                    ::SSL_CTX_free};
  if (!context) return false;
  const std::unique_ptr<SSL, decltype(&::SSL_free)> line{::SSL_new(context.get()), ::SSL_free};
  if (!line || ::SSL_set_fd(line.get(), fd) != 1 || ::SSL_connect(line.get()) != 1) return false;
  if (::SSL_write(line.get(), question.data(), static_cast<int>(question.size())) <= 0) return false;
  std::string head(yes.size(), '\0');
  std::size_t got = 0;
  while (got < head.size()) {
    const int n = ::SSL_read(line.get(), head.data() + got, static_cast<int>(head.size() - got));
    if (n <= 0) return false;
    got += static_cast<std::size_t>(n);
  }
  return head == yes;
}

}  // namespace

bool is_free(const std::string& at) {
  const auto fd = socket_at(at, ::bind);
  return fd && ::listen(fd.get(), 1) == 0;  // two sockets may share an address until one of them listens
}

bool serves(const std::string& url) {
  const bool secure = url.starts_with("https://");
  const auto fd = socket_at(url.substr(url.find("//") + 2), ::connect);
  if (!fd) return false;
  for (const int which : {SO_RCVTIMEO, SO_SNDTIMEO})
    ::setsockopt(fd.get(), SOL_SOCKET, which, &patience, sizeof patience);
  return secure ? says_yes_over_tls(fd.get()) : says_yes_plainly(fd.get());
}

}  // namespace mooncaf::launch
