// The offset allocator of the object store beside malloc and free, with the same sizes in the same order.
//
//   mooncaf_allocator_bench [SECONDS]      of each measurement; default 1
//
// A span is filled to nine tenths; then, again and again, a part drawn at random goes and another one comes.
// Nothing is written to the bytes: what is measured is the bookkeeping. malloc keeps its memory meanwhile,
// and maps none for single parts (mallopt), which would cost it a system call each.
//
// A second measurement fills to the brim: where a part finds no run, others go until it does; what was in use
// at these moments is the utilisation. Of malloc it is what was asked for, by what the heap has grown to.

#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/offset_allocator.hpp"

using namespace mooncaf;

namespace {

using random_source = std::mt19937_64;

struct workload {
  const char* name;
  std::function<std::uint64_t(random_source&)> size;
};

std::vector<workload> workloads() {
  const auto any = [](random_source& r) {  // as many of 4 to 8 KiB as of 2 to 4 MiB
    const double e = std::uniform_real_distribution<>{12, 22}(r);
    return static_cast<std::uint64_t>(std::exp2(e));
  };
  const auto few = [](random_source& r) {
    constexpr std::uint64_t sizes[] = {4 * KiB, 160 * KiB, 1 * MiB};
    return sizes[r() % std::size(sizes)];
  };
  return {{"160 KiB", [](random_source&) { return 160 * KiB; }},
          {"4 KiB, 160 KiB, 1 MiB", few},
          {"any, 4 KiB to 4 MiB", any}};
}

struct of_ours {
  explicit of_ours(std::uint64_t span) : space{span} {}
  using handle = std::uint32_t;
  handle take(std::uint64_t bytes) {
    const auto got = space.allocate(bytes);
    return got ? got->handle : ~handle{0};
  }
  void give(handle h) { space.release(h); }
  static bool is_there(handle h) { return h != ~handle{0}; }
  offset_allocator space;
};

struct of_malloc {
  using handle = void*;
  static handle take(std::uint64_t bytes) { return std::malloc(bytes); }
  static void give(handle h) { std::free(h); }
  static bool is_there(handle h) { return h != nullptr; }
};

struct figures {
  double per_s = 0, p50_ns = 0, p99_ns = 0;  ///< of allocations and releases
};

template <class Memory>
struct parts {
  struct one {
    typename Memory::handle handle;
    std::uint64_t bytes;
  };
  Memory& memory;
  std::uint64_t span;
  std::vector<one> all = {};
  std::uint64_t used = 0;

  bool add(std::uint64_t bytes) {
    const auto h = memory.take(bytes);
    if (!Memory::is_there(h)) return false;
    all.push_back({h, bytes});
    used += offset_allocator::rounded(bytes);
    return true;
  }
  void drop(std::size_t which) {
    memory.give(all[which].handle);
    used -= offset_allocator::rounded(all[which].bytes);
    all[which] = all.back();
    all.pop_back();
  }
  bool is_full() const { return used >= span / 10 * 9; }
};

/// @param each  called around every operation.
template <class Memory, class Each>
std::uint64_t churn(parts<Memory>& p, const workload& w, random_source& r, double seconds, const Each& each) {
  std::uint64_t done = 0;
  for (const auto begin = clock_type::now(); to_seconds(clock_type::now() - begin) < seconds;)
    for (int i = 0; i < 256; ++i) {
      if (p.is_full()) {
        const auto which = r() % p.all.size();
        each([&] { p.drop(which); });
      } else {
        const auto bytes = w.size(r);
        bool came = false;
        each([&] { came = p.add(bytes); });
        if (!came) p.drop(r() % p.all.size());
      }
      ++done;
    }
  return done;
}

template <class Memory>
figures measure(Memory& memory, std::uint64_t span, const workload& w, double seconds) {
  random_source r{1};
  parts<Memory> p{memory, span};
  while (!p.is_full())
    if (!p.add(w.size(r))) break;
  churn(p, w, r, seconds / 4, [](const auto& operation) { operation(); });
  figures f;
  const auto begin = clock_type::now();
  const auto done = churn(p, w, r, seconds, [](const auto& operation) { operation(); });
  f.per_s = static_cast<double>(done) / to_seconds(clock_type::now() - begin);
  std::vector<std::int64_t> times, of_nothing;
  const auto timed = [](std::vector<std::int64_t>& into, const auto& operation) {
    const auto from = clock_type::now();
    operation();
    into.push_back((clock_type::now() - from).count());
  };
  for (int i = 0; i < 100'000; ++i) timed(of_nothing, [] {});
  churn(p, w, r, seconds, [&](const auto& operation) {
    if (times.size() < 4'000'000) timed(times, operation);
    else operation();
  });
  const auto at = [](std::vector<std::int64_t>& v, double share) {
    const auto n = static_cast<std::ptrdiff_t>(share * static_cast<double>(v.size() - 1));
    std::nth_element(v.begin(), v.begin() + n, v.end());
    return static_cast<double>(v[static_cast<std::size_t>(n)]);
  };
  const auto clock = at(of_nothing, 0.5);
  f.p50_ns = std::max(0.0, at(times, 0.5) - clock);
  f.p99_ns = std::max(0.0, at(times, 0.99) - clock);
  while (!p.all.empty()) p.drop(p.all.size() - 1);
  return f;
}

/// Shares of the span that were in use whenever a part found no run.
struct utilisation {
  double mean = 0, least = 1;
};

utilisation fill_to_the_brim(std::uint64_t span, const workload& w) {
  random_source r{2};
  of_ours memory{span};
  parts<of_ours> p{memory, std::numeric_limits<std::uint64_t>::max()};
  utilisation u;
  std::uint64_t refused = 0, brought = 0;
  while (brought < 10 * span) {
    const auto bytes = w.size(r);
    brought += bytes;
    bool counted = brought < 2 * span;  // until it has become old
    while (!p.add(bytes)) {
      const auto share = static_cast<double>(p.used) / static_cast<double>(span);
      if (!std::exchange(counted, true)) {
        u.mean += share;
        u.least = std::min(u.least, share);
        ++refused;
      }
      p.drop(r() % p.all.size());
    }
  }
  u.mean /= static_cast<double>(std::max<std::uint64_t>(1, refused));
  return u;
}

/// What the same objects take of malloc's heap: at nine tenths, after as much has come and gone.
double heap_utilisation(std::uint64_t span, const workload& w) {
  random_source r{2};
  of_malloc memory;
  parts<of_malloc> p{memory, span};
  const auto before = ::mallinfo2().arena;
  for (std::uint64_t brought = 0; brought < 10 * span;) {
    while (p.is_full()) p.drop(r() % p.all.size());
    const auto bytes = w.size(r);
    brought += bytes;
    if (!p.add(bytes)) return 0;
  }
  const auto grown = ::mallinfo2().arena - before;
  return static_cast<double>(p.used) / static_cast<double>(std::max<std::size_t>(grown, 1));
}

/// The same in a process of its own, whose heap nobody has grown before. @returns zero if there is none.
double fresh_heap_utilisation(std::uint64_t span, const workload& w) {
  void* const shared =
      ::mmap(nullptr, sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 0;
  auto& found = *static_cast<double*>(shared);
  const auto child = ::fork();
  if (child == 0) {
    found = heap_utilisation(span, w);
    ::_exit(0);
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
  const double u = found;
  ::munmap(shared, sizeof(double));
  return u;
}

void print(const char* who, std::uint64_t span, const workload& w, const figures& f) {
  std::printf("  %-8s %3llu GiB  %-22s %7.1f M/s  p50 %4.0f ns  p99 %4.0f ns\n", who,
              static_cast<unsigned long long>(span / GiB), w.name, f.per_s / 1e6, f.p50_ns, f.p99_ns);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  if (!(seconds > 0)) {
    std::fprintf(stderr, "usage: mooncaf_allocator_bench [SECONDS]\n");
    return 2;
  }
  ::mallopt(M_MMAP_THRESHOLD, 32 * static_cast<int>(MiB));
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  constexpr std::uint64_t small = 2 * GiB, large = 64 * GiB;
  std::printf(
      "utilisation: ours where a part finds no run (mean, least); malloc's heap by the same objects\n");
  for (const auto& w : workloads()) {
    const auto heap = fresh_heap_utilisation(small, w);
    const auto u = fill_to_the_brim(small, w);
    std::printf("  %-22s ours %.3f, %.3f  malloc %.3f\n", w.name, u.mean, u.least, heap);
  }
  std::printf("allocations and releases at nine tenths full\n");
  for (const auto& w : workloads()) {
    of_malloc theirs;
    print("malloc", small, w, measure(theirs, small, w, seconds));
    of_ours ours{small};
    print("ours", small, w, measure(ours, small, w, seconds));
    of_ours many{large};
    print("ours", large, w, measure(many, large, w, seconds));
  }
}
