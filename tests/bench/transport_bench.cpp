// Transports against the best raw loop of this machine, in the same run (issue 2, bench e).
//
//   mooncaf_transport_bench [--seconds-per-case S] [--rounds N] [--streams N] [--only shm|tcp] [--threads N]
//   [--checksums off] [--slice-kib N]
//                           [--size-kib N]
//                           (threads, checksums and slices of the sending side; one size of transfer alone)
//
// Two processes, 256 MiB on each side walked front to back, so that every byte is cold in a 32 MiB cache.
// Checksums are on. The limit of shared memory is a bare loop of non-temporal copies between two mapped
// memfds; the limit of TCP is plain send and recv of the same sizes striped over as many connections, with
// nobody looking at the bytes: the better of the kernel's own buffers and of buffers bounded as ours are.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "tests/transport/peer_channel.hpp"
#include "transport/copy/stream_copy.hpp"
#include "transport/data_plane.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

constexpr std::size_t walk_bytes = 256 * MiB;

constexpr int latency_samples = 200;

struct settings {
  double seconds = 0.25;
  unsigned rounds = 9;
  unsigned streams = 2;
  unsigned threads = data_plane_options{}.tcp_threads;
  bool checksums = true;
  std::size_t slice_bytes = data_plane_options{}.slice_bytes;
};

struct figure {
  double gb_per_s = 0;
  double p50_us = 0;
  double p99_us = 0;
  double control_messages = 0;
};

double now() { return to_seconds(clock_type::now().time_since_epoch()); }

void quantiles(std::vector<double> seconds, figure& f) {
  std::sort(seconds.begin(), seconds.end());
  f.p50_us = seconds[seconds.size() / 2] * 1e6;
  f.p99_us = seconds[seconds.size() * 99 / 100] * 1e6;
}

struct memory {
  memory() : fd(::memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    if (::ftruncate(fd, walk_bytes) != 0 || ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) std::abort();
    base = static_cast<std::byte*>(::mmap(nullptr, walk_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    std::memset(base, 1, walk_bytes);
  }
  ~memory() {
    ::munmap(base, walk_bytes);
    ::close(fd);
  }
  int fd;
  std::byte* base;
};

/// Where the next transfer of `size` lies.
struct walker {
  std::size_t at = 0;
  std::size_t next(std::size_t size) {
    if (at + size > walk_bytes) at = 0;
    const auto here = at;
    at += size;
    return here;
  }
};

// ---- limits
// ---------------------------------------------------------------------------------------------------------

figure raw_copy(const memory& from, const memory& to, std::size_t size, const settings& s) {
  figure f;
  walker w;
  std::size_t moved = 0;
  const auto start = now();
  std::vector<double> samples;
  while (now() - start < s.seconds) {
    const auto at = w.next(size);
    const auto t = now();
    stream_copy(to.base + at, from.base + at, size);
    fence_streamed_stores();
    samples.push_back(now() - t);
    moved += size;
  }
  f.gb_per_s = static_cast<double>(moved) / (now() - start) / 1e9;
  quantiles(samples, f);
  return f;
}

bool all(int fd, void* data, std::size_t n, bool out) {
  auto* p = static_cast<char*>(data);
  while (n > 0) {
    const auto done = out ? ::send(fd, p, n, MSG_NOSIGNAL) : ::recv(fd, p, n, 0);
    if (done <= 0) return false;
    p += done;
    n -= static_cast<std::size_t>(done);
  }
  return true;
}

/// Connected sockets on the loopback, `streams` of each.
/// @param send_buffer  0: what the kernel finds right.
void make_streams(unsigned streams, int send_buffer, std::vector<int>& here, std::vector<int>& there) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  ::sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::socklen_t size = sizeof(at);
  if (::bind(listener, reinterpret_cast<::sockaddr*>(&at), size) != 0 || ::listen(listener, 16) != 0)
    std::abort();
  ::getsockname(listener, reinterpret_cast<::sockaddr*>(&at), &size);
  for (unsigned i = 0; i < streams; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(fd, reinterpret_cast<::sockaddr*>(&at), size) != 0) std::abort();
    const int accepted = ::accept(listener, nullptr, nullptr);
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ::setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (send_buffer > 0) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
    here.push_back(fd);
    there.push_back(accepted);
  }
  ::close(listener);
}

/// One thread per connection on both sides; the receiving process answers each part with a byte where asked.
figure raw_tcp(const memory& from, std::size_t size, int send_buffer, const settings& s) {
  std::vector<int> here;
  std::vector<int> there;
  make_streams(s.streams, send_buffer, here, there);
  const std::size_t part = size / s.streams;
  const auto rounds = static_cast<std::size_t>(s.seconds * 3e9 / static_cast<double>(size)) + 1;
  const auto per_stream = [&](const std::vector<int>& fds, auto&& body) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < s.streams; ++i) threads.emplace_back([&, i] { body(fds[i], i); });
    for (auto& t : threads) t.join();
  };
  const auto child = ::fork();
  if (child == 0) {
    for (const int fd : here) ::close(fd);
    memory to;
    per_stream(there, [&](int fd, unsigned i) {
      walker w;
      char ack = 1;
      all(fd, &ack, 1, true);
      for (std::size_t r = 0; r < rounds; ++r) all(fd, to.base + w.next(size) + i * part, part, false);
      all(fd, &ack, 1, true);
      for (int r = 0; r < latency_samples; ++r) {
        all(fd, to.base + w.next(size) + i * part, part, false);
        all(fd, &ack, 1, true);
      }
    });
    ::_exit(0);
  }
  for (const int fd : there) ::close(fd);
  char ack = 0;
  for (const int fd : here) all(fd, &ack, 1, false);  // the child has touched its memory
  figure f;
  const auto start = now();
  per_stream(here, [&](int fd, unsigned i) {
    walker w;
    for (std::size_t r = 0; r < rounds; ++r) all(fd, from.base + w.next(size) + i * part, part, true);
    char done = 0;
    all(fd, &done, 1, false);
  });
  f.gb_per_s = static_cast<double>(rounds * part * s.streams) / (now() - start) / 1e9;
  std::vector<double> samples;
  walker w;
  for (int r = 0; r < latency_samples; ++r) {
    const auto at = w.next(size);
    const auto t = now();
    for (unsigned i = 0; i < s.streams; ++i) all(here[i], from.base + at + i * part, part, true);
    for (unsigned i = 0; i < s.streams; ++i) all(here[i], &ack, 1, false);
    samples.push_back(now() - t);
  }
  quantiles(samples, f);
  for (const int fd : here) ::close(fd);
  ::waitpid(child, nullptr, 0);
  return f;
}

// ---- ours
// -----------------------------------------------------------------------------------------------------------

class two_nodes {
 public:
  two_nodes(const memory& from, const std::string& path, const settings& s)
      : child_(MOONCAF_TRANSPORT_PEER, 2, walk_bytes, path) {
    data_plane_options o;
    o.node.value = 1;
    o.cluster_secret = "the secret of the tests";
    o.shm = path == "shm";
    o.tcp = !o.shm;
    o.tcp_streams = s.streams;
    o.tcp_threads = s.threads;
    o.checksums = s.checksums;
    o.slice_bytes = s.slice_bytes;
    auto plane = data_plane::start(o, {});
    const auto hello = decode_announcement(child_.channel().receive());
    if (!plane || !hello) std::abort();
    plane_ = std::move(*plane);
    here_ = plane_->register_region({from.base, walk_bytes}, from.fd)->id;
    there_ = hello->regions.at(0).id;
    if (!plane_->add_peer(hello->address, hello->regions)) std::abort();
  }

  figure measure(std::size_t size, const settings& s) {
    figure f;
    if (!std::exchange(warm_, true))
      keep_busy(1 * MiB, 1, [this] { return moved_ < walk_bytes; });  // pages mapped, connections made
    const auto before = messages();
    keep_busy(size, 1, [this] { return samples_.size() < latency_samples; });
    quantiles(samples_, f);
    // The peer sends one acknowledgement per transfer, which it counts and we do not see.
    f.control_messages = 1 + static_cast<double>(messages() - before) / latency_samples;
    const std::size_t depth = std::clamp<std::size_t>(8 * MiB / size, 4, 64);
    const auto until = now() + s.seconds;
    const auto took = keep_busy(size, depth, [until] { return now() < until; });
    f.gb_per_s = static_cast<double>(moved_) / took / 1e9;
    return f;
  }

 private:
  std::uint64_t messages() const {
    std::uint64_t n = 0;
    for (const auto& p : plane_->stats()) n += p.control_messages;
    return n;
  }

  /// Submits a transfer, and the next one from its completion, until `more` says no.
  void chain(std::size_t size) {
    std::size_t at = 0;
    {
      std::lock_guard lock{mutex_};
      at = walk_.next(size);
    }
    transfer t;
    t.id.value = ++last_id_;
    t.peer.value = 2;
    t.slices = {{{here_, at, size}, {there_, at, size}, {}}};
    plane_->submit(std::move(t), [this, size](const completion& c) { ended(size, c); });
  }
  void ended(std::size_t size, const completion& c) {
    if (!c.outcome) {
      std::fprintf(stderr, "transfer failed: %s\n", to_string(c.outcome.error()).c_str());
      std::exit(1);
    }
    std::unique_lock lock{mutex_};
    moved_ += size;
    samples_.push_back(c.seconds);
    if (more_()) return lock.unlock(), chain(size);
    if (--under_way_ == 0) changed_.notify_one();
  }
  /// Keeps `depth` transfers under way. @returns seconds
  double keep_busy(std::size_t size, std::size_t depth, std::function<bool()> more) {
    {
      std::lock_guard lock{mutex_};
      moved_ = 0;
      samples_.clear();
      more_ = std::move(more);
      under_way_ = depth;
    }
    const auto start = now();
    for (std::size_t i = 0; i < depth; ++i) chain(size);
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return under_way_ == 0; });
    return now() - start;
  }

  peer_process child_;
  std::unique_ptr<data_plane> plane_;
  region_id here_;
  region_id there_;
  walker walk_;
  bool warm_ = false;
  std::atomic<std::uint64_t> last_id_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t under_way_ = 0;
  std::size_t moved_ = 0;
  std::vector<double> samples_;
  std::function<bool()> more_;
};

void print(const char* path, std::size_t size, const figure& ours, const figure& limit, double ratio) {
  std::printf("| %-4s | %6zu KiB | %6.2f | %6.2f | %4.2f | %7.0f / %7.0f | %7.0f / %7.0f | %.2f |\n", path,
              size / KiB, ours.gb_per_s, limit.gb_per_s, ratio, ours.p50_us, ours.p99_us, limit.p50_us,
              limit.p99_us, ours.control_messages);
  std::fflush(stdout);
}

/// Ours and the limits alternate in short rounds, and the ratio is the median of those of neighbours: what a
/// machine gives changes within seconds, for all alike.
/// @param limits  of which the one counts that is better in the median; the better one of each round would
/// be the luckier one.
template <class Ours>
void compare(const char* path, std::size_t size, const settings& s, Ours&& ours,
             const std::vector<std::function<figure()>>& limits) {
  std::vector<figure> a;
  std::vector<std::vector<figure>> b(limits.size());
  for (unsigned i = 0; i < s.rounds; ++i) {
    for (std::size_t k = 0; k < limits.size(); ++k) b[k].push_back(limits[k]());
    a.push_back(ours());
  }
  const auto by_rate = [](const figure& x, const figure& y) { return x.gb_per_s < y.gb_per_s; };
  const auto median = [&](std::vector<figure> all) {
    std::sort(all.begin(), all.end(), by_rate);
    return all[all.size() / 2];
  };
  const auto& limit = *std::max_element(
      b.begin(), b.end(), [&](const auto& x, const auto& y) { return by_rate(median(x), median(y)); });
  std::vector<double> ratios;
  for (unsigned i = 0; i < s.rounds; ++i) ratios.push_back(a[i].gb_per_s / limit[i].gb_per_s);
  std::sort(ratios.begin(), ratios.end());
  print(path, size, median(a), median(limit), ratios[s.rounds / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  settings s;
  std::string only;
  std::vector<std::size_t> sizes = {4 * KiB, 160 * KiB, 1 * MiB, 16 * MiB};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string{argv[i]} == "--seconds-per-case") s.seconds = std::atof(argv[i + 1]);
    if (std::string{argv[i]} == "--rounds") s.rounds = static_cast<unsigned>(std::atoi(argv[i + 1]));
    if (std::string{argv[i]} == "--threads") s.threads = static_cast<unsigned>(std::atoi(argv[i + 1]));
    if (std::string{argv[i]} == "--checksums") s.checksums = std::string{argv[i + 1]} != "off";
    if (std::string{argv[i]} == "--slice-kib")
      s.slice_bytes = static_cast<std::size_t>(std::atoi(argv[i + 1])) * KiB;
    if (std::string{argv[i]} == "--size-kib")
      sizes = {static_cast<std::size_t>(std::atoi(argv[i + 1])) * KiB};
    if (std::string{argv[i]} == "--only") only = argv[i + 1];
    if (std::string{argv[i]} == "--streams") s.streams = static_cast<unsigned>(std::atoi(argv[i + 1]));
  }
  memory from;
  std::printf(
      "| path | transfer | GB/s | raw GB/s | ratio | p50 / p99 us | raw p50 / p99 us | control messages |\n");
  std::printf("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  if (only != "tcp") {
    memory to;
    two_nodes nodes{from, "shm", s};
    for (const auto size : sizes)
      compare("shm", size, s, [&] { return nodes.measure(size, s); },
              {[&] { return raw_copy(from, to, size, s); }});
  }
  if (only == "shm") return 0;
  two_nodes nodes{from, "tcp", s};
  for (const auto size : sizes)
    compare(
        "tcp", size, s, [&] { return nodes.measure(size, s); },
        {[&] { return raw_tcp(from, size, 0, s); },  // as the kernel finds right, and as our connections have
         [&] { return raw_tcp(from, size, static_cast<int>(data_plane_options{}.tcp_send_buffer), s); }});
  return 0;
}
