// RDMA between two nodes of one machine, for the virtual machine of tests/rdma/run-in-vm.sh --stages figures,
// which runs perftest beside it in the same boot.
//
//   mooncaf_rdma_bench WHAT DEVICES [SECONDS]      WHAT: bandwidth | latency | bare; DEVICES: rxe0 or
//   rxe0,rxe1
//
// One line per case: what, size in bytes, MB/s (10^6 bytes), transfers or orders per second of CPU time of
// this process, median latency. "bare" posts orders on one queue pair without the data plane.

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "transport/data_plane.hpp"
#include "transport/rdma/device.hpp"
#include "transport/rdma/queue_pair.hpp"

using namespace mooncaf;

namespace {

constexpr std::size_t region_bytes = 64 * MiB;
constexpr std::size_t sizes[] = {4 * KiB, 64 * KiB, 1 * MiB, 16 * MiB};

double now() { return to_seconds(clock_type::now().time_since_epoch()); }

double cpu_seconds() {
  ::rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  const auto s = [](const ::timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return s(u.ru_utime) + s(u.ru_stime);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out{""};
  for (const char c : text) {
    if (c == ',') out.emplace_back();
    else out.back() += c;
  }
  return out;
}

struct bench_node {
  bench_node(std::uint64_t id, const std::vector<std::string>& devices, bool checksums) {
    data_plane_options o;
    o.node.value = id;
    o.cluster_secret = "bench";
    o.shm = o.tcp = false;
    o.checksums = checksums;
    o.rdma.devices = devices;
    base = static_cast<std::byte*>(::mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    auto started = data_plane::start(o, {});
    if (!started) {
      std::printf("%s\n", to_string(started.error()).c_str());
      std::exit(1);
    }
    plane = std::move(*started);
    region = *plane->register_region({base, region_bytes});
  }
  std::byte* base = nullptr;
  std::unique_ptr<data_plane> plane;
  region_desc region;
};

/// Keeps `window` transfers under way for a time.
struct runner {
  bench_node& a;
  bench_node& b;
  std::atomic<std::uint64_t> next_id{1};
  std::mutex m;
  std::condition_variable changed;
  std::size_t under_way = 0;
  std::uint64_t done = 0;
  bool failed = false;

  void submit(transfer_op op, std::size_t size) {
    transfer t;
    t.id.value = next_id++;
    t.peer.value = 2;
    t.op = op;
    const auto at = t.id.value * size % (region_bytes - size + 1) / 4096 * 4096;
    t.slices = {{{a.region.id, at, size}, {b.region.id, at, size}, {}}};
    a.plane->submit(t, [this](const completion& c) {
      std::lock_guard lock{m};
      --under_way;
      ++done;
      if (!c.outcome && !std::exchange(failed, true))
        std::printf("%s\n", to_string(c.outcome.error()).c_str());
      changed.notify_one();
    });
  }
  /// @returns transfers completed.
  std::uint64_t keep(transfer_op op, std::size_t size, std::size_t window, double seconds) {
    std::unique_lock lock{m};
    done = 0;
    const auto end = now() + seconds;
    while (!failed && now() < end) {
      while (under_way < window) {
        ++under_way;
        lock.unlock();
        submit(op, size);
        lock.lock();
      }
      changed.wait(lock);
    }
    const auto completed = done;
    changed.wait(lock, [&] { return under_way == 0; });
    return completed;
  }
};

void data_plane_cases(const std::string& what, const std::vector<std::string>& devices, double seconds) {
  for (const bool checksums : {false, true}) {
    bench_node a{1, devices, checksums};
    bench_node b{2, devices, checksums};
    if (!a.plane->add_peer(b.plane->local_address(), b.plane->local_announcement().regions)) std::exit(1);
    runner r{.a = a, .b = b};
    for (const auto op : {transfer_op::write, transfer_op::read}) {
      for (const auto size : sizes) {
        if (what == "latency") {
          std::vector<double> took;
          const auto end = now() + seconds;
          while (now() < end) {
            const auto begin = now();
            r.keep(op, size, 1, 0);
            took.push_back(now() - begin);
          }
          std::sort(took.begin(), took.end());
          std::printf("FIGURE mooncaf-latency %s checksums=%d %zu p50 %.1f us p99 %.1f us\n",
                      op == transfer_op::write ? "write" : "read", checksums, size,
                      took[took.size() / 2] * 1e6, took[took.size() * 99 / 100] * 1e6);
          continue;
        }
        const auto window = std::clamp<std::size_t>(32 * MiB / size, 2, 128);
        r.keep(op, size, window, seconds / 4);
        const auto begin = now();
        const auto cpu = cpu_seconds();
        const auto n = static_cast<double>(r.keep(op, size, window, seconds));
        const auto elapsed = now() - begin;
        std::printf("FIGURE mooncaf %s rails=%zu checksums=%d %zu %.1f MB/s %.0f transfers/CPU-s\n",
                    op == transfer_op::write ? "write" : "read", a.plane->rails().size(), checksums, size,
                    n * static_cast<double>(size) / elapsed * 1e-6, n / (cpu_seconds() - cpu));
      }
    }
  }
}

struct counter final : queue_pair_owner {
  void on_done(const rdma_item&) override { ++done; }
  void on_message(std::span<const std::byte>) override {}
  std::uint64_t done = 0;
};

// One queue pair kept full, nothing around it: what the posting path can do at most.
void bare_cases(const std::vector<std::string>& devices, double seconds) {
  rdma_options o;
  o.devices = devices;
  const auto found = discover(o);
  if (found.rails.empty()) std::exit(1);
  auto a = queue_pair::make(*found.rails[0], o);
  auto b = queue_pair::make(*found.rails[0], o);
  if (!a || !b || !(*a)->connect((*b)->endpoint()) || !(*b)->connect((*a)->endpoint())) std::exit(1);
  std::vector<std::byte> from(1 * MiB);
  std::vector<std::byte> to(1 * MiB);
  const auto mine = found.rails[0]->device->register_memory(from);
  const auto theirs = found.rails[0]->device->register_memory(to);
  for (const std::uint32_t size : {64u, 4096u, 65536u, 1048576u}) {
    counter c;
    const auto begin = now();
    const auto cpu = cpu_seconds();
    while (now() - begin < seconds) {
      while ((*a)->room() > 0)
        (*a)->add({false, from.data(), (*mine)->lkey, reinterpret_cast<std::uintptr_t>(to.data()),
                   (*theirs)->rkey, size},
                  {});
      if (!(*a)->flush() || !(*a)->poll(c)) std::exit(1);
    }
    const auto elapsed = now() - begin;
    std::printf("FIGURE bare write %u %.1f MB/s %.0f orders/s %.0f orders/CPU-s\n", size,
                static_cast<double>(c.done) * size / elapsed * 1e-6, static_cast<double>(c.done) / elapsed,
                static_cast<double>(c.done) / (cpu_seconds() - cpu));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = argv[1];
  const double seconds = argc > 3 ? std::atof(argv[3]) : 1.0;
  if (what == "bare") bare_cases(split(argv[2]), seconds);
  else data_plane_cases(what, split(argv[2]), seconds);
  return 0;
}
