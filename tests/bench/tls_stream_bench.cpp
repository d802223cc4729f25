// What TLS costs a link over TCP (loopback), beside the same link without: a short question and its answer,
// many bytes one way, and connecting. Rounds by turns, medians.
// mooncaf_tls_stream_bench [rounds] [seconds]

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/units.hpp"
#include "transport/net/socket.hpp"
#include "transport/net/tls_stream.hpp"

using namespace mooncaf;
using state = link_stream::state;

namespace {

const tls_key key{"0123456789abcdef0123456789abcdef"};

void wait(link_stream& s, short wanted) {
  ::pollfd one{s.fd(), s.events(wanted), 0};
  ::poll(&one, 1, 1000);
}

/// @returns false when the other end has gone.
bool send_all(link_stream& s, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto sent = s.send(bytes);
    if (sent.at == state::again) wait(s, POLLOUT);
    else if (sent.at != state::ok) return false;
    bytes = bytes.subspan(sent.bytes);
  }
  return true;
}
bool receive_all(link_stream& s, std::span<std::byte> into) {
  while (!into.empty()) {
    const auto got = s.receive(into);
    if (got.at == state::again) wait(s, POLLIN);
    else if (got.at != state::ok) return false;
    into = into.subspan(got.bytes);
  }
  return true;
}

struct link {
  std::unique_ptr<link_stream> client, server;

  link(int listener, const socket_address& at, bool tls) {
    auto fd = connect_tcp(at);
    if (!fd) std::exit(1);
    ::pollfd arrived{listener, POLLIN, 0};
    ::poll(&arrived, 1, 1000);
    unique_fd other{::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    for (const int one : {fd->get(), other.get()}) tune_tcp(one, std::chrono::seconds(10));
    client = std::make_unique<socket_stream>(std::move(*fd));
    server = std::make_unique<socket_stream>(std::move(other));
    if (!tls) return;
    auto a = *tls_stream::client(client, key);
    auto b = *tls_stream::server(server, std::make_shared<const std::vector<tls_key>>(1, key));
    for (bool done = false; !done;) done = *a->greet() & *b->greet();
    client = std::move(a);
    server = std::move(b);
  }
};

struct figures {
  double round_trip_us, gb_per_s, connect_us;
};

figures measure(int listener, const socket_address& at, bool tls, double seconds) {
  figures f{};
  const auto span = from_seconds(seconds);
  {
    std::size_t n = 0;
    const auto begin = clock_type::now();
    for (; clock_type::now() - begin < span; ++n) link{listener, at, tls};
    f.connect_us = to_seconds(clock_type::now() - begin) * 1e6 / static_cast<double>(n);
  }
  link over{listener, at, tls};
  std::vector<std::byte> question(100), answer(40);
  std::thread echo{[&] {
    std::vector<std::byte> asked(100), said(40);
    while (receive_all(*over.server, asked) && send_all(*over.server, said)) {
    }
  }};
  std::vector<double> took;
  const auto begin = clock_type::now();
  for (auto now = begin; now - begin < span;) {
    if (!send_all(*over.client, question) || !receive_all(*over.client, answer)) std::exit(1);
    const auto end = clock_type::now();
    took.push_back(to_seconds(end - now) * 1e6);
    now = end;
  }
  std::nth_element(took.begin(), took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2), took.end());
  f.round_trip_us = took[took.size() / 2];
  over.client->shutdown();
  echo.join();

  link wide{listener, at, tls};
  const std::vector<std::byte> large(16 * MiB, std::byte{1});
  std::thread sink{[&] {
    std::vector<std::byte> into(1 * MiB);
    while (receive_all(*wide.server, into)) {
    }
  }};
  std::size_t sent = 0;
  const auto started = clock_type::now();
  for (; clock_type::now() - started < span; sent += large.size())
    if (!send_all(*wide.client, large)) std::exit(1);
  f.gb_per_s = static_cast<double>(sent) / to_seconds(clock_type::now() - started) / 1e9;
  wide.client->shutdown();
  sink.join();
  return f;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.5;
  const auto anywhere = resolve_tcp("127.0.0.1", 0);
  const auto listener = anywhere ? listen_tcp(*anywhere) : result<unique_fd>{fail(anywhere.error())};
  if (!listener) return 1;
  const auto at = *resolve_tcp("127.0.0.1", bound_port(listener->get()));
  std::array<std::vector<figures>, 2> all;
  for (int i = 0; i < rounds; ++i)
    for (const bool tls : {false, true}) all[tls].push_back(measure(listener->get(), at, tls, seconds));
  const auto median = [&](bool tls, double figures::*what) {
    std::vector<double> values;
    for (const auto& f : all[tls]) values.push_back(f.*what);
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  std::printf("%-36s %10s %10s %10s\n", "", "plain", "TLS", "TLS/plain");
  const std::pair<const char*, double figures::*> rows[] = {
      {"question of 100 B, answer of 40 B, us", &figures::round_trip_us},
      {"16 MiB one way, GB/s", &figures::gb_per_s},
      {"connecting, both ends, us", &figures::connect_us}};
  for (const auto& [name, what] : rows)
    std::printf("%-36s %10.2f %10.2f %10.2f\n", name, median(false, what), median(true, what),
                median(true, what) / median(false, what));
  return 0;
}
