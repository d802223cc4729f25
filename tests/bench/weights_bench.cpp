// How fast weights come from a file to a device, by threads, beside a plain read of the same file.
//
//   mooncaf_weights_bench FILE.gguf [--gpu N]     --gpu: the device is a GPU, else the host
//
// A round reads the file once with each number of threads and loads it once with each, so that what else the
// machine does hits all of them; the fastest of the rounds counts. All of the file is in the page cache, so
// that a disk is no limit; GB/s are the file's bytes by the time until the model could compute.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gpu/cuda/cuda_device.hpp"
#include "gpu/host/host_device.hpp"
#include "tests/bench/bench_model.hpp"

using namespace mooncaf;
using namespace mooncaf::bench;

namespace {

constexpr int rounds = 5;
constexpr std::size_t piece_bytes = std::size_t{4} << 20;

double seconds_of(const auto& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// read(2) into memory of each thread's own that is warm, a piece at a time.
void read_plainly(const std::string& path, std::size_t bytes, unsigned threads) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) die(path + " cannot be opened");
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> readers;
  for (unsigned t = 0; t < threads; ++t)
    readers.emplace_back([&] {
      std::vector<char> room(piece_bytes);
      for (auto at = next.fetch_add(piece_bytes); at < bytes; at = next.fetch_add(piece_bytes))
        for (auto end = std::min(bytes, at + piece_bytes); at < end;) {
          const auto got = ::pread(fd, room.data(), end - at, static_cast<off_t>(at));
          if (got <= 0) die(path + " cannot be read");
          at += static_cast<std::size_t>(got);
        }
    });
  for (auto& r : readers) r.join();
  ::close(fd);
}

struct settings {
  std::string file;
  std::optional<std::uint32_t> gpu;
};

settings parse(int argc, char** argv) {
  settings s;
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  bool known = words.size() == 1 || (words.size() == 3 && words[1] == "--gpu");
  if (known) s.file = words[0];
  if (known && words.size() == 3)
    known = std::from_chars(words[2].data(), words[2].data() + words[2].size(), s.gpu.emplace()).ec ==
            std::errc{};
  if (!known || is_dummy_spec(s.file)) die("usage: mooncaf_weights_bench FILE.gguf [--gpu N]");
  return s;
}

/// A thread, two, four … and as many as there are processors.
std::vector<unsigned> thread_counts() {
  const auto all = std::max(1u, std::thread::hardware_concurrency());
  std::vector<unsigned> out;
  for (unsigned n = 1; n < all; n *= 2) out.push_back(n);
  out.push_back(all);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const auto s = parse(argc, argv);
  const auto bytes = unwrap(mapped_file::open(s.file)).bytes().size();
  const auto counts = thread_counts();
  std::vector<double> reading(counts.size(), 1e9), loading(counts.size(), 1e9);
  std::string where;
  read_plainly(s.file, bytes, 1);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      reading[i] = std::min(reading[i], seconds_of([&] { read_plainly(s.file, bytes, counts[i]); }));
      const auto device = s.gpu ? unwrap(make_cuda_device({*s.gpu, counts[i]}))
                                : unwrap(try_make_host_device({.threads = counts[i]}));
      where = device->info().name;
      std::shared_ptr<const model> loaded;
      loading[i] = std::min(loading[i], seconds_of([&] { loaded = load_model(*device, s.file); }));
    }
  }
  std::printf(
      "%.0f MB onto %s\n\n| threads | weights, GB/s | plain read, GB/s | of it |\n| --- | --- | --- | --- "
      "|\n",
      static_cast<double>(bytes) / 1e6, where.c_str());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto rate = [&](double seconds) { return static_cast<double>(bytes) / seconds / 1e9; };
    std::printf("| %u | %.2f | %.2f | %.0f %% |\n", counts[i], rate(loading[i]), rate(reading[i]),
                100 * reading[i] / loading[i]);
  }
}
