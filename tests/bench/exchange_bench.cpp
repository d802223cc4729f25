// What a tensor group's gather takes: [rows, 4096] of which each rank has a share, afterwards all of it.
//
//   mooncaf_exchange_bench [ROUNDS]
//
// Ranks are threads, each with a data plane of its own but in `memory`, where they share slots. Beside each figure stands its
// limit, measured in the same run: in memory a copy of the columns out and in; else half of a ping-pong of a rank's columns over
// a plain socket, which is one message on its way. Medians, in µs.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/compute/shared_exchange.hpp"
#include "runtime/ranks/far_exchange.hpp"
#include "tests/bench/bench_model.hpp"

using namespace mooncaf;
using namespace mooncaf::bench;

namespace {

constexpr std::size_t hidden = 4096;
enum class way { memory, shm, tcp };

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double median(std::vector<double> of) {
  std::ranges::nth_element(of, of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2));
  return of[of.size() / 2];
}

/// A rank's process, as far as an exchange needs it.
struct party {
  rank_notices notices;
  std::shared_ptr<std::atomic<std::uint64_t>> ids = std::make_shared<std::atomic<std::uint64_t>>(1);
  std::unique_ptr<data_plane> plane;
  std::shared_ptr<far_exchange> end;

  party(tensor_part part, bool shm) {
    data_plane_options o;
    o.node = node_id{1 + part.rank};
    o.cluster_secret = "of the bench";
    o.shm = shm;
    o.rdma.enabled = false;
    auto started = data_plane::start(o, [this](const landing& l) { notices.take(l); });
    if (!started) die(to_string(started.error()));
    plane = std::move(*started);
    auto made = far_exchange::make(*plane, ids, notices, part, hidden);
    if (!made) die(to_string(made.error()));
    end = std::move(*made);
  }
  exchange_peer as_peer() const {
    const auto all = plane->local_announcement().regions;
    return {end->part().rank, plane->local_address().node,
            *std::ranges::find(all, end->slots(), &region_desc::id)};
  }
};

/// Runs the gathers at all ranks at once. @returns the first one's median.
double gathers(const std::vector<std::shared_ptr<rank_exchange>>& ends, std::size_t rows, int rounds) {
  std::vector<double> took;
  std::vector<std::jthread> ranks;
  for (const auto& end : ends)
    ranks.emplace_back([&, end] {
      std::vector<float> values(rows * hidden, 1);
      for (int i = 0; i < rounds; ++i) {
        const auto began = now_us();
        end->gather({values.data(), rows, hidden, hidden});
        if (end->part().rank == 0) took.push_back(now_us() - began);
      }
    });
  ranks.clear();
  return median(std::move(took));
}

double measure(way how, std::uint32_t ranks, std::size_t rows, int rounds) {
  std::vector<std::shared_ptr<rank_exchange>> ends;
  if (how == way::memory) {
    const auto shared = shared_exchange::make(ranks, hidden);
    for (std::uint32_t r = 0; r < ranks; ++r) ends.push_back(shared->end(r));
    return gathers(ends, rows, rounds);
  }
  std::vector<std::unique_ptr<party>> all;
  for (std::uint32_t r = 0; r < ranks; ++r)
    all.push_back(std::make_unique<party>(tensor_part{r, ranks}, how == way::shm));
  for (const auto& one : all) {
    std::vector<exchange_peer> others;
    for (const auto& other : all) {
      if (other == one) continue;
      const auto a = other->plane->local_announcement();
      if (const auto known = one->plane->add_peer(a.address, a.regions); !known)
        die(to_string(known.error()));
      others.push_back(other->as_peer());
    }
    if (const auto met = one->end->meet(1, others); !met) die(to_string(met.error()));
  }
  for (const auto& one : all) ends.push_back(one->end);
  const auto took = gathers(ends, rows, rounds);
  ends.clear();
  for (const auto& one : all) one->end.reset();
  return took;
}

/// Own columns out, the others' in.
double copies(std::uint32_t ranks, std::size_t rows, int rounds) {
  const auto own = hidden / ranks;
  std::vector<float> t(rows * hidden, 1), slots(rows * hidden, 1);
  std::vector<double> took;
  for (int i = 0; i < rounds; ++i) {
    const auto began = now_us();
    for (std::size_t r = 0; r < rows; ++r) std::memcpy(&slots[r * own], &t[r * hidden], own * sizeof(float));
    for (std::uint32_t k = 1; k < ranks; ++k)
      for (std::size_t r = 0; r < rows; ++r)
        std::memcpy(&t[r * hidden + k * own], &slots[k * rows * own + r * own], own * sizeof(float));
    took.push_back(now_us() - began);
  }
  return median(std::move(took));
}

void move_all(int fd, char* at, std::size_t bytes, bool out) {
  while (bytes > 0) {
    const auto n = out ? ::send(fd, at, bytes, 0) : ::recv(fd, at, bytes, 0);
    if (n <= 0) die("the plain socket broke");
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

double message(std::size_t bytes, int rounds) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0), one = 1;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&at), size) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size) != 0)
    die("no plain socket");
  const int here = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(here, reinterpret_cast<sockaddr*>(&at), size) != 0) die("no plain connection");
  const int there = ::accept(listener, nullptr, nullptr);
  for (const int fd : {here, there}) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  std::jthread answers([&] {
    std::vector<char> room(bytes);
    for (int i = 0; i < rounds; ++i)
      move_all(there, room.data(), bytes, false), move_all(there, room.data(), bytes, true);
  });
  std::vector<char> room(bytes);
  std::vector<double> took;
  for (int i = 0; i < rounds; ++i) {
    const auto began = now_us();
    move_all(here, room.data(), bytes, true);
    move_all(here, room.data(), bytes, false);
    took.push_back((now_us() - began) / 2);
  }
  answers.join();
  for (const int fd : {here, there, listener}) ::close(fd);
  return median(std::move(took));
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 3000;
  if (argc > 1) {
    const std::string_view word{argv[1]};
    const auto read = std::from_chars(word.data(), word.data() + word.size(), rounds);
    if (argc > 2 || read.ec != std::errc{} || rounds < 1) die("usage: mooncaf_exchange_bench [ROUNDS]");
  }
  std::printf("ranks  rows   memory  copies |     shm      tcp  message\n");
  for (const std::uint32_t ranks : {2u, 4u})
    for (const std::size_t rows : {std::size_t{1}, std::size_t{8}, std::size_t{512}}) {
      const int times = rows > 100 ? std::max(1, rounds / 30) : rounds;
      const auto in_memory = measure(way::memory, ranks, rows, times);
      const auto copied = copies(ranks, rows, times);
      const auto shm = measure(way::shm, ranks, rows, times);
      const auto tcp = measure(way::tcp, ranks, rows, times);
      std::printf("%5u %5zu %8.1f %7.1f | %7.1f %8.1f %8.1f\n", ranks, rows, in_memory, copied, shm, tcp,
                  message(rows * hidden / ranks * sizeof(float), times));
      std::fflush(stdout);
    }
  return 0;
}
