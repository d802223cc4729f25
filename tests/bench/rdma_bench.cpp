// RDMA between two nodes of one machine, for the virtual machine of tests/rdma/run-in-vm.sh --stages figures,
// which runs perftest beside it in the same boot.
//
//   mooncaf_rdma_bench bandwidth DEVICES [key=value …]   transfers through the data plane, many under way
//   mooncaf_rdma_bench latency DEVICES [key=value …]     one under way
//   mooncaf_rdma_bench bare DEVICES [key=value …]        orders on one queue pair, without the data plane
//
// DEVICES: rxe0 or rxe0,rxe1. Keys: size (bytes of a slice, default 64 KiB), slices (of a transfer, default
// 1), checksums (0 or 1), seconds, spin (us of polling before the loops sleep), cut (rdma.slice_bytes). One
// line per case. MB are 10^6 bytes; CPU seconds are of this process, which includes what the emulated NIC
// does on its behalf.

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

struct settings {
  std::vector<std::string> devices;
  std::size_t size = 64 * KiB;
  std::size_t slices = 1;
  bool checksums = true;
  double seconds = 1;
  unsigned spin_us = 0;
  std::size_t cut = rdma_options{}.slice_bytes;
};

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
  bench_node(std::uint64_t id, const settings& with) {
    data_plane_options o;
    o.node.value = id;
    o.cluster_secret = "bench";
    o.shm = o.tcp = false;
    o.checksums = with.checksums;
    o.rdma.devices = with.devices;
    o.rdma.poll_spin = std::chrono::microseconds(with.spin_us);
    o.rdma.slice_bytes = with.cut;
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

/// Keeps `window` transfers under way.
struct runner {
  bench_node& a;
  bench_node& b;
  const settings& with;
  std::atomic<std::uint64_t> next_id{1};
  std::mutex m;
  std::condition_variable changed;
  std::size_t under_way = 0;
  std::uint64_t done = 0;

  void submit(transfer_op op) {
    transfer t;
    t.id.value = next_id++;
    t.peer.value = 2;
    t.op = op;
    for (std::size_t i = 0; i < with.slices; ++i) {
      const auto at =
          (t.id.value * with.slices + i) * with.size % (region_bytes - with.size + 1) / 4096 * 4096;
      t.slices.push_back({{a.region.id, at, with.size}, {b.region.id, at, with.size}, {}});
    }
    a.plane->submit(t, [this](const completion& c) {
      if (!c.outcome) {
        std::printf("%s\n", to_string(c.outcome.error()).c_str());
        std::exit(1);
      }
      std::lock_guard lock{m};
      --under_way;
      ++done;
      changed.notify_one();
    });
  }
  /// For a time, at least one. @returns transfers completed, all that were begun.
  std::uint64_t keep(transfer_op op, std::size_t window, double seconds) {
    std::unique_lock lock{m};
    done = 0;
    const auto end = now() + seconds;
    do {
      while (under_way < window) {
        ++under_way;
        lock.unlock();
        submit(op);
        lock.lock();
      }
      changed.wait(lock);
    } while (now() < end);
    changed.wait(lock, [&] { return under_way == 0; });
    return done;
  }
};

void data_plane_cases(bool latency, const settings& with) {
  bench_node a{1, with};
  bench_node b{2, with};
  if (!a.plane->add_peer(b.plane->local_address(), b.plane->local_announcement().regions)) std::exit(1);
  runner r{.a = a, .b = b, .with = with};
  for (const auto op : {transfer_op::write, transfer_op::read}) {
    const auto* name = op == transfer_op::write ? "write" : "read";
    const auto bytes = static_cast<double>(with.size * with.slices);
    r.keep(op, 2, 0);
    if (latency) {
      std::vector<double> took;
      for (const auto end = now() + with.seconds; now() < end;) {
        const auto begin = now();
        r.keep(op, 1, 0);
        took.push_back(now() - begin);
      }
      std::sort(took.begin(), took.end());
      std::printf("FIGURE latency %s slices=%zu checksums=%d %zu p50 %.1f us p99 %.1f us\n", name,
                  with.slices, with.checksums, with.size, took[took.size() / 2] * 1e6,
                  took[took.size() * 99 / 100] * 1e6);
      continue;
    }
    const auto window = std::clamp<std::size_t>(32 * MiB / (with.size * with.slices), 2, 128);
    const auto begin = now();
    const auto cpu = cpu_seconds();
    const auto n = static_cast<double>(r.keep(op, window, with.seconds));
    std::printf("FIGURE bandwidth %s rails=%zu slices=%zu checksums=%d %zu %.1f MB/s %.0f transfers/CPU-s\n",
                name, a.plane->rails().size(), with.slices, with.checksums, with.size,
                n * bytes / (now() - begin) * 1e-6, n / (cpu_seconds() - cpu));
  }
}

struct counter final : queue_pair_owner {
  void on_done(const rdma_item&) override { ++done; }
  void on_message(std::span<const std::byte>) override {}
  std::uint64_t done = 0;
};

// One queue pair kept full, nothing around it: what the posting path can do at most.
void bare_case(const settings& with) {
  rdma_options o;
  o.devices = with.devices;
  const auto found = discover(o);
  if (found.rails.empty()) std::exit(1);
  auto a = queue_pair::make(*found.rails[0], o);
  auto b = queue_pair::make(*found.rails[0], o);
  if (!a || !b || !(*a)->connect((*b)->endpoint()) || !(*b)->connect((*a)->endpoint())) std::exit(1);
  std::vector<std::byte> from(with.size);
  std::vector<std::byte> to(with.size);
  const auto mine = found.rails[0]->device->register_memory(from);
  const auto theirs = found.rails[0]->device->register_memory(to);
  counter c;
  const auto begin = now();
  const auto cpu = cpu_seconds();
  while (now() - begin < with.seconds) {
    while ((*a)->room() > 0)
      (*a)->add({false, from.data(), (*mine)->lkey, reinterpret_cast<std::uintptr_t>(to.data()),
                 (*theirs)->rkey, static_cast<std::uint32_t>(with.size)},
                {});
    if (!(*a)->flush() || !(*a)->poll(c)) std::exit(1);
  }
  const auto elapsed = now() - begin;
  const auto n = static_cast<double>(c.done);
  std::printf("FIGURE bare write %zu %.1f MB/s %.0f orders/s %.0f orders/CPU-s\n", with.size,
              n * static_cast<double>(with.size) / elapsed * 1e-6, n / elapsed, n / (cpu_seconds() - cpu));
}

bool set(settings& s, const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) return false;
  const auto key = text.substr(0, equals);
  const auto value = std::atof(text.c_str() + equals + 1);
  if (key == "size") s.size = static_cast<std::size_t>(value);
  else if (key == "slices") s.slices = static_cast<std::size_t>(value);
  else if (key == "checksums") s.checksums = value != 0;
  else if (key == "seconds") s.seconds = value;
  else if (key == "spin") s.spin_us = static_cast<unsigned>(value);
  else if (key == "cut") s.cut = static_cast<std::size_t>(value);
  else return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = argv[1];
  settings with{.devices = split(argv[2])};
  for (int i = 3; i < argc; ++i)
    if (!set(with, argv[i])) return 2;
  if (what == "bare") bare_case(with);
  else data_plane_cases(what == "latency", with);
  return 0;
}
