#include "tests/actors/http/raw_client.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

namespace mooncaf::testing {

std::string raw_answer::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_case_name) return value;
  }
  return {};
}

raw_client::raw_client(std::uint16_t port, int receive_buffer)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  REQUIRE(fd_ >= 0);
  if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  const timeval limit{10, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
}

raw_client::~raw_client() {
  if (fd_ >= 0) close(fd_);
}

raw_client::raw_client(raw_client&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}

bool raw_client::say(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool raw_client::more() {
  char piece[16384];
  const auto got = recv(fd_, piece, sizeof piece, 0);
  if (got <= 0) return false;
  buffer_.append(piece, static_cast<std::size_t>(got));
  return true;
}

std::string raw_client::until(std::string_view end) {
  for (;;) {
    if (const auto at = buffer_.find(end); at != std::string::npos) {
      auto out = buffer_.substr(0, at + end.size());
      buffer_.erase(0, out.size());
      return out;
    }
    if (!more()) return std::exchange(buffer_, {});
  }
}

raw_answer raw_client::answer(bool without_body) {
  raw_answer out;
  const auto head = until("\r\n\r\n");
  if (!head.ends_with("\r\n\r\n") || !head.starts_with("HTTP/1.1 ")) return out;
  for (auto line = head.find("\r\n") + 2; line + 2 < head.size();) {
    const auto end = head.find("\r\n", line);
    const auto colon = head.find(": ", line);
    auto name = head.substr(line, colon - line);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    out.headers.emplace_back(std::move(name), head.substr(colon + 2, end - colon - 2));
    line = end + 2;
  }
  const auto status = static_cast<unsigned>(std::stoul(head.substr(9, 3)));
  if (!without_body && out.header("transfer-encoding") == "chunked") {
    for (;;) {
      const auto size = until("\r\n");
      if (!size.ends_with("\r\n")) return out;
      const auto n = std::stoul(size, nullptr, 16);
      while (buffer_.size() < n + 2) {
        if (!more()) return out;
      }
      out.body += buffer_.substr(0, n);
      buffer_.erase(0, n + 2);
      if (n == 0) break;
    }
  } else if (!without_body) {
    const auto length = out.header("content-length");
    const auto n = length.empty() ? 0 : std::stoul(length);
    while (buffer_.size() < n) {
      if (!more()) return out;
    }
    out.body = buffer_.substr(0, n);
    buffer_.erase(0, n);
  }
  out.status = status;
  return out;
}

bool raw_client::closed() {
  char piece[16384];
  for (;;) {
    const auto got = recv(fd_, piece, sizeof piece, 0);
    if (got > 0) continue;
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
}

void raw_client::finish_writing() { shutdown(fd_, SHUT_WR); }

void raw_client::reset() {
  const linger now{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close(std::exchange(fd_, -1));
}

}  // namespace mooncaf::testing
